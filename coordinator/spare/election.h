// Who of several coordinators leads.
//
//   spare -> leads      (nobody leads: it has created the leader's key, with a lease of its own)
//   leads -> leads      (its lease has ended, and nobody leads: it creates the key again)
//   leads -> deposed    (another one leads; for ever)
//
// The revision of the store at which the key came is the term. It excludes nobody by itself:
// workers obey the highest term that they have seen, and so only one coordinator changes them
// (proto/leader_term.h). Therefore a leader that does not reach the store leads on, and a spare may
// end the lease of one that is known to be gone: in the worst case workers follow the new one, and
// the old one is deposed.
//
// Thread rule: one thread. Time is an argument (monotonic seconds).
#pragma once

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

  uint64_t term() const { return term_; }  // of this one's; 0: it has never led
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
  // Another one's key; nothing: this one leads now, or may lead later.
  absl::StatusOr<std::optional<StoredValue>> LeadOrRead(double now_seconds);

  const ElectionOptions options_;
  LeaderStore& store_;
  Standing standing_ = Standing::kSpare;
  uint64_t term_ = 0;
  Lease lease_;
  double renewed_seconds_ = 0;
  std::string leader_, trouble_;
  int gone_looks_ = 0;
  uint64_t reached_term_ =
      0;  // of the last leader that was reached: one that starts is not yet there
};

}  // namespace tessera::coordinator
