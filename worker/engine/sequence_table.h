// All open submissions of an engine and their sequences, by state; the only one that moves a
// sequence from one state to another.
//
// States: held -> waiting | arriving; waiting -> running; arriving -> joining, or waiting (its KV
// does not come: computed here); joining -> running; running -> waiting (preempted: it gives its
// blocks back and its tokens are computed again) or sent; every state -> ended.
//
// A submission is open until the last of its choices ended, and queued until the first of them
// started. Where the choice that computes a prompt for the others ends early, the next one takes
// over.
//
// Thread rule: one thread (the engine's). Ownership: owns the sequences; pointers to one are valid
// until it is moved to ended, or, where steps in flight compute rows of it, until DestroyEnded.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kvcache/block_pool.h"
#include "worker/engine/engine_admission.h"
#include "worker/engine/fair_turns.h"
#include "worker/engine/sequence.h"
#include "worker/engine/token_events.h"

namespace tessera::worker {

// Whether a sequence may go from one state to the other.
bool IsLegalMove(SequenceState from, SequenceState to);

class SequenceTable {
 public:
  using Sequences = std::vector<std::unique_ptr<Sequence>>;

  explicit SequenceTable(int lanes) : running_(lanes), ended_(lanes) {}

  // The transition. `lane`: the one that runs it from now on; only for running.
  void Move(Sequence* sequence, SequenceState to, int lane = -1);
  // Tells the listener of a sequence why it ends, and moves it to ended.
  void End(Sequence* sequence, const absl::Status& status, TokenEvents* events);
  // Destroys the ended sequences of `lane` for which no step is in flight any more.
  void DestroyEnded(int lane);
  // Moves all running sequences to lane 0. No step is in flight.
  void MergeLanes();

  // Opens a submission that passed CheckSubmit. Its choices are held, the first at the back of
  // `held`; their blocks will come from `pools`.
  std::shared_ptr<Submission> Open(v1::Submit submit, const EngineOptions& options,
                                   double now_seconds, const KvPools& pools);
  // The open submission of that id, or null.
  std::shared_ptr<Submission> Find(uint64_t submission_id) const;
  // The same, of that attempt only.
  std::shared_ptr<Submission> Find(const KvKey& key) const;
  // Any open submission; null: there is none.
  std::shared_ptr<Submission> Any() const;
  // The first choice of `submission` has started: it leaves the queue.
  void Start(Submission* submission);
  // Queued submissions whose deadline has passed.
  std::vector<std::shared_ptr<Submission>> Overdue(double now_seconds);
  // The other choices find the prompt's blocks from now on.
  void ReleaseHeld(Submission* submission);

  // By rank.
  const std::map<SequenceRank, std::unique_ptr<Sequence>>& waiting() const { return waiting_; }
  std::span<const std::unique_ptr<Sequence>> running(int lane) const { return running_[lane]; }
  int lanes() const { return static_cast<int>(running_.size()); }
  // The next one for a lane to take; null: there is none.
  Sequence* NextJoining() const { return joining_.empty() ? nullptr : joining_.front().get(); }
  // Its sequences that have not ended: those that wait, move, run, and are held last.
  std::vector<Sequence*> Of(const Submission& submission) const;
  // The choice of that rank; null: it ended.
  Sequence* Find(const Submission& submission, const SequenceRank& rank) const;
  // Whether `sequence`, which may be dangling, runs in `lane`.
  bool Runs(int lane, const Sequence* sequence) const;

  int64_t queued_submissions() const { return queued_submissions_; }
  int64_t running_count() const;  // those that join included
  int64_t open_choices() const;   // that have not ended, held ones included
  // Whether there is something to run, now or when a step comes back.
  bool HasWork() const;

  // Something happened that may let a lane go on which could not before. Set by a sequence that
  // ends or joins, and by whoever gives blocks back.
  bool changed() const { return changed_; }
  void set_changed(bool changed) { changed_ = changed; }

 private:
  static std::unique_ptr<Sequence> TakeFrom(Sequences* sequences, const Sequence* sequence);
  std::unique_ptr<Sequence> Take(Sequence* sequence);
  void Put(std::unique_ptr<Sequence> sequence);
  void CloseChoice(Submission* submission);
  void LeaveQueue(const Submission& submission);

  std::map<SequenceRank, std::unique_ptr<Sequence>> waiting_;
  Sequences arriving_;
  Sequences joining_;               // in the order of their arrival
  std::vector<Sequences> running_;  // by lane, each by rank
  Sequences sent_;
  std::vector<Sequences> ended_;                                           // by lane
  std::unordered_map<uint64_t, std::shared_ptr<Submission>> submissions_;  // open ones, by id
  uint64_t arrivals_ = 0;
  int64_t queued_submissions_ = 0;
  FairTurns turns_;  // of the queued submissions
  double next_deadline_seconds_ = std::numeric_limits<double>::infinity();
  bool changed_ = false;
};

}  // namespace tessera::worker
