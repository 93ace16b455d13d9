#include "coordinator/spare/election.h"

#include <utility>

namespace tessera::coordinator {

Election::Standing Election::Step(double now_seconds) {
  absl::Status done;
  if (standing_ == Standing::kSpare) done = Follow(now_seconds);
  // Twice within the lease may fail.
  if (standing_ == Standing::kLeads && now_seconds >= renewed_seconds_ + lease_.seconds / 3)
    done = Lead(now_seconds);
  trouble_ = std::string(done.message());
  return standing_;
}

absl::Status Election::Follow(double now_seconds) {
  const auto found = store_.Read(options_.key);
  if (!found.ok()) return found.status();
  const auto leads = found->find(options_.key);
  if (leads == found->end()) return Campaign(now_seconds);
  if (IsOurs(leads->second)) {
    TakeLead(leads->second.created, now_seconds);
    return absl::OkStatus();
  }
  leader_ = leads->second.value;
  const bool gone = options_.is_gone(leader_);
  if (!gone) reached_term_ = leads->second.created;
  // A leader that no look has reached yet may not listen yet: its lease says when it is gone.
  gone_looks_ = gone && reached_term_ == leads->second.created ? gone_looks_ + 1 : 0;
  if (gone_looks_ < kGoneLooks) return absl::OkStatus();
  gone_looks_ = 0;
  if (absl::Status ended = store_.Revoke(leads->second.lease); !ended.ok()) return ended;
  return Campaign(now_seconds);
}

absl::Status Election::Campaign(double now_seconds) {
  auto lease = store_.Grant(options_.lease_seconds);
  if (!lease.ok()) return lease.status();
  lease_ = *std::move(lease);
  const auto created = store_.Create(options_.key, options_.value, lease_.id);
  if (!created.ok()) return created.status();
  // Another one was faster.
  if (*created == 0) return store_.Revoke(lease_.id);
  TakeLead(*created, now_seconds);
  return absl::OkStatus();
}

void Election::TakeLead(uint64_t created, double now_seconds) {
  renewed_seconds_ = now_seconds;
  term_ = created;
  leader_ = options_.value;
  standing_ = Standing::kLeads;
}

absl::Status Election::Lead(double now_seconds) {
  const auto lives = store_.Renew(lease_.id);
  if (!lives.ok()) return lives.status();
  if (*lives) {
    renewed_seconds_ = now_seconds;
    return absl::OkStatus();
  }
  const auto found = store_.Read(options_.key);
  if (!found.ok()) return found.status();
  const auto leads = found->find(options_.key);
  if (leads == found->end()) return Campaign(now_seconds);
  if (IsOurs(leads->second)) {
    TakeLead(leads->second.created, now_seconds);
    return absl::OkStatus();
  }
  leader_ = leads->second.value;
  standing_ = Standing::kDeposed;
  return absl::OkStatus();
}

void Election::Resign() {
  if (standing_ == Standing::kLeads) trouble_ = std::string(store_.Revoke(lease_.id).message());
  standing_ = Standing::kDeposed;
}

}  // namespace tessera::coordinator
