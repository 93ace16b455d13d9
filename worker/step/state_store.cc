#include "worker/step/state_store.h"

#include <string>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

int64_t RowBytes(const kernels::TensorView& states) {
  return states.RowElements() * static_cast<int64_t>(sizeof(float));
}

// Position of the sequence's first row, or behind its last one that is no draft.
int32_t FirstOf(const StepArrays& step, int32_t sequence) {
  const auto at = static_cast<size_t>(sequence);
  return step.context_lengths()[at] - (step.query_starts()[at + 1] - step.query_starts()[at]);
}
int32_t EndOf(const StepArrays& step, int32_t sequence) {
  const auto at = static_cast<size_t>(sequence);
  return step.context_lengths()[at] - step.draft_rows()[at];
}

int32_t SeatOf(const StepArrays& step, const StateCopy& copy) {
  return step.seats()[static_cast<size_t>(copy.sequence)];
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateStore>> StateStore::Create(
    int64_t snapshots, const Model* model, kernels::Device* device,
    std::shared_ptr<StateExchange> exchange) {
  auto memory = device->AllocateHost(snapshots * model->SeatBytes());
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<StateStore>(
      new StateStore(snapshots, model, *std::move(memory), std::move(exchange)));
}

absl::Status StateStore::Check(const StepArrays& step, std::span<const StateCopy> restores,
                               std::span<const StateCopy> saves) const {
  const auto fail = [](const char* what, const StateCopy& copy, const std::string& reason) {
    return absl::FailedPreconditionError(StrCat("step: sequence ", copy.sequence, ", state ",
                                                copy.snapshot, " to ", what, ": ", reason));
  };
  const auto check = [&](const char* what, const StateCopy& copy) -> absl::Status {
    if (copy.sequence < 0 || copy.sequence >= step.sequences() ||
        step.seats()[static_cast<size_t>(copy.sequence)] < 0) {
      return fail(what, copy, "the step has no such sequence, or it has no seat");
    }
    const auto places = static_cast<int64_t>(places_.size());
    const int64_t exchanges = exchange_ == nullptr ? 0 : exchange_->places();
    if (copy.snapshot < places && copy.exchange() < exchanges) return absl::OkStatus();
    return fail(what, copy,
                StrCat("there is no such place; this worker has ", places, ", and ", exchanges,
                       " (below 0) for states on their way"));
  };
  for (const StateCopy& copy : restores) {
    absl::Status status = check("restore", copy);
    if (!status.ok()) return status;
    const int32_t first = FirstOf(step, copy.sequence);
    if (copy.position != first) {
      return fail(
          "restore", copy,
          StrCat("it is of position ", copy.position, ", the sequence's first row is at ", first));
    }
    if (copy.of_exchange()) continue;
    const Place& place = places_[static_cast<size_t>(copy.snapshot)];
    if (place.name == copy.name && place.position == copy.position) continue;
    return fail("restore", copy,
                StrCat("wanted is number ", copy.name, " of position ", copy.position,
                       ", there is number ", place.name, " of position ", place.position));
  }
  for (const StateCopy& copy : saves) {
    absl::Status status = check("save", copy);
    if (!status.ok()) return status;
    const bool has_name = (copy.name != 0) != copy.of_exchange();
    if (copy.position == EndOf(step, copy.sequence) && has_name) continue;
    return fail("save", copy,
                StrCat("it is to be number ", copy.name, " of position ", copy.position,
                       ", the sequence ends at ", EndOf(step, copy.sequence)));
  }
  return absl::OkStatus();
}

template <typename Copy>
absl::Status StateStore::ForParts(const StepArrays& step, const StateCopy& state,
                                  const Copy& copy) const {
  const int32_t seat = SeatOf(step, state);
  std::byte* host = memory_.data() + state.snapshot * model_->SeatBytes();
  for (const kernels::TensorView& states : model_->states()) {
    const int64_t bytes = RowBytes(states);
    absl::Status copied = copy(host, states.Row<float>(seat), bytes);
    if (!copied.ok()) return copied;
    host += bytes;
  }
  return absl::OkStatus();
}

absl::Status StateStore::Restore(const StepArrays& step, std::span<const StateCopy> restores,
                                 kernels::Stream& stream) const {
  for (const StateCopy& restore : restores) {
    absl::Status status =
        restore.of_exchange()
            ? exchange_->Restore(restore.exchange(), SeatOf(step, restore), stream)
            : ForParts(step, restore, [&](const std::byte* host, float* device, int64_t bytes) {
                return stream.CopyToDevice(device, host, bytes);
              });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status StateStore::Save(const StepArrays& step, std::span<const StateCopy> saves,
                              kernels::Stream& stream) {
  for (const StateCopy& save : saves) {
    if (!save.of_exchange())
      places_[static_cast<size_t>(save.snapshot)] = {save.name, save.position};
    absl::Status status =
        save.of_exchange()
            ? exchange_->Fill(SeatOf(step, save), save.exchange(), stream)
            : ForParts(step, save, [&](std::byte* host, const float* device, int64_t bytes) {
                return stream.CopyToHost(host, device, bytes);
              });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
