#include "worker/step/step_inputs.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<StepUpload>> StepUpload::Create(const StepLimits& limits,
                                                               kernels::Device& device) {
  auto memory = device.Allocate(StepArrays::Elements(limits) * sizeof(int32_t));
  if (!memory.ok()) return memory.status();
  std::unique_ptr<StepUpload> upload(new StepUpload(*std::move(memory)));
  if (!device.host_reads_memory()) {
    auto staging = device.AllocateHost(kSteps * upload->device_bytes());
    if (!staging.ok()) return staging.status();
    upload->staging_ = *std::move(staging);
  }
  return upload;
}

absl::StatusOr<StepInputs> StepUpload::Copy(const StepArrays& arrays, bool padded,
                                            kernels::Stream& stream) {
  const StepArrays::Extents extents = padded ? arrays.padded_extents() : arrays.extents();
  const int32_t* base = arrays.memory().data();
  const auto on_device = [&](std::span<const int32_t> host) {
    return memory_.data() + (host.data() - base) * sizeof(int32_t);
  };
  const auto view = [&](std::span<const int32_t> host, int64_t count) {
    return kernels::TensorView(on_device(host), kernels::DType::kI32, {count});
  };
  StepInputs step;
  step.rows_per_sequence = arrays.rows_per_sequence();
  step.token_ids = view(arrays.token_ids(), extents.rows);
  step.positions = view(arrays.positions(), extents.rows);
  step.rope_lengths = view(arrays.rope_lengths(), extents.rows);
  step.slots = view(arrays.slots(), extents.rows);
  step.query_starts = view(arrays.query_starts(), extents.sequences + 1);
  step.context_lengths = view(arrays.context_lengths(), extents.sequences);
  step.seats = view(arrays.seats(), extents.sequences);
  if (arrays.has_drafts()) step.draft_rows = view(arrays.draft_rows(), extents.sequences);
  step.logit_rows = view(arrays.logit_rows(), extents.logit_rows);
  step.block_tables = kernels::TensorView(on_device(arrays.padded_tables()), kernels::DType::kI32,
                                          {extents.sequences, arrays.table_width()});
  const auto table_elements = static_cast<size_t>(extents.sequences * arrays.table_width());
  std::vector<std::span<const int32_t>> parts = {arrays.before_tables(),
                                                 {arrays.padded_tables().data(), table_elements}};
  if (arrays.windows_apart()) {
    step.window_slots = view(arrays.window_slots(), extents.rows);
    step.window_block_tables = step.block_tables;
    step.window_block_tables.data = on_device(arrays.padded_window_tables());
    parts.emplace_back(arrays.padded_window_tables().data(), table_elements);
  }
  std::byte* const staging =
      staging_.data() == nullptr ? nullptr : staging_.data() + copies_++ % kSteps * device_bytes();
  for (const std::span<const int32_t> part : parts) {
    const void* from = part.data();
    if (staging != nullptr) {
      from = std::memcpy(staging + (part.data() - base) * sizeof(int32_t), from, part.size_bytes());
    }
    absl::Status status =
        stream.CopyToDevice(on_device(part), from, static_cast<int64_t>(part.size_bytes()));
    if (!status.ok()) return status;
  }
  return step;
}

}  // namespace tessera::worker
