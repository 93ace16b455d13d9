#include "scheduler/planner/giving_way.h"

namespace tessera::scheduler {
namespace {

constexpr double kMuchMore = 1.5, kHardlyLess = 0.8, kAsSoon = 1.02;

bool MuchMore(const Choosable& other, const Choosable& given, const Preference& preference) {
  const double rate = given.figures.requests_per_second;
  return rate > 0 && other.figures.requests_per_second >= kMuchMore * rate &&
         other.figures.missed.empty() >= given.figures.missed.empty() &&
         ValueOf(other.figures, preference) >= kHardlyLess * ValueOf(given.figures, preference) &&
         ServesOn(other) >= ServesOn(given);
}

bool AsSoon(const std::optional<PlanFigures>& other, const PlanFigures& given) {
  return other && other->ttft_seconds <= kAsSoon * given.ttft_seconds &&
         other->tpot_seconds <= kAsSoon * given.tpot_seconds;
}

}  // namespace

size_t GivenWayTo(const SimulatedPlans& plans, size_t given, double load,
                  const Preference& preference) {
  const Choosable first = plans.known(given);
  const double rate = load * first.figures.requests_per_second;
  size_t to = given;
  for (size_t i = 0; i < plans.count; ++i) {
    const auto better = [&] {
      const Choosable& other = plans.known(i);
      return MuchMore(other, first, preference) &&
             (to == given ||
              ValueOf(other.figures, preference) > ValueOf(plans.known(to).figures, preference));
    };
    if (better() && AsSoon(plans.at_rate(i, rate), first.figures) && plans.see_in_full(i) &&
        better())
      to = i;
  }
  return to;
}

}  // namespace tessera::scheduler
