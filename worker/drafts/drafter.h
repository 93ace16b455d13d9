// The drafts of one sequence: what its source proposes, as many of them as pay, until too many in
// a row are refused.
//
// Thread rule: one thread (the engine's). Ownership: owns the source.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/drafts/draft_lengths.h"
#include "worker/drafts/draft_source.h"

namespace tessera::worker {

class Drafter {
 public:
  // So many lists in a row of which no draft stood end the drafting.
  static constexpr int64_t kMaxMisses = 64;

  explicit Drafter(std::unique_ptr<DraftSource> source) : source_(std::move(source)) {}

  // As DraftSource has them; none where it gave up, or for a while where none paid.
  void Propose(std::span<const int32_t> tokens, int64_t most, std::vector<int32_t>* drafts);
  bool MayProposeNext(std::span<const int32_t> tokens);
  void Take(int64_t behind, std::vector<int32_t> drafts) {
    source_->Take(behind, std::move(drafts));
  }
  // Whether nothing is proposed any more.
  bool GaveUp() const { return misses_ >= kMaxMisses; }
  // How many drafts, `most` at most, are to be there for the next choice; 0: none, and none are
  // proposed until later. For sources to which proposing is dear: they are asked where some pay, by
  // what is known, and where one is tried now and then. Those that pay are added to `step`.
  int64_t WantNext(const DraftLengths& lengths, int64_t most, DraftedStep* step);
  // How many of `proposed` drafts, at least one, to try in `step`, to which they are added. Now and
  // then one where none pays, since that may have changed.
  int64_t Choose(const DraftLengths& lengths, int64_t proposed, DraftedStep* step);
  // Nothing that was proposed could stand, so that nothing is chosen: the try that was due is over.
  void NoteRefused(const DraftLengths& lengths);
  // A step tried a list, of which the first `accepted` drafts stood.
  void Note(int64_t tried, int64_t accepted);

 private:
  bool IsResting();
  // Whether a choice behind so many steps tries a draft though none pays.
  bool IsDue(int64_t steps) const;
  void Rest(const DraftLengths& lengths);

  const std::unique_ptr<DraftSource> source_;
  Acceptance acceptance_;
  int64_t misses_ = 0;           // in a row
  int64_t length_ = kMaxDrafts;  // chosen last
  int64_t due_ = -1;             // the engine's step from which IsDue; -1: none was unpaid yet
  bool probes_ = false;          // the last choice tried one though none paid
  int64_t rest_ = 0;             // proposals to leave out
};

}  // namespace tessera::worker
