#include "scheduler/planner/preference.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tessera::scheduler {
namespace {

constexpr double kUsualTpotSeconds = 0.1;
constexpr double kUsualTtftSeconds = 5;
constexpr double kUsualSimplerWithin = 0.05;
constexpr double kMissPower = 4;
constexpr double kServesOn = 0.01;  // of the rate: less is no service
constexpr double kRounding = 1 - 1e-9;
constexpr double kNoise = 5e-4;  // of what a loss leaves

double FactorOf(double full_seconds, double seconds) {
  return full_seconds > 0 && seconds > full_seconds ? full_seconds / seconds : 1;
}

bool Better(const Choosable& a, const Choosable& b, const Preference& preference) {
  const bool a_keeps = a.figures.missed.empty(), b_keeps = b.figures.missed.empty();
  if (a_keeps != b_keeps) return a_keeps;
  return ValueOf(a.figures, preference) * kRounding > ValueOf(b.figures, preference);
}

bool Simpler(const Choosable& a, const Choosable& b) {
  if (ServesOn(a) != ServesOn(b)) return ServesOn(a);
  if (a.stages != b.stages) return a.stages < b.stages;
  return a.requests_per_second_after_loss > b.requests_per_second_after_loss * (1 + kNoise);
}

}  // namespace

Preference UsualPreference() {
  return {kUsualTpotSeconds, kUsualTtftSeconds, kUsualSimplerWithin, true, {}};
}

bool ServesOn(const Choosable& plan) {
  return plan.requests_per_second_after_loss > kServesOn * plan.figures.requests_per_second;
}

double ValueOf(const PlanFigures& figures, const Preference& preference) {
  double value = figures.requests_per_second *
                 FactorOf(preference.full_tpot_seconds, figures.tpot_seconds) *
                 FactorOf(preference.full_ttft_seconds, figures.ttft_seconds);
  for (const v1::MissedLimit& one : figures.missed)
    value *= one.seconds() > 0 ? std::pow(one.limit_seconds() / one.seconds(), kMissPower) : 0;
  return value;
}

Choice Choose(const std::vector<Choosable>& plans, const Preference& preference) {
  Choice choice;
  for (size_t i = 1; i < plans.size(); ++i) {
    if (Better(plans[i], plans[choice.best], preference)) choice.best = i;
  }
  choice.chosen = choice.best;
  if (preference.simpler_within <= 0) return choice;
  const Choosable& best = plans[choice.best];
  const double enough =
      ValueOf(best.figures, preference) * (1 - preference.simpler_within) * kRounding;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].figures.missed.empty() != best.figures.missed.empty() ||
        ValueOf(plans[i].figures, preference) < enough)
      continue;
    const Choosable& chosen = plans[choice.chosen];
    const bool as_simple = !Simpler(chosen, plans[i]);
    if (Simpler(plans[i], chosen) || (as_simple && Better(plans[i], chosen, preference)))
      choice.chosen = i;
  }
  return choice;
}

int MaxStages(const Placement& placement) {
  size_t most = 0;
  for (const PlacedReplica& replica : placement.replicas)
    most = std::max(most, replica.stages.size());
  return static_cast<int>(most);
}

}  // namespace tessera::scheduler
