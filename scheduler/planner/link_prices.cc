#include "scheduler/planner/link_prices.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/planner/described_links.h"
#include "scheduler/planner/device_prices.h"
#include "scheduler/planner/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kLinkStep = 10e9 / 8;  // bytes per second: 10 Gbit/s
constexpr double kWorthSaying = 1e-4;   // of the value
constexpr double kRounding = 1e-9;      // of the value
constexpr size_t kMostLinks = 40;       // that are tried one by one
constexpr size_t kMostReplannedLinks = 8;

class LinkPricer {
 public:
  LinkPricer(const PlannerInput& input, const PlannerOptions& judging,
             const PlannerOptions& options, bool search_again, v1::DeploymentPlan* plan)
      : input_(input),
        judging_(judging),
        options_(options),
        search_again_(search_again),
        plan_(*plan),
        now_(PromisedRate(*plan)) {}

  void Run() {
    const std::vector<DescribedLink> links = LinksByLoad(plan_, &input_);
    if (plan_.links().empty()) {
      plan_.add_link_prices(
          "nothing is sent between machines: more bandwidth there brings nothing");
    }
    for (const DescribedLink& one : links) {
      if (tried_ == kMostLinks) break;
      if (options_.watch.Stopped()) return;
      Price(one);
    }
    TellOthers(links.size());
    TellReplanned(links.size());
  }

 private:
  void Price(const DescribedLink& one) {
    const double before = one.link->bandwidth_bytes_per_second();
    one.link->set_bandwidth_bytes_per_second(before + kLinkStep);
    const absl::StatusOr<v1::DeploymentPlan> with = MakePlan(input_, judging_);
    if (search_again_ && tried_ < kMostReplannedLinks) Replan(one.name);
    one.link->set_bandwidth_bytes_per_second(before);
    ++tried_;
    const double more = with.ok() ? PromisedRate(*with) - now_ : 0;
    if (more <= kWorthSaying * now_) {
      ++worthless_;
      some_ = some_ || more > kRounding * now_;
      return;
    }
    plan_.add_link_prices(
        absl::StrFormat("10 Gbit/s more on %s (now %s) would bring this layout %.3f %s", one.name,
                        GbitText(before), more, PromisedUnit(plan_)));
  }

  void TellOthers(size_t links) {
    if (worthless_ == 0) return;
    const size_t untried = links - tried_;
    const std::string which =
        worthless_ == 1 && tried_ > 1 ? "the one other link"
        : worthless_ < tried_ || untried > 0
            ? StrCat("any of ", worthless_ < tried_ ? "the other " : "the ", worthless_, " links",
                     untried > 0 ? StrCat(" tried, the fullest (", untried, " were not tried)")
                                 : std::string())
        : plan_.links().empty() ? "links inside machines"
                                : "any link that it uses or the description gives";
    plan_.add_link_prices(StrCat("10 Gbit/s more on ", which, " would bring this layout ",
                                 some_ ? "next to nothing, less than 0.01 %" : "nothing"));
  }

  void Replan(const std::string& link) {
    const absl::StatusOr<v1::DeploymentPlan> best = MakePlan(input_, options_);
    const double more = best.ok() ? PromisedRate(*best) - now_ : 0;
    if (more <= kWorthSaying * now_) {
      ++replanned_for_nothing_;
      return;
    }
    gains_.push_back(absl::StrFormat("10 Gbit/s more on %s bring %.3f %s (planned again)", link,
                                     more, PromisedUnit(plan_)));
  }

  void TellReplanned(size_t links) {
    for (std::string& line : gains_) plan_.add_link_prices(std::move(line));
    if (replanned_for_nothing_ == 0) return;
    const size_t replanned = std::min(tried_, kMostReplannedLinks);
    plan_.add_link_prices(
        gains_.empty()
            ? StrCat("nor would another layout serve more with 10 Gbit/s more on one ",
                     replanned < links ? StrCat("of the ", replanned, " fullest links") : "link",
                     " (planned again)")
            : StrCat("of ", replanned_for_nothing_,
                     replanned_for_nothing_ == 1 ? " other link" : " other links",
                     " 10 Gbit/s more bring nothing (planned again)"));
  }

  PlannerInput input_;  // with one link changed at a time
  const PlannerOptions& judging_;
  const PlannerOptions& options_;
  const bool search_again_;
  v1::DeploymentPlan& plan_;
  const double now_;
  size_t tried_ = 0, worthless_ = 0;
  bool some_ = false;               // a worthless one brings a little
  std::vector<std::string> gains_;  // what planning again says
  size_t replanned_for_nothing_ = 0;
};

}  // namespace

void AddLinkPrices(const PlannerInput& input, const PlannerOptions& judging,
                   const PlannerOptions& options, bool search_again, v1::DeploymentPlan* plan) {
  LinkPricer(input, judging, options, search_again, plan).Run();
}

}  // namespace tessera::scheduler
