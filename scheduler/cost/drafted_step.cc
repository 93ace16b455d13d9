#include "scheduler/cost/drafted_step.h"

namespace tessera::scheduler {

double TokensWithDrafts(double acceptance, int drafts) {
  double tokens = 1, all_stand = 1;
  for (int i = 0; i < drafts; ++i) tokens += all_stand *= acceptance;
  return tokens;
}

StepWork WithDrafts(const ModelShape& model, const StepWork& plain, int drafts) {
  const double tokens = TokensWithDrafts(model.drafts.acceptance, drafts);
  const double again = model.keeps_states() ? tokens - 1 : 0;
  StepWork work = plain;
  work.draft_rows = plain.decode_rows * (drafts + again);
  work.draft_passes = drafts;
  work.prefill_tokens *= tokens;
  work.prefill_attention_pairs *= tokens;
  work.prefill_cached_tokens *= tokens;
  work.sampled_rows =
      plain.decode_rows * (1 + drafts) + (plain.sampled_rows - plain.decode_rows) * tokens;
  return work;
}

}  // namespace tessera::scheduler
