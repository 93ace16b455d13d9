#include "worker/drafts/drafter.h"

namespace tessera::worker {

void Drafter::Propose(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>* drafts) {
  drafts->clear();
  if (!gave_up() && most > 0) source_->Propose(tokens, most, drafts);
}

bool Drafter::MayProposeNext(std::span<const int32_t> tokens) {
  return !gave_up() && source_->MayProposeNext(tokens);
}

}  // namespace tessera::worker
