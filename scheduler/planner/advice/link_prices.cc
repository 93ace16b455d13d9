#include "scheduler/planner/advice/link_prices.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/planner/advice/described_links.h"
#include "scheduler/planner/advice/device_prices.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/plan_text.h"
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
  explicit LinkPricer(LinkQuestion question) : ask_(std::move(question)) {}

  std::vector<std::string> Run() {
    const std::vector<DescribedLink> links = LinksByLoad(ask_.plan, &ask_.input);
    if (ask_.plan.links().empty()) {
      lines_.emplace_back("nothing is sent between machines: more bandwidth there brings nothing");
    }
    for (const DescribedLink& one : links) {
      if (tried_ == kMostLinks) break;
      if (ask_.watch.Stopped()) break;
      Price(one);
    }
    TellOthers(links.size());
    // Searches come last: who interrupts them has the rest.
    for (const DescribedLink& one : links) {
      if (!ask_.replan || replanned_ == kMostReplannedLinks || ask_.watch.Stopped()) break;
      Replan(one);
    }
    TellReplanned(links.size());
    return std::move(lines_);
  }

 private:
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
    lines_.push_back(absl::StrFormat("10 Gbit/s more on %s (now %s) would bring %s %.3f %s",
                                     one.name, GbitText(before), ask_.layout, more, ask_.unit));
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
        : ask_.plan.links().empty() ? "links inside machines"
                                    : "any link that is used or described";
    lines_.push_back(StrCat("10 Gbit/s more on ", which, " would bring ", ask_.layout,
                            some_ ? " less than 0.01 %" : " nothing"));
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
    gains_.push_back(absl::StrFormat("10 Gbit/s more on %s bring %.3f %s (planned again)", one.name,
                                     more, ask_.unit));
  }

  void TellReplanned(size_t links) {
    for (std::string& line : gains_) lines_.push_back(std::move(line));
    if (replanned_for_nothing_ == 0) return;
    lines_.push_back(
        gains_.empty()
            ? StrCat("nor would another layout serve more with 10 Gbit/s more on one ",
                     replanned_ < links ? StrCat("of the ", replanned_, " fullest links") : "link",
                     " (planned again)")
            : StrCat("of ", replanned_for_nothing_,
                     replanned_for_nothing_ == 1 ? " other link" : " other links",
                     " 10 Gbit/s more bring nothing (planned again)"));
  }

  LinkQuestion ask_;  // with one link changed at a time
  std::vector<std::string> lines_;
  size_t tried_ = 0, worthless_ = 0, replanned_ = 0;
  bool some_ = false;               // a worthless one brings a little
  std::vector<std::string> gains_;  // what planning again says
  size_t replanned_for_nothing_ = 0;
};

}  // namespace

std::vector<std::string> LinkPriceLines(LinkQuestion question) {
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
  question.layout = "this layout";
  question.watch = options.watch;
  for (std::string& line : LinkPriceLines(std::move(question)))
    plan->add_link_prices(std::move(line));
}

}  // namespace tessera::scheduler
