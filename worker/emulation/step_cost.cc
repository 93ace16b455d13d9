#include "worker/emulation/step_cost.h"

#include <vector>

namespace tessera::worker {

scheduler::StepWork WorkOf(const StepArrays& arrays) {
  scheduler::StepWork work;
  const auto starts = arrays.query_starts();
  const auto contexts = arrays.context_lengths();
  for (size_t i = 0; i < static_cast<size_t>(arrays.sequences()); ++i) {
    const double rows = starts[i + 1] - starts[i];
    const double computed = contexts[i] - rows;
    if (rows == 1) {
      work.decode_rows += 1;
      work.decode_context_tokens += computed;
    } else {
      work.prefill_tokens += rows;
      work.prefill_attention_pairs += rows * computed + rows * rows / 2;
      work.prefill_cached_tokens += computed;
    }
  }
  work.sampled_rows = static_cast<double>(arrays.logit_count());
  return work;
}

StepCost::Seconds StepCost::Of(const StepArrays& arrays, int stage) const {
  std::vector<scheduler::StageTime> times(static_cast<size_t>(stages()));
  table_->Step(WorkOf(arrays), times);
  const scheduler::StageTime& own = times[static_cast<size_t>(stage)];
  return {own.stage_seconds, own.hop_seconds};
}

}  // namespace tessera::worker
