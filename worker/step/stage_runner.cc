#include "worker/step/stage_runner.h"

#include <algorithm>
#include <utility>

#include "kernels/collectives/device_sums_group.h"
#include "kernels/collectives/group_arguments.h"
#include "kernels/collectives/staged_group.h"
#include "kernels/ops.h"
#include "proto/activations.h"
#include "third_party/spdlog/log.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

absl::StatusOr<std::unique_ptr<StageRunner>> StageRunner::Create(const StageOptions& options,
                                                                 const StageLinks& links,
                                                                 Model* model,
                                                                 kernels::Device* device) {
  std::unique_ptr<StageRunner> runner(new StageRunner(options, links, model, &device->ops()));
  auto upload = StepUpload::Create(options.limits, *device);
  if (!upload.ok()) return upload.status();
  runner->upload_ = *std::move(upload);
  if (options.samples) {
    auto sampler = Sampler::Create(options.sampler, *device);
    if (!sampler.ok()) return sampler.status();
    runner->sampler_ = *std::move(sampler);
  }
  if (model->has_draft_head() || model->draft_model() != nullptr) {
    auto drafts = DraftRunner::Create(options.limits, options.sampler, options.block_tokens,
                                      options.samples, model, device);
    if (!drafts.ok()) return drafts.status();
    runner->drafts_ = *std::move(drafts);
  }
  if (model->seats() > 0) {
    auto states = StateStore::Create(options.snapshots, model, device, options.exchange);
    if (!states.ok()) return states.status();
    runner->states_ = *std::move(states);
  }
  auto stream = device->CreateStream();
  if (!stream.ok()) return stream.status();
  runner->stream_ = *std::move(stream);
  runner->repeating_ = runner->stream_->repeating();
  // Other ranks sum as many rows as there are, but where all of them do the same.
  const bool alike = links.group == nullptr || links.sums != nullptr;
  runner->pads_ = alike && runner->repeating_ != nullptr;
  const bool one_stage = options.first && links.next == nullptr && !links.has_other_stages;
  const bool meets_on_device =
      links.group == nullptr ? options.samples || links.hops != nullptr : links.sums != nullptr;
  if ((one_stage || links.hops != nullptr) && meets_on_device && runner->drafts_ == nullptr)
    runner->marks_ = runner->stream_->marking();
  if (runner->marks_ != nullptr && !options.samples) {
    auto fed = device->Allocate(options.sampler.max_rows * int64_t{sizeof(int32_t)});
    if (!fed.ok()) return fed.status();
    runner->fed_ = *std::move(fed);
  }
  if (absl::Status staged = runner->MakeStaging(*device); !staged.ok()) return staged;
  absl::Status joined = model->JoinRanks(runner->links_.group, *runner->stream_);
  if (!joined.ok()) return joined;
  return runner;
}

absl::Status StageRunner::MakeStaging(kernels::Device& device) {
  const bool stages = !device.host_reads_memory();
  if (stages && (links_.previous != nullptr || links_.next != nullptr)) {
    auto rows = device.AllocateHost(kernels::DenseBytes(model_->stage_rows()));
    if (!rows.ok()) return rows.status();
    staged_rows_ = *std::move(rows);
  }
  if (links_.group == nullptr) return absl::OkStatus();
  if (stages && !links_.group->takes_device_memory()) {
    auto group = kernels::StagedGroup::Create(links_.group, device, model_->group_staging_bytes());
    if (!group.ok()) return group.status();
    staged_group_ = *std::move(group);
    links_.group = staged_group_.get();
  }
  meeting_group_ = links_.group;
  if (links_.sums != nullptr) {
    device_sums_ = std::make_unique<kernels::DeviceSumsGroup>(links_.group, links_.sums);
    links_.group = device_sums_.get();
    if (repeating_ != nullptr) repeating_->set_group_call_bytes(links_.sums->max_bytes());
  }
  Logger("worker").info("group of {} ranks: {}", links_.group->size(), links_.group->transport());
  return absl::OkStatus();
}

absl::Span<std::byte> StageRunner::LinkedRows(int64_t rows) const {
  static_assert(kWireElementBytes == sizeof(float));  // rows are sent as they are
  const kernels::TensorView view = model_->stage_rows().Rows(rows);
  return {stages_rows() ? staged_rows_.data() : view.data,
          static_cast<size_t>(view.Elements() * kWireElementBytes)};
}

absl::Status StageRunner::Run(const StepWork& work, StepOutcome* outcome) {
  if (options_.busy_nanoseconds == nullptr) return RunParts(work, outcome);
  const Clock::time_point began = Clock::now();
  NewRankTime();
  link_time_ = std::chrono::nanoseconds(0);
  absl::Status status = RunParts(work, outcome);
  const std::chrono::nanoseconds busy = Clock::now() - began - link_time_ - NewRankTime();
  // A sum may run while the next inputs are copied.
  options_.busy_nanoseconds->fetch_add(std::max<int64_t>(0, busy.count()),
                                       std::memory_order_relaxed);
  return status;
}

std::chrono::nanoseconds StageRunner::NewRankTime() {
  std::chrono::nanoseconds now(0);
  if (links_.group != nullptr) now = links_.group->call_time();
  if (links_.hops != nullptr) {
    for (const kernels::DeviceSums* hop :
         {links_.hops->previous, links_.hops->next, links_.hops->tokens}) {
      if (hop != nullptr) now += hop->wait_time();
    }
  }
  return now - std::exchange(rank_time_, now);
}

bool StageRunner::HopsOnDevice(int64_t rows) const {
  return links_.hops != nullptr && has_run_ &&
         rows * model_->stage_rows().RowElements() * kWireElementBytes <=
             DeviceHops::kMaxPieces * links_.hops->piece_bytes;
}

kernels::TensorView StageRunner::HopPiece(int64_t rows, int64_t begin) const {
  const int64_t bytes = rows * model_->stage_rows().RowElements() * kWireElementBytes - begin;
  return kernels::TensorView(model_->stage_rows().data + begin, kernels::DType::kF32,
                             {std::min(bytes, links_.hops->piece_bytes) / kWireElementBytes});
}

absl::Status StageRunner::TakeOnDevice(int64_t rows) {
  absl::Status status;
  if (options_.first) return status;
  const int64_t bytes = rows * model_->stage_rows().RowElements() * kWireElementBytes;
  for (int64_t at = 0; status.ok() && at < bytes; at += links_.hops->piece_bytes) {
    const kernels::TensorView piece = HopPiece(rows, at);
    if (links_.hops->previous != nullptr)
      status = links_.hops->previous->Broadcast(piece, 0, *stream_);
    if (status.ok() && links_.sums != nullptr) status = links_.sums->Broadcast(piece, 0, *stream_);
  }
  return status;
}

absl::Status StageRunner::HandOnDevice(int64_t rows) {
  absl::Status status;
  if (links_.hops->next == nullptr) return status;
  const int64_t bytes = rows * model_->stage_rows().RowElements() * kWireElementBytes;
  for (int64_t at = 0; status.ok() && at < bytes; at += links_.hops->piece_bytes)
    status = links_.hops->next->Broadcast(HopPiece(rows, at), 0, *stream_);
  return status;
}

absl::Status StageRunner::RunParts(const StepWork& work, StepOutcome* outcome) {
  absl::Status status = TakeDrawn(work);
  if (status.ok()) status = TakeRows(work.arrays->rows());
  if (status.ok()) status = RunModel(work);
  if (status.ok()) status = HandOn(work.arrays->rows());
  if (status.ok() && options_.samples) status = Sample(work, outcome);
  if (status.ok() && drafts_ != nullptr) {
    KvWriteListener* const listener = work.pushes.empty() ? nullptr : options_.kv_sender;
    // Rank 0's host may take long for masks, and no device waits for a host.
    status = drafts_->Run(work, meeting_group_, listener, *stream_, outcome);
  }
  // Also after a failure: what was enqueued still reads the staging.
  status.Update(stream_->Synchronize());
  if (status.ok()) has_run_ = true;
  return status;
}

absl::Status StageRunner::TakeRows(int64_t rows) {
  if (HopsOnDevice(rows)) return TakeOnDevice(rows);
  // Devices must not wait for what rank 0's host waits for: hosts meet first.
  const bool meets = links_.sums != nullptr && links_.has_other_stages;
  if (options_.first && !meets) return absl::OkStatus();
  const kernels::TensorView stage_rows = model_->stage_rows().Rows(options_.first ? 1 : rows);
  if (links_.previous != nullptr) {
    const absl::Span<std::byte> memory = LinkedRows(rows);
    const Clock::time_point began = Clock::now();
    const auto received = links_.previous->Receive(static_cast<uint16_t>(FrameType::kActivations),
                                                   memory, options_.wait_seconds);
    link_time_ += Clock::now() - began;
    if (!received.ok()) return received.status();
    if (*received != static_cast<int64_t>(memory.size())) {
      return absl::FailedPreconditionError(links_.previous->peer() +
                                           " sent the rows of another step");
    }
    if (stages_rows()) {
      absl::Status copied = stream_->CopyToDevice(stage_rows.data, memory.data(), *received);
      if (!copied.ok()) return copied;
    }
  }
  if (meeting_group_ == nullptr) return absl::OkStatus();
  return meeting_group_->Broadcast(stage_rows, 0, *stream_);
}

absl::Status StageRunner::RunModel(const StepWork& work) {
  if (absl::Status seats = PrepareSeats(work); !seats.ok()) return seats;
  auto inputs = upload_->Copy(*work.arrays, pads_, *stream_);
  if (!inputs.ok()) return inputs.status();
  if (!work.pushes.empty() && options_.kv_sender != nullptr) {
    options_.kv_sender->Begin(work.pushes, *work.arrays);
    inputs->kv_listener = options_.kv_sender;
  }
  absl::Status status;
  if (work.arrays->fed_rows() > 0 && options_.first)
    status = ops_->FeedTokens({.ids = inputs->token_ids, .drawn = Drawn()}, *stream_);
  if (status.ok()) status = model_->Forward(*inputs, *stream_);
  return status.ok() && states_ != nullptr ? SaveStates(work) : status;
}

kernels::TensorView StageRunner::Drawn() const {
  const kernels::TensorView all =
      sampler_ != nullptr
          ? sampler_->drawn()
          : kernels::TensorView(fed_.data(), kernels::DType::kI32, {options_.sampler.max_rows});
  return all.Rows(drawn_rows_);
}

// In front of the rows that come: those need the tokens.
absl::Status StageRunner::TakeDrawn(const StepWork& work) {
  if (work.arrays->fed_rows() == 0) return absl::OkStatus();
  if (!runs_ahead()) {
    return absl::FailedPreconditionError(
        "a step with tokens that the step before it draws; this stage runs no steps ahead");
  }
  absl::Status status;
  if (links_.hops != nullptr && links_.hops->tokens != nullptr)
    status = links_.hops->tokens->Broadcast(Drawn(), 1, *stream_);
  if (status.ok() && options_.first && links_.group != nullptr)
    status = links_.group->Broadcast(Drawn(), 0, *stream_);
  return status;
}

absl::Status StageRunner::SaveStates(const StepWork& work) {
  absl::Status status = states_->Save(*work.arrays, work.saves, *stream_);
  const bool hands_over = std::any_of(work.pushes.begin(), work.pushes.end(),
                                      [](const KvPush& push) { return push.exchange >= 0; });
  if (!status.ok() || !hands_over || options_.kv_sender == nullptr) return status;
  return kernels::EnqueueHost<KvSender*>(
      *stream_,
      [](KvSender* const& sender) {
        sender->OnStatesSaved();
        return absl::OkStatus();
      },
      options_.kv_sender);
}

absl::Status StageRunner::PrepareSeats(const StepWork& work) {
  if (states_ == nullptr) return absl::OkStatus();
  absl::Status status = states_->Check(*work.arrays, work.restores, work.saves);
  if (status.ok()) status = seats_.Advance(*work.arrays, work.restores);
  return status.ok() ? states_->Restore(*work.arrays, work.restores, *stream_) : status;
}

bool StageRunner::RunsAhead(const StepWork& work) const {
  const bool plain = runs_ahead() && work.pushes.empty() &&
                     (links_.hops == nullptr || HopsOnDevice(work.arrays->rows()));
  return plain && (!options_.samples || DrawsAtOnce(work));
}

bool StageRunner::FeedsNext(const StepWork& work) const {
  return RunsAhead(work) && DrawsAtOnce(work);
}

bool StageRunner::DrawsAtOnce(const StepWork& work) const {
  const bool wants_rows =
      std::any_of(work.samples.begin(), work.samples.end(),
                  [](const SampleRequest& request) { return request.final_row; });
  return work.scores.empty() && !wants_rows && Sampler::DrawsAtOnce(options_.sampler, work.samples);
}

absl::Status StageRunner::Enqueue(const StepWork& work) {
  const int place = PlaceOf(enqueued_);
  const int64_t rows = work.arrays->rows();
  began_[place] = Clock::now();
  absl::Status status = TakeDrawn(work);
  if (status.ok() && links_.hops != nullptr) status = TakeOnDevice(rows);
  if (status.ok()) status = RunModel(work);
  if (status.ok() && links_.hops != nullptr) status = HandOnDevice(rows);
  if (status.ok() && sampler_ != nullptr) {
    work.MakeMasks();
    status = sampler_->Enqueue(model_->logits().Rows(work.arrays->logit_count()), work.samples,
                               place, *stream_);
  }
  if (!status.ok()) {
    (void)stream_->Synchronize();  // a failure of the step before stays at its mark
    return status;
  }
  drawn_rows_ = std::ssize(work.samples);
  marks_->Mark(place);
  ++enqueued_;
  return absl::OkStatus();
}

absl::Status StageRunner::Collect(size_t samples, StepOutcome* outcome) {
  const int place = PlaceOf(collected_++);
  const absl::Status status = marks_->WaitMark(place);
  if (options_.busy_nanoseconds != nullptr) {
    const Clock::time_point now = Clock::now();
    // The group may be in a call of the next step already.
    const std::chrono::nanoseconds busy = now - std::max(began_[place], last_end_) - NewRankTime();
    options_.busy_nanoseconds->fetch_add(std::max<int64_t>(0, busy.count()),
                                         std::memory_order_relaxed);
    last_end_ = now;
  }
  outcome->scores.clear();
  outcome->row_sums.clear();
  if (status.ok() && sampler_ != nullptr) {
    sampler_->Read(place, samples, &outcome->samples);
  } else if (!status.ok()) {
    (void)stream_->Synchronize();  // what is enqueued from now on is to run
  }
  return status;
}

absl::Status StageRunner::HandOn(int64_t rows) {
  if (HopsOnDevice(rows)) return HandOnDevice(rows);
  return links_.next == nullptr ? absl::OkStatus() : HandOnByHost(rows);
}

absl::Status StageRunner::HandOnByHost(int64_t rows) {
  const absl::Span<std::byte> memory = LinkedRows(rows);
  absl::Status status;
  if (stages_rows()) {
    status = stream_->CopyToHost(memory.data(), model_->stage_rows().data,
                                 static_cast<int64_t>(memory.size()));
  }
  status.Update(stream_->Synchronize());
  if (!status.ok()) return status;
  const Clock::time_point began = Clock::now();
  absl::Status sent = links_.next->Send(static_cast<uint16_t>(FrameType::kActivations), memory,
                                        options_.wait_seconds);
  link_time_ += Clock::now() - began;
  return sent;
}

absl::Status StageRunner::Sample(const StepWork& work, StepOutcome* outcome) {
  outcome->samples.clear();
  outcome->scores.clear();
  outcome->row_sums.clear();
  const int64_t rows = work.arrays->logit_count();
  if (rows == 0) return absl::OkStatus();
  const Clock::time_point began = Clock::now();
  work.MakeMasks();  // what the model's pass enqueued is running
  link_time_ += Clock::now() - began;
  absl::Status status = sampler_->Run(model_->logits().Rows(rows), work.samples, work.scores,
                                      *stream_, &outcome->samples, &outcome->scores);
  if (status.ok()) status = ReadFinalRows(work, outcome);
  return status.ok() ? ReadRowSums(work, outcome) : status;
}

absl::Status StageRunner::ReadRowSums(const StepWork& work, StepOutcome* outcome) {
  const kernels::TensorView rows = model_->final_rows();
  int32_t sums = 0;
  for (const ScoreRequest& score : work.scores) sums = std::max(sums, score.sum);
  if (sums == 0 || rows.data == nullptr) return absl::OkStatus();
  const auto width = static_cast<size_t>(rows.RowElements());
  std::vector<float> values(work.scores.size() * width);
  absl::Status status =
      stream_->CopyToHost(values.data(), rows.Row<float>(std::ssize(work.samples)),
                          static_cast<int64_t>(values.size() * sizeof(float)));
  status.Update(stream_->Synchronize());
  std::vector<std::vector<double>> added(static_cast<size_t>(sums), std::vector<double>(width));
  for (size_t i = 0; i < work.scores.size(); ++i) {
    if (work.scores[i].sum == 0) continue;
    std::vector<double>& sum = added[work.scores[i].sum - 1];
    for (size_t x = 0; x < width; ++x) sum[x] += values[i * width + x];
  }
  for (const std::vector<double>& sum : added)
    outcome->row_sums.emplace_back(sum.begin(), sum.end());
  return status;
}

absl::Status StageRunner::ReadFinalRows(const StepWork& work, StepOutcome* outcome) {
  const kernels::TensorView rows = model_->final_rows();
  absl::Status status;
  for (size_t i = 0; i < work.samples.size(); ++i) {
    if (!work.samples[i].final_row || rows.data == nullptr) continue;
    std::vector<float>& values = outcome->samples[i].final_row;
    values.resize(static_cast<size_t>(rows.RowElements()));
    status.Update(stream_->CopyToHost(values.data(), rows.Row<float>(static_cast<int64_t>(i)),
                                      static_cast<int64_t>(values.size() * sizeof(float))));
  }
  status.Update(stream_->Synchronize());
  return status;
}

}  // namespace tessera::worker
