#include "scheduler/simulator/dispatcher.h"

#include <algorithm>
#include <utility>

#include "scheduler/pair_router.h"

namespace tessera::scheduler {
namespace {

RouteRequest AskedOf(const SimulatedRequest& request) {
  return {.prompt_tokens = request.prompt_tokens,
          .expected_output_tokens = request.asked_tokens(),
          .alone = request.attempts > 0 || request.asked_tokens() == 1,
          .begun = request.emitted_tokens > 0};
}

class RouterDispatcher : public Dispatcher {
 public:
  Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& request,
               double /*now*/) override {
    return ChooseReplica(loads, AskedOf(request));
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
    const Route route = ChoosePair(loads, pairs_, AskedOf(request));
    NoteRouted(route.pair, pairs_);
    return route;
  }

 private:
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
    pairs_.clear();
    if (next_ == 0) return;
    for (const PairShare& pair : schedule_[next_ - 1].shares) {
      pairs_.push_back({.prefill = pair.prefill,
                        .decode = pair.decode,
                        .share = pair.share,
                        .kv_seconds_per_token = pair.kv_seconds_per_token,
                        .layers = pair.layers});
    }
  }

  std::vector<SharesSince> schedule_;  // by time
  size_t next_ = 0;                    // that does not hold yet
  std::vector<PairLoad> pairs_;        // of the shares that hold
  std::vector<bool> ready_;            // when last asked
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
