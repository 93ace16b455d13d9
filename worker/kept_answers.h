// What a leader keeps of answers whose streams may break, so that another session can go on with
// them (FindKept): each submission with an owner and one choice, and the tokens that went out.
//
// An answer is kept while it is computed, and a minute longer: from its end, its cancelling or the
// end of its session on. The worker computes no more of it by then. Beyond the limits, those that
// ended first go first, then the oldest that run. A later submission of one id and owner replaces
// the one before.
//
// Thread rule: thread-safe. The clock is called by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

struct KeptAnswersLimits {
  double seconds = 60;         // that an answer is kept behind its end
  size_t answers = 16384;      // those that run included
  size_t bytes = 256ul << 20;  // of their submissions and tokens
};

class KeptAnswers {
 public:
  explicit KeptAnswers(std::function<double()> clock_seconds, KeptAnswersLimits limits = {})
      : clock_seconds_(std::move(clock_seconds)), limits_(limits) {}

  // `session` tells the sessions of this worker apart; nothing is read there.
  void NoteSubmit(const void* session, const v1::Submit& submit);
  void NoteCancel(const void* session, const v1::Cancel& cancel);
  void NoteReply(const void* session, const v1::SessionReply& reply);
  void NoteEnd(const void* session);

  // Drops what has been kept long enough, also where nothing else is asked of the worker.
  void DropOld();
  // NOT_FOUND: none of that id and owner is kept.
  absl::StatusOr<v1::KeptAnswer> Find(const v1::FindKeptRequest& request);

 private:
  struct Answer {
    std::string name;  // of owner and id
    const void* session = nullptr;
    v1::KeptAnswer kept;
    size_t bytes = 0;
    double until_seconds = 0;  // of those that ended
  };
  using Answers = std::list<Answer>;

  static std::string NameOf(const std::string& owner, const std::string& request_id);
  // All with mutex_ held.
  Answer* Running(const void* session, uint64_t submission_id, uint32_t attempt);
  void End(uint64_t submission_id);
  void Drop(Answers& from, Answers::iterator answer);
  void DropExpired();
  void KeepLimits();

  const std::function<double()> clock_seconds_;
  const KeptAnswersLimits limits_;

  std::mutex mutex_;
  Answers running_;  // by their submission
  Answers ended_;    // by their end
  std::unordered_map<std::string, Answers::iterator> by_name_;
  std::unordered_map<uint64_t, Answers::iterator> by_submission_;  // those that run
  size_t bytes_ = 0;
};

}  // namespace tessera::worker
