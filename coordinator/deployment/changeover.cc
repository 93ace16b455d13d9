#include "coordinator/deployment/changeover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::coordinator {
namespace {

using Kind = scheduler::ReplicaChange::Kind;

v1::ReplicaChangeKind ToProto(Kind kind) {
  switch (kind) {
    case Kind::kKeep: return v1::REPLICA_CHANGE_KIND_KEEP;
    case Kind::kFlip: return v1::REPLICA_CHANGE_KIND_FLIP;
    case Kind::kRebuild: return v1::REPLICA_CHANGE_KIND_REBUILD;
    case Kind::kDrop: return v1::REPLICA_CHANGE_KIND_DROP;
  }
  return v1::REPLICA_CHANGE_KIND_UNSPECIFIED;
}

double ValueOr0(const std::map<std::string, double>& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? 0 : found->second;
}

}  // namespace

Changeover::Changeover(PlanSet from, PlanSet to, bool on_trial, const ChangeoverLimits& limits,
                       double now_seconds)
    : from_(std::move(from)),
      to_(std::move(to)),
      on_trial_(on_trial),
      limits_(limits),
      changes_(ChangesOf(from_, to_)),
      phase_(on_trial ? Phase::kDraining : Phase::kAtOnce),
      phase_began_seconds_(now_seconds) {
  for (const scheduler::PlanChange& change : changes_) {
    change_.replicas.insert(change_.replicas.end(), change.replicas.begin(), change.replicas.end());
    change_.routes |= change.routes;
  }
  for (const std::string& replica : scheduler::GoingReplicas(change_)) going_.insert(replica);
  for (const scheduler::ReplicaChange& replica : change_.replicas) {
    if (replica.kind == Kind::kFlip || replica.kind == Kind::kRebuild) coming_.insert(replica.to);
  }
}

bool Changeover::Retires(const std::string& replica) const {
  if (phase_ == Phase::kDraining) {
    return going_.contains(replica) && (!last_.contains(replica) || last_since_seconds_ >= 0);
  }
  return phase_ == Phase::kReturning && coming_.contains(replica);
}

Changeover::Orders Changeover::Advance(const Look& look, double now_seconds) {
  Orders orders;
  if (phase_ == Phase::kAtOnce) {
    phase_ = Phase::kOver;
    orders.in_force = &to_;
  }
  if (phase_ == Phase::kDraining) Drain(look, now_seconds, &orders);
  // What was put in force this moment has not begun yet.
  if (phase_ == Phase::kForming && (orders.in_force == nullptr || coming_.empty()))
    Form(look, now_seconds);
  if (phase_ == Phase::kReturning) Return(look, &orders);
  progress_ = Progress(look);
  orders.over = phase_ == Phase::kOver;
  return orders;
}

std::set<std::string> Changeover::ChooseLast(const Look& look) const {
  std::set<std::string> last;
  for (const scheduler::PlanChange& change : changes_) {
    bool one_stays = false;
    for (const scheduler::ReplicaChange& replica : change.replicas)
      one_stays |= replica.kind == Kind::kKeep && look(replica.to).serving;
    std::vector<std::string> serving;
    for (const std::string& replica : scheduler::GoingReplicas(change)) {
      if (look(replica).serving) serving.push_back(replica);
    }
    if (!one_stays && serving.size() > 1)
      last.insert(*std::min_element(serving.begin(), serving.end()));
  }
  return last;
}

bool Changeover::DrainOne(const std::string& replica, const Look& look, double since,
                          bool announced, double now, Orders* orders) {
  const View view = look(replica);
  if (!view.formed) {
    drained_seconds_.emplace(replica, now - since);
    return true;
  }
  // One without work may get some until it has heard that it retires.
  if ((announced && view.work == 0) || !view.serving || now - since >= limits_.drain_seconds) {
    drained_seconds_.emplace(replica, now - since);
    orders->end.push_back(replica);
  }
  return false;
}

void Changeover::Drain(const Look& look, double now, Orders* orders) {
  if (!announced_) last_ = ChooseLast(look);
  bool all_ended = true;
  for (const std::string& replica : going_) {
    if (last_.contains(replica)) continue;
    all_ended &= DrainOne(replica, look, phase_began_seconds_, announced_, now, orders);
  }
  announced_ = true;
  if (all_ended && !last_.empty()) {
    if (last_since_seconds_ < 0) last_since_seconds_ = now;
    for (const std::string& replica : last_)
      all_ended &= DrainOne(replica, look, last_since_seconds_, last_announced_, now, orders);
    last_announced_ = true;
  }
  if (!all_ended) return;
  phase_ = Phase::kForming;
  phase_began_seconds_ = now;
  orders->in_force = &to_;
  orders->forget = {going_.begin(), going_.end()};
}

void Changeover::Form(const Look& look, double now) {
  const double seconds = now - phase_began_seconds_;
  bool all_serve = true;
  for (const std::string& replica : coming_) {
    const View view = look(replica);
    if (view.serving) {
      ready_seconds_.emplace(replica, seconds);
      if (view.reads) read_.insert(replica);
      continue;
    }
    all_serve = false;
    if (!view.failure.empty()) {
      failure_ = absl::StrCat("replica ", replica, ": ", view.failure);
    } else if (seconds >= limits_.form_seconds) {
      failure_ =
          absl::StrCat("replica ", replica, " did not serve within ", limits_.form_seconds, " s");
    }
  }
  if (all_serve) phase_ = Phase::kOver;
  if (!failure_.empty()) phase_ = Phase::kReturning;
}

void Changeover::Return(const Look& look, Orders* orders) {
  for (const std::string& replica : coming_) {
    if (look(replica).formed) orders->end.push_back(replica);
  }
  if (!orders->end.empty()) return;
  phase_ = Phase::kOver;
  orders->in_force = &from_;
  orders->forget = {coming_.begin(), coming_.end()};
}

std::string Changeover::Progress(const Look& look) const {
  if (phase_ == Phase::kOver) return "";
  std::vector<std::string> names;
  if (phase_ == Phase::kDraining) {
    for (const std::string& replica : going_) {
      const View view = look(replica);
      if (!view.formed || !Retires(replica)) continue;
      names.push_back(
          absl::StrCat(replica, " (", view.work, view.work == 1 ? " request)" : " requests)"));
    }
    return absl::StrCat("draining ", absl::StrJoin(names, ", "));
  }
  for (const std::string& replica : coming_) {
    if (!look(replica).serving) names.push_back(replica);
  }
  if (phase_ == Phase::kForming) return absl::StrCat("forming ", absl::StrJoin(names, ", "));
  return absl::StrCat("going back: ", failure_);
}

absl::StatusOr<v1::ApplyPlanReply> Changeover::result() const {
  if (!failure_.empty()) {
    return absl::AbortedError(
        absl::StrCat("the plan did not come up, and the one before is in force again: ", failure_));
  }
  v1::ApplyPlanReply reply;
  for (const scheduler::ReplicaChange& change : change_.replicas) {
    v1::AppliedReplica& replica = *reply.add_replicas();
    replica.set_name(change.to.empty() ? change.from : change.to);
    replica.set_was(change.from);
    replica.set_change(ToProto(change.kind));
    replica.set_drain_seconds(ValueOr0(drained_seconds_, change.from));
    replica.set_ready_seconds(ValueOr0(ready_seconds_, change.to));
    replica.set_read_weights(read_.contains(change.to));
  }
  reply.set_routes(change_.routes);
  return reply;
}

std::string Describe(const scheduler::PlanChange& change) {
  std::map<Kind, int> counts;
  for (const scheduler::ReplicaChange& replica : change.replicas) ++counts[replica.kind];
  std::vector<std::string> parts;
  for (const auto& [kind, count] : counts) {
    const char* const words[] = {"kept", "flipped", "rebuilt", "dropped"};
    parts.push_back(absl::StrCat(count, " ", words[static_cast<int>(kind)]));
  }
  return absl::StrCat("replicas: ", parts.empty() ? "none" : absl::StrJoin(parts, ", "),
                      change.routes ? "; routes change" : "");
}

}  // namespace tessera::coordinator
