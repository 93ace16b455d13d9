#include "scheduler/cost/step_budget.h"

#include <algorithm>
#include <cmath>

namespace tessera::scheduler {
namespace {

// What longer chunks may add to the period.
constexpr double kTolerance = 0.01;
// Further sequences as a part of those that decode, for the unevenness of their coming and going.
constexpr double kMoreSequences = 0.25;

double Running(const ReplicaOptions& options, const ReplicaRate& rate) {
  return WithSeats(options, rate.seats).max_sequences;
}

}  // namespace

int64_t StepBudget(const ModelShape& model, const ReplicaSpec& replica,
                   const LengthMoments& lengths, const ReplicaOptions& options,
                   const ReplicaRate& rate) {
  const int64_t most = std::max<int64_t>(1, options.memory.max_step_tokens);
  if (replica.role == Role::kPrefill || lengths.decode_steps <= 0) return most;
  const StepWork steady =
      SteadyWork(replica.role, lengths, std::max(rate.decode_rows, 1.0), options);
  const DraftedStep drafted = DraftedStepOf(model, replica, steady, rate.micro_batches);
  const double b = drafted.work.decode_rows + drafted.work.draft_rows;
  const double prompts = rate.prefill_tokens * drafted.tokens;
  const auto least = std::min(most, static_cast<int64_t>(std::ceil(b + prompts - 1e-9)));
  // A receiver of KV computes no prompts but those it computes again.
  if (replica.role == Role::kDecode || rate.prefill_tokens <= 0) {
    return std::min(most, std::max(least, static_cast<int64_t>(Running(options, rate))));
  }
  const auto period = [&](int64_t rows) {
    StepWork work = drafted.work;
    work.may_draft = false;
    const double more = (static_cast<double>(rows) - b) / prompts;
    work.prefill_tokens *= more;
    work.prefill_attention_pairs *= more;
    work.prefill_cached_tokens *= std::max(1.0, more);
    return PeriodOf(model, replica, work, rate.micro_batches).seconds;
  };
  double allowed = (1 + kTolerance) * rate.period_seconds;
  allowed = drafted.tokens * std::min(allowed, options.max_tpot_seconds / rate.micro_batches);
  int64_t low = least, high = most;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (period(middle) <= allowed) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

int64_t SequenceBudget(const LengthMoments& lengths, const ReplicaOptions& options,
                       const ReplicaSpec& replica, const ReplicaRate& rate) {
  if (replica.role == Role::kPrefill || rate.decode_rows <= 0)
    return static_cast<int64_t>(Running(options, rate));
  // Prompts that begin and end in one step, where answers are short: one more of them runs for most
  // lengths.
  const double prompts = rate.prefill_tokens / std::max(1.0, lengths.uncached_prompt_tokens);
  const double rows = std::max(rate.decode_rows, 1.0) * (1 + rate.drafts);
  const double per_lane = (1 + kMoreSequences) * (rows + std::max(0.0, prompts - 1)) + 1;
  return static_cast<int64_t>(std::min(rate.seats, std::ceil(rate.micro_batches * per_lane)));
}

}  // namespace tessera::scheduler
