#include "scheduler/planner/advice/link_prices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/planner/advice/described_links.h"
#include "scheduler/planner/advice/device_prices.h"
#include "scheduler/planner/planner.h"

namespace tessera::scheduler {
namespace {

constexpr double kLinkStep = 10e9 / 8;  // bytes per second: 10 Gbit/s
constexpr double kWorthSaying = 1e-4;   // of the value
constexpr double kRounding = 1e-9;      // of the value
constexpr int kMaxPricedLinks = 40;     // each costs one evaluation of the plan
constexpr int kMaxReplannedLinks = 8;

class LinkPricer {
 public:
  explicit LinkPricer(LinkQuestion question) : ask_(std::move(question)) {}

  std::vector<v1::LinkPrice> Run() {
    const std::vector<DescribedLink> links = LinksByLoad(ask_.plan, &ask_.input);
    if (ask_.plan.links().empty()) Add(&prices_).set_nothing_sent(true);
    for (const DescribedLink& one : links) {
      if (tried_ == kMaxPricedLinks) break;
      if (ask_.watch.Stopped()) break;
      Price(one);
    }
    TellOthers(static_cast<int>(links.size()));
    // Searches come last: who interrupts them has the rest.
    for (const DescribedLink& one : links) {
      if (!ask_.replan || replanned_ == kMaxReplannedLinks || ask_.watch.Stopped()) break;
      Replan(one);
    }
    TellReplanned(static_cast<int>(links.size()));
    return std::move(prices_);
  }

 private:
  v1::LinkPrice& Add(std::vector<v1::LinkPrice>* prices) const {
    v1::LinkPrice& price = prices->emplace_back();
    price.set_shared(ask_.shared);
    price.set_more_bytes_per_second(kLinkStep);
    return price;
  }

  v1::LinkGain& AddGain(const DescribedLink& one, double more, std::vector<v1::LinkPrice>* prices) {
    v1::LinkGain& gain = *Add(prices).mutable_gain();
    gain.set_link(one.name);
    gain.set_bytes_per_second(one.link->bandwidth_bytes_per_second());
    gain.set_value(more);
    gain.set_unit(ask_.unit);
    return gain;
  }

  void Price(const DescribedLink& one) {
    const double before = one.link->bandwidth_bytes_per_second();
    one.link->set_bandwidth_bytes_per_second(before + kLinkStep);
    const double more = ask_.judge(ask_.input) - ask_.now;
    one.link->set_bandwidth_bytes_per_second(before);
    ++tried_;
    if (more <= kWorthSaying * ask_.now) {
      ++worthless_;
      some_ = some_ || more > kRounding * ask_.now;
      return;
    }
    AddGain(one, more, &prices_);
  }

  void TellOthers(int links) {
    if (worthless_ == 0) return;
    v1::OtherLinks& others = *Add(&prices_).mutable_others();
    others.set_links(worthless_);
    others.set_tried(tried_);
    others.set_untried(links - tried_);
    others.set_inside_only(ask_.plan.links().empty());
    others.set_a_little(some_);
  }

  void Replan(const DescribedLink& one) {
    const double before = one.link->bandwidth_bytes_per_second();
    one.link->set_bandwidth_bytes_per_second(before + kLinkStep);
    const double more = ask_.replan(ask_.input) - ask_.now;
    one.link->set_bandwidth_bytes_per_second(before);
    if (ask_.watch.Stopped()) return;  // within the search
    ++replanned_;
    if (more <= kWorthSaying * ask_.now) {
      ++replanned_for_nothing_;
      return;
    }
    AddGain(one, more, &gains_).set_searched_again(true);
  }

  void TellReplanned(int links) {
    for (v1::LinkPrice& price : gains_) prices_.push_back(std::move(price));
    if (replanned_for_nothing_ == 0) return;
    v1::SearchedLinks& searched = *Add(&prices_).mutable_searched();
    searched.set_links(replanned_for_nothing_);
    searched.set_searched(replanned_);
    searched.set_of_links(links);
  }

  LinkQuestion ask_;  // with one link changed at a time
  std::vector<v1::LinkPrice> prices_;
  int tried_ = 0, worthless_ = 0, replanned_ = 0;
  bool some_ = false;                 // a worthless one brings a little
  std::vector<v1::LinkPrice> gains_;  // by planning again
  int replanned_for_nothing_ = 0;
};

}  // namespace

std::vector<v1::LinkPrice> LinkPrices(LinkQuestion question) {
  return LinkPricer(std::move(question)).Run();
}

void AddLinkPrices(const PlannerInput& input, const PlannerOptions& judging,
                   const PlannerOptions& options, bool search_again, v1::DeploymentPlan* plan) {
  const auto served = [](const PlannerOptions& by) {
    return [&by](const PlannerInput& changed) {
      const absl::StatusOr<v1::DeploymentPlan> with = MakePlan(changed, by);
      return with.ok() ? PromisedRate(*with) : 0;
    };
  };
  LinkQuestion question;
  question.input = input;
  question.plan = *plan;
  question.judge = served(judging);
  if (search_again) question.replan = served(options);
  question.now = PromisedRate(*plan);
  question.unit = PromisedUnit(*plan);
  question.watch = options.watch;
  for (v1::LinkPrice& price : LinkPrices(std::move(question)))
    *plan->add_link_prices() = std::move(price);
}

}  // namespace tessera::scheduler
