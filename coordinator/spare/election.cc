#include "coordinator/spare/election.h"

#include <utility>

namespace tessera::coordinator {

Election::Standing Election::Step(double now_seconds) {
  absl::Status done;
  if (standing_ == Standing::kSpare) done = Follow(now_seconds);
  // Twice within the lease may fail.
  const bool due = now_seconds >= renewed_seconds_ + lease_.seconds / 3;
  if (standing_ == Standing::kLeads && (due || heard_term_ > term_)) {
    done = Lead(now_seconds);
    CheckRank(now_seconds);
  }
  trouble_ = std::string(done.message());
  return standing_;
}

absl::StatusOr<std::optional<StoredValue>> Election::LeadOrRead(double now_seconds) {
  const auto found = store_.Read(options_.key);
  if (!found.ok()) return found.status();
  const auto leads = found->find(options_.key);
  const bool began_anew = BeganAnew(now_seconds);
  if (leads == found->end()) {
    if (began_anew && standing_ == Standing::kSpare) return std::nullopt;
    if (absl::Status s = Campaign(now_seconds); !s.ok()) return s;
    return std::nullopt;
  }
  // A call may be done although its answer was lost.
  if (!lease_.id.empty() && leads->second.lease == lease_.id) {
    TakeLead(leads->second.created, now_seconds);
    return std::nullopt;
  }
  leader_ = leads->second.value;
  return leads->second;
}

bool Election::BeganAnew(double now_seconds) {
  if (store_.revision() < revision_) anew_seconds_ = now_seconds;
  revision_ = store_.revision();
  return anew_seconds_.has_value() && now_seconds < *anew_seconds_ + options_.lease_seconds;
}

absl::Status Election::Follow(double now_seconds) {
  const auto other = LeadOrRead(now_seconds);
  if (!other.ok() || !other->has_value()) return other.status();
  const StoredValue& leader = **other;
  const bool gone = options_.is_gone(leader.value);
  if (!gone) reached_term_ = leader.created;
  // A leader that no look has reached yet may not listen yet: its lease says when it is gone.
  gone_looks_ = gone && reached_term_ == leader.created ? gone_looks_ + 1 : 0;
  if (gone_looks_ < kGoneLooks) return absl::OkStatus();
  gone_looks_ = 0;
  if (absl::Status ended = store_.Revoke(leader.lease); !ended.ok()) return ended;
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
  created_ = created;
  term_ = std::max(created, std::max(term_, heard_term_) + 1);
  leader_ = options_.value;
  standing_ = Standing::kLeads;
}

absl::Status Election::Lead(double now_seconds) {
  const auto lives = store_.Renew(lease_.id);
  if (!lives.ok()) return lives.status();
  if (*lives) {
    renewed_seconds_ = now_seconds;
    if (heard_term_ > term_) term_ = heard_term_ + 1;
    return absl::OkStatus();
  }
  const auto other = LeadOrRead(now_seconds);
  if (!other.ok()) return other.status();
  if (other->has_value()) standing_ = Standing::kDeposed;
  return absl::OkStatus();
}

void Election::CheckRank(double now_seconds) {
  if (standing_ != Standing::kLeads || heard_term_ <= term_) {
    outranked_seconds_.reset();
    return;
  }
  if (!outranked_seconds_.has_value()) outranked_seconds_ = now_seconds;
  if (now_seconds < *outranked_seconds_ + lease_.seconds) return;
  standing_ = Standing::kDeposed;
  leader_.clear();
}

void Election::Resign() {
  if (standing_ == Standing::kLeads) trouble_ = std::string(store_.Revoke(lease_.id).message());
  standing_ = Standing::kDeposed;
}

}  // namespace tessera::coordinator
