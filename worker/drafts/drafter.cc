#include "worker/drafts/drafter.h"

#include <algorithm>

namespace tessera::worker {
namespace {

// Where no draft pays: proposals are left out until the engine's number of steps is a multiple of
// kRest, and one draft is tried behind each multiple of kProbe, which are the same steps for all
// sequences.
constexpr int64_t kRest = 16, kProbe = 64;

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

bool Drafter::IsDue(int64_t steps) const { return due_ >= 0 && steps >= due_; }

void Drafter::Rest(const DraftLengths& lengths) {
  if (due_ < 0) due_ = (lengths.steps() / kProbe + 1) * kProbe;
  rest_ = kRest - lengths.steps() % kRest;
}

int64_t Drafter::Choose(const DraftLengths& lengths, int64_t proposed, DraftedStep* step) {
  length_ = lengths.Choose(acceptance_, proposed, length_, step);
  probes_ = length_ == 0 && IsDue(lengths.steps());
  if (length_ > 0) return length_;
  if (!probes_) {
    Rest(lengths);
    return 0;
  }
  due_ = (lengths.steps() / kProbe + 1) * kProbe;
  ++step->rows;
  return 1;
}

void Drafter::NoteRefused(const DraftLengths& lengths) {
  probes_ = false;
  if (IsDue(lengths.steps())) due_ = (lengths.steps() / kProbe + 1) * kProbe;
}

int64_t Drafter::WantNext(const DraftLengths& lengths, int64_t most, DraftedStep* step) {
  if (GaveUp() || rest_ > 0) return 0;
  const int64_t pays = lengths.Choose(acceptance_, most, length_, step);
  if (pays > 0) return std::min(most, DraftLengths::Longer(pays));
  // The choice behind one that is tried knows whether it stood.
  if (probes_ || IsDue(lengths.steps() + 1)) return 1;
  Rest(lengths);
  return 0;
}

void Drafter::Note(int64_t tried, int64_t accepted) {
  acceptance_.Note(tried, accepted);
  misses_ = accepted > 0 ? 0 : misses_ + 1;
}

}  // namespace tessera::worker
