#include "scheduler/planner/report/bound_text.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "scheduler/planner/report/pace_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kRoundsToNothing = 5e-5;  // a gap that is written as 0.00 %
constexpr double kWideGap = 0.2;
// The placements that bounds speak of.
constexpr char kHoldsAmong[] =
    "this holds among layouts whose stages have one kind of device in one machine, with as many "
    "steps under way as stages, and whose replicas share no device and are sent requests of every "
    "class and length in the same mix";

std::string GoodputText(const v1::Certificate& c, const char* after) {
  return absl::StrFormat(
      "heuristic, not proved to be the best: a better plan could serve %.3f requests/s within "
      "their limits%s at most: the gap is %.2f %%; this is the bound of the throughput with %s, "
      "which ignores TTFT and end to end, so part of the gap may come from the bound; %s",
      c.upper_bound(), after, 100 * c.gap(),
      c.max_tpot_seconds() > 0 ? absl::StrFormat("TPOT <= %.1f ms", c.max_tpot_seconds() * 1e3)
                               : std::string("any TPOT"),
      kHoldsAmong);
}

// Under which the bound holds.
std::string LimitText(const v1::Certificate& c) {
  return c.max_tpot_seconds() > 0
             ? absl::StrFormat(" with TPOT <= %.1f ms", c.max_tpot_seconds() * 1e3)
             : std::string();
}

std::string WideText(const v1::DeploymentPlan& plan) {
  if (plan.certificate().gap() < kWideGap) return "";
  return StrCat("; the bound ",
                plan.has_survival() ? "is that of the cluster without one machine, " : "",
                "counts parts of devices and replicas, so it allows more than the best plan can "
                "serve: a gap this wide says little about the plan");
}

}  // namespace

std::string BoundLine(const v1::DeploymentPlan& plan) {
  const v1::Certificate& c = plan.certificate();
  if (c.has_shared_bound()) return SharedBoundText(c.shared_bound());
  const bool price = c.objective() == v1::OBJECTIVE_PRICE;
  if (c.proved() && price) {
    return absl::StrFormat(
        "proved optimum: nothing serves the asked %.3f requests/s for less than %.2f USD/h; %s",
        c.asked_requests_per_second(), c.value(), kHoldsAmong);
  }
  if (c.upper_bound() <= 0) {
    return StrCat("heuristic: no bound is proved, so how much ",
                  price ? "cheaper a plan could be" : "more a plan could serve", " is not known");
  }
  const char* after = plan.has_survival() ? " after the loss of a machine" : "";
  if (c.objective() == v1::OBJECTIVE_GOODPUT) return GoodputText(c, after);
  if (c.gap() < kRoundsToNothing) {
    return absl::StrFormat(
        "proved optimum: nothing serves more than %.3f requests/s%s%s: the gap is %.2f %%; %s",
        c.upper_bound(), after, LimitText(c), 100 * c.gap(), kHoldsAmong);
  }
  return absl::StrFormat(
      "heuristic, not proved to be the best: a better plan could serve %.3f requests/s%s%s at "
      "most, "
      "%.3f more: the gap is %.2f %% of that%s; %s",
      c.upper_bound(), after, LimitText(c), c.gap() * c.upper_bound(), 100 * c.gap(),
      WideText(plan), kHoldsAmong);
}

std::string SharedBoundText(const v1::SharedBound& bound) {
  return absl::StrFormat(
      "at most %.3f %s, whatever the deal: the gap is %.2f %%; it counts parts of devices, so "
      "some of it is out of reach; %s",
      bound.upper_bound(), UnitText(bound.unit()),
      100 * std::max(0.0, 1 - bound.part() / bound.upper_bound()), kHoldsAmong);
}

}  // namespace tessera::scheduler
