#include "worker/drafts/drafter.h"

namespace tessera::worker {
namespace {

// Where no draft pays: proposals are left out until the engine's number of steps is a multiple of
// kRest, which is one for all sequences, and each kProbe-th choice tries one draft.
constexpr int64_t kRest = 16, kProbe = 4;

}  // namespace

bool Drafter::IsResting() {
  if (GaveUp()) return true;
  if (rest_ == 0) return false;
  --rest_;
  return true;
}

void Drafter::Propose(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>* drafts) {
  drafts->clear();
  if (most > 0 && !IsResting()) source_->Propose(tokens, most, drafts);
}

bool Drafter::MayProposeNext(std::span<const int32_t> tokens) {
  return !IsResting() && source_->MayProposeNext(tokens);
}

int64_t Drafter::Choose(const DraftLengths& lengths, int64_t proposed, DraftedStep* step) {
  length_ = lengths.Choose(acceptance_, proposed, length_, step);
  if (length_ > 0) return length_;
  if (++unpaid_ % kProbe == 0) {
    ++step->rows;
    return 1;
  }
  rest_ = kRest - lengths.steps() % kRest;
  return 0;
}

void Drafter::Note(int64_t tried, int64_t accepted) {
  acceptance_.Note(tried, accepted);
  misses_ = accepted > 0 ? 0 : misses_ + 1;
}

}  // namespace tessera::worker
