#include "scheduler/simulator/dispatcher.h"

#include <utility>

namespace tessera::scheduler {
namespace {

class RouterDispatcher : public Dispatcher {
 public:
  Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& request,
               double /*now*/) override {
    return ChooseReplica(loads, {request.prompt_tokens, request.asked_tokens()});
  }
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
std::unique_ptr<Dispatcher> MakeRoundRobinDispatcher() {
  return std::make_unique<RoundRobinDispatcher>();
}
std::unique_ptr<Dispatcher> MakeSharesDispatcher(std::vector<PairShare> shares) {
  return std::make_unique<SharesDispatcher>(std::move(shares));
}

}  // namespace tessera::scheduler
