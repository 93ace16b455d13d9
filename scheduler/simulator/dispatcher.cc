#include "scheduler/simulator/dispatcher.h"

#include <algorithm>
#include <utility>

#include "scheduler/routing_shares.h"

namespace tessera::scheduler {
namespace {

class RouterDispatcher : public Dispatcher {
 public:
  Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& request,
               double /*now*/) override {
    return ChooseReplica(loads, {request.prompt_tokens, request.asked_tokens()});
  }
};

class PlanDispatcher : public Dispatcher {
 public:
  explicit PlanDispatcher(std::vector<SharesSince> shares) : schedule_(std::move(shares)) {
    std::stable_sort(schedule_.begin(), schedule_.end(),
                     [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  }

  Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& request,
               double now) override {
    Update(loads, now);
    allowed_.assign(loads.begin(), loads.end());
    const RouteRequest asked = {request.prompt_tokens, request.asked_tokens()};
    if (hold_) RestrictToShares(ShareSide::kPrefill, prefill_.shares, prefill_.counts, allowed_);
    Route route = ChooseReplica(allowed_, asked);
    if (!hold_ || route.prefill_replica < 0) return route;
    const auto prefill = static_cast<size_t>(route.prefill_replica);
    NoteRouted(prefill, prefill_.counts);
    if (route.decode_replica == route.prefill_replica) return route;
    // Its KV goes where the plan has a way for it.
    for (size_t i = 0; i < allowed_.size(); ++i)
      allowed_[i].ready = allowed_[i].ready && (i == prefill || !allowed_[i].can_prefill);
    Side& partners = partners_[prefill];
    RestrictToShares(ShareSide::kDecodeOnly, partners.shares, partners.counts, allowed_);
    route = ChooseReplica(allowed_, asked);
    NoteRouted(static_cast<size_t>(route.decode_replica), partners.counts);
    return route;
  }

 private:
  struct Side {
    std::vector<double> shares, counts;  // by replica
  };

  void Update(std::span<const ReplicaLoad> loads, double now) {
    bool anew = loads.size() != ready_.size();
    ready_.resize(loads.size(), false);
    for (size_t i = 0; i < loads.size(); ++i) {
      anew |= loads[i].ready && !ready_[i];
      ready_[i] = loads[i].ready;
    }
    while (next_ < schedule_.size() && schedule_[next_].seconds <= now) {
      ++next_;
      anew = true;
    }
    if (!anew) return;
    const std::vector<PairShare> none;
    const std::vector<PairShare>& pairs = next_ == 0 ? none : schedule_[next_ - 1].shares;
    hold_ = !pairs.empty();
    const std::vector<double> nothing(loads.size(), 0);
    prefill_ = {nothing, nothing};
    partners_.assign(loads.size(), prefill_);
    for (const PairShare& pair : pairs) {
      const auto prefill = static_cast<size_t>(pair.prefill);
      prefill_.shares[prefill] += pair.share;
      partners_[prefill].shares[static_cast<size_t>(pair.decode)] += pair.share;
    }
  }

  std::vector<SharesSince> schedule_;  // by time
  size_t next_ = 0;                    // that does not hold yet
  bool hold_ = false;                  // there are shares
  Side prefill_;
  std::vector<Side> partners_;  // by prefilling replica: those that decode what it computed
  std::vector<bool> ready_;     // when last asked
  std::vector<ReplicaLoad> allowed_;
};

class RoundRobinDispatcher : public Dispatcher {
 public:
  Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& /*request*/,
               double /*now*/) override {
    Route route;
    route.prefill_replica =
        Next(loads, &last_prefill_, [](const ReplicaLoad& l) { return l.can_prefill; });
    if (route.prefill_replica < 0) return {};
    const bool both = loads[static_cast<size_t>(route.prefill_replica)].can_decode;
    route.decode_replica =
        both ? route.prefill_replica : Next(loads, &last_decode_, [](const ReplicaLoad& l) {
          return l.can_decode && !l.can_prefill;
        });
    return route.decode_replica < 0 ? Route() : route;
  }

 private:
  template <typename Fits>
  static int Next(std::span<const ReplicaLoad> loads, size_t* last, const Fits& fits) {
    for (size_t i = 1; i <= loads.size(); ++i) {
      const size_t at = (*last + i) % loads.size();
      if (!loads[at].ready || !fits(loads[at])) continue;
      *last = at;
      return static_cast<int>(at);
    }
    return -1;
  }
  size_t last_prefill_ = static_cast<size_t>(-1), last_decode_ = static_cast<size_t>(-1);
};

class SharesDispatcher : public Dispatcher {
 public:
  explicit SharesDispatcher(std::vector<PairShare> shares)
      : shares_(std::move(shares)), credit_(shares_.size(), 0) {}

  Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& /*request*/,
               double /*now*/) override {
    double sum = 0;
    int best = -1;
    for (size_t i = 0; i < shares_.size(); ++i) {
      const PairShare& pair = shares_[i];
      if (!loads[static_cast<size_t>(pair.prefill)].ready ||
          !loads[static_cast<size_t>(pair.decode)].ready) {
        continue;
      }
      sum += pair.share;
      credit_[i] += pair.share;
      if (best < 0 || credit_[i] > credit_[static_cast<size_t>(best)]) best = static_cast<int>(i);
    }
    if (best < 0 || sum <= 0) return {};
    credit_[static_cast<size_t>(best)] -= sum;
    const PairShare& pair = shares_[static_cast<size_t>(best)];
    return {pair.prefill, pair.decode, 0};
  }

 private:
  const std::vector<PairShare> shares_;
  std::vector<double> credit_;  // smooth weighted round-robin
};

}  // namespace

std::unique_ptr<Dispatcher> MakeRouterDispatcher() { return std::make_unique<RouterDispatcher>(); }
std::unique_ptr<Dispatcher> MakePlanDispatcher(std::vector<SharesSince> shares) {
  return std::make_unique<PlanDispatcher>(std::move(shares));
}
std::unique_ptr<Dispatcher> MakeRoundRobinDispatcher() {
  return std::make_unique<RoundRobinDispatcher>();
}
std::unique_ptr<Dispatcher> MakeSharesDispatcher(std::vector<PairShare> shares) {
  return std::make_unique<SharesDispatcher>(std::move(shares));
}

}  // namespace tessera::scheduler
