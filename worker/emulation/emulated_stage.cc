#include "worker/emulation/emulated_stage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/emulation/seeded_token.h"

namespace tessera::worker {
namespace {

// Layers are reported in so many groups at most: each costs a thread that wakes up.
constexpr int kMaxReports = 8;

v1::PositionLogprobs CertainOf(int32_t token_id) {
  v1::PositionLogprobs certain;
  certain.mutable_chosen()->set_token_id(token_id);
  certain.mutable_chosen()->set_rank(1);
  return certain;
}

}  // namespace

absl::Status EmulatedStage::Run(const StepWork& work, StepOutcome* outcome) {
  if (absl::Status status = TakeRows(); !status.ok()) return status;
  EmulatedClock& clock = *emulated_.clock;
  const StepCost::Seconds seconds = emulated_.cost->Of(*work.arrays, emulated_.stage);
  const double begin = clock.NowSeconds();
  const double took = seconds.stage / emulated_.speed;
  const bool pushes = options_.kv_sender != nullptr && !work.pushes.empty();
  if (pushes) options_.kv_sender->Begin(work.pushes, *work.arrays);
  if (emulated_.is_first || pushes) {
    Pass(work, begin, begin + took);
    if (emulated_.is_first && emulated_.lateness != nullptr)
      emulated_.lateness->Note(took, clock.NowSeconds() - begin - took);
  }
  if (options_.busy_nanoseconds != nullptr) {
    options_.busy_nanoseconds->fetch_add(static_cast<int64_t>(1e9 * took),
                                         std::memory_order_relaxed);
  }
  if (absl::Status status = HandOn(seconds.hop / emulated_.speed); !status.ok()) return status;
  if (options_.samples) Answer(work, outcome);
  return absl::OkStatus();
}

absl::Status EmulatedStage::TakeRows() {
  if (links_.previous == nullptr) return absl::OkStatus();
  double there_seconds = 0;
  const auto received = links_.previous->Receive(
      static_cast<uint16_t>(FrameType::kActivations),
      absl::Span<std::byte>(reinterpret_cast<std::byte*>(&there_seconds), sizeof there_seconds),
      options_.wait_seconds);
  if (!received.ok()) return received.status();
  if (*received != sizeof there_seconds) {
    return absl::FailedPreconditionError(links_.previous->peer() +
                                         " sent rows to a worker that computes nothing");
  }
  emulated_.clock->SleepUntil(there_seconds);
  return absl::OkStatus();
}

absl::Status EmulatedStage::HandOn(double hop_seconds) {
  if (!emulated_.is_first) return absl::OkStatus();
  hop_free_seconds_ = std::max(emulated_.clock->NowSeconds(), hop_free_seconds_) + hop_seconds;
  if (links_.next == nullptr) {  // token ids go back to the first stage
    if (hop_seconds > 0) emulated_.clock->SleepUntil(hop_free_seconds_);
    return absl::OkStatus();
  }
  return links_.next->Send(
      static_cast<uint16_t>(FrameType::kActivations),
      absl::Span<const std::byte>(reinterpret_cast<const std::byte*>(&hop_free_seconds_),
                                  sizeof hop_free_seconds_),
      options_.wait_seconds);
}

void EmulatedStage::Pass(const StepWork& work, double begin, double end) {
  const bool pushes = options_.kv_sender != nullptr && !work.pushes.empty();
  const int reports = pushes ? std::min(emulated_.layers, kMaxReports) : 0;
  for (int report = 0, layer = 0; report < reports; ++report) {
    emulated_.clock->SleepUntil(begin + (end - begin) * (report + 1) / reports);
    for (; layer < emulated_.layers * (report + 1) / reports; ++layer)
      options_.kv_sender->OnLayerWritten(layer);
  }
  emulated_.clock->SleepUntil(end);
}

void EmulatedStage::Answer(const StepWork& work, StepOutcome* outcome) const {
  outcome->samples.clear();
  outcome->scores.clear();
  outcome->row_sums.clear();
  work.MakeMasks();
  std::vector<float> row(static_cast<size_t>(std::max<int64_t>(1, emulated_.embedding_width)));
  row[0] = 1;
  for (const SampleRequest& request : work.samples) {
    SampleResult result;
    result.token_id = SeededToken(request, emulated_.vocabulary);
    if (request.top_logprobs >= 0 && result.token_id >= 0)
      result.logprobs = CertainOf(result.token_id);
    if (request.final_row) result.final_row = row;
    outcome->samples.push_back(std::move(result));
  }
  int32_t sums = 0;
  for (const ScoreRequest& request : work.scores) {
    outcome->scores.push_back(CertainOf(request.token_id));
    sums = std::max(sums, request.sum);
  }
  outcome->row_sums.assign(static_cast<size_t>(sums), row);
}

}  // namespace tessera::worker
