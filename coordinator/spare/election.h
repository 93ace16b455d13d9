// Who of several coordinators leads.
//
//   spare -> leads      (nobody leads: it has created the leader's key, with a lease of its own;
//                        a store that has lost what it had is first left to the leader, for a
//                        lease)
//   leads -> leads      (its lease has ended, and nobody leads: it creates the key again)
//   leads -> deposed    (another one leads; for ever)
//
// The revision of the store at which the key came is the term, unless the store has lost what it
// had: then it is above every term that this one has heard of. It excludes nobody by itself:
// workers obey the highest term that they have seen, and so only one coordinator changes them
// (proto/leader_term.h). Therefore a leader that does not reach the store leads on, and a spare may
// end the lease of one that is known to be gone: in the worst case workers follow the new one, and
// the old one is deposed. One that workers put behind another term asks the store: where its lease
// lives its term rises, and where the store is silent for a lease it is deposed.
//
// Thread rule: one thread. Time is an argument (monotonic seconds).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/spare/leader_store.h"

namespace tessera::coordinator {

struct ElectionOptions {
  std::string key;
  std::string value;         // of the key while this one leads: how others find it
  double lease_seconds = 5;  // after which a leader that is not heard of is replaced
  // Whether the process that has written this value is known to be gone. Blocks for a bounded time.
  std::function<bool(const std::string& value)> is_gone;
};

class Election {
 public:
  enum class Standing { kSpare, kLeads, kDeposed };

  Election(ElectionOptions options, LeaderStore& store)
      : options_(std::move(options)), store_(store) {}

  // A few times a second.
  Standing Step(double now_seconds);
  // Ends this one's lease, so that another one leads at once.
  void Resign();

  // A worker obeys a leader of this term.
  void HearTerm(uint64_t term) { heard_term_ = std::max(heard_term_, term); }

  // A leader before had this term; for one that has just begun to lead.
  void RiseAbove(uint64_t term) { term_ = std::max(term_, term + 1); }

  uint64_t term() const { return term_; }  // of this one's; 0: it has never led
  // Revision of the store at which this one's key came, which guards its writes; 0 as for term().
  uint64_t created() const { return created_; }
  // The address of whoever leads; empty: not known.
  const std::string& leader() const { return leader_; }
  // Why the store was not of use last; empty: it was.
  const std::string& trouble() const { return trouble_; }

 private:
  // A leader is looked for so often before it counts as gone.
  static constexpr int kGoneLooks = 2;

  absl::Status Follow(double now_seconds);
  absl::Status Lead(double now_seconds);
  absl::Status Campaign(double now_seconds);
  void TakeLead(uint64_t created, double now_seconds);
  // Whether the store has lost what it had so lately that its leader may not know yet.
  bool BeganAnew(double now_seconds);
  // Once it has asked the store: workers obey a higher term.
  void CheckRank(double now_seconds);
  // Another one's key; nothing: this one leads now, or may lead later.
  absl::StatusOr<std::optional<StoredValue>> LeadOrRead(double now_seconds);

  const ElectionOptions options_;
  LeaderStore& store_;
  Standing standing_ = Standing::kSpare;
  uint64_t term_ = 0, created_ = 0, heard_term_ = 0;
  Lease lease_;
  double renewed_seconds_ = 0;
  std::optional<double> outranked_seconds_;  // since when; nothing: it is not
  uint64_t revision_ = 0;                    // of the store
  std::optional<double> anew_seconds_;       // when it was seen to have lost what it had
  std::string leader_, trouble_;
  int gone_looks_ = 0;
  uint64_t reached_term_ =
      0;  // of the last leader that was reached: one that starts is not yet there
};

}  // namespace tessera::coordinator
