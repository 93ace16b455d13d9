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
constexpr double kNoise = 5e-4;   // of what a loss leaves
constexpr double kAsSoon = 1.01;  // of a value: then what it does not count decides
// Where a rate is asked for, of the best value, what is given for serving on after a loss: without
// it a second card that is a tenth slower would stand idle.
constexpr double kServesOnWithin = 0.2;

double FactorOf(double full_seconds, double seconds) {
  return full_seconds > 0 && seconds > full_seconds ? full_seconds / seconds : 1;
}

// Mean time of an answer at the rate that the plan predicts latencies for.
double AnswerOf(const PlanFigures& figures, const Preference& preference) {
  return figures.ttft_seconds + preference.decode_steps * figures.tpot_seconds;
}

// For what the preference counts, without misses of limits.
double WorthOf(const PlanFigures& figures, const Preference& preference) {
  if (preference.prefer == v1::PLAN_PREFERENCE_LATENCY)
    return figures.alone_seconds > 0 ? 1 / figures.alone_seconds : 0;
  if (preference.prefer == v1::PLAN_PREFERENCE_THROUGHPUT) return figures.requests_per_second;
  if (preference.asked_requests_per_second > 0 && Sustains(figures, preference)) {
    const double answer = AnswerOf(figures, preference);
    return answer > 0 ? 1 / answer : 0;
  }
  return figures.requests_per_second *
         FactorOf(preference.full_tpot_seconds, figures.tpot_seconds) *
         FactorOf(preference.full_ttft_seconds, figures.ttft_seconds);
}

// Without counting simplicity.
bool Better(const PlanFigures& a, const PlanFigures& b, const Preference& preference) {
  const bool a_keeps = a.missed.empty(), b_keeps = b.missed.empty();
  if (a_keeps != b_keeps) return a_keeps;
  const bool a_sustains = Sustains(a, preference), b_sustains = Sustains(b, preference);
  if (a_sustains != b_sustains) return a_sustains;
  const double ratio = ValueOf(a, preference) / ValueOf(b, preference);
  const bool as_soon = ratio < kAsSoon && ratio * kAsSoon > 1;
  if (preference.prefer == v1::PLAN_PREFERENCE_LATENCY && as_soon) {
    if (preference.asked_requests_per_second > 0)
      return AnswerOf(a, preference) * kAsSoon < AnswerOf(b, preference);
    return a.requests_per_second > b.requests_per_second;
  }
  if (preference.prefer == v1::PLAN_PREFERENCE_THROUGHPUT && as_soon) {
    const double longer = AnswerOf(a, preference) / AnswerOf(b, preference);
    if (longer * kAsSoon < 1 || longer > kAsSoon) return longer < 1;
  }
  return ValueOf(a, preference) * kRounding > ValueOf(b, preference);
}

bool Simpler(const Choosable& a, const Choosable& b) {
  if (ServesOn(a) != ServesOn(b)) return ServesOn(a);
  if (a.stages != b.stages) return a.stages < b.stages;
  return a.requests_per_second_after_loss > b.requests_per_second_after_loss * (1 + kNoise);
}

}  // namespace

v1::PlanPreference PreferenceNamed(std::string_view name) {
  if (name == "latency") return v1::PLAN_PREFERENCE_LATENCY;
  return name == "throughput" ? v1::PLAN_PREFERENCE_THROUGHPUT : v1::PLAN_PREFERENCE_BALANCED;
}

Preference UsualPreference() {
  Preference usual;
  usual.full_tpot_seconds = kUsualTpotSeconds;
  usual.full_ttft_seconds = kUsualTtftSeconds;
  usual.simpler_within = kUsualSimplerWithin;
  usual.nearest = true;
  return usual;
}

bool ServesOn(const Choosable& plan) {
  return plan.requests_per_second_after_loss > kServesOn * plan.figures.requests_per_second;
}

double ValueOf(const PlanFigures& figures, const Preference& preference) {
  double value = WorthOf(figures, preference);
  for (const v1::MissedLimit& one : figures.missed)
    value *= one.seconds() > 0 ? std::pow(one.limit_seconds() / one.seconds(), kMissPower) : 0;
  return value;
}

bool Sustains(const PlanFigures& figures, const Preference& preference) {
  return preference.prefer == v1::PLAN_PREFERENCE_THROUGHPUT ||
         kUsualLoad * figures.requests_per_second >=
             preference.asked_requests_per_second * kRounding;
}

Choice Choose(const std::vector<Choosable>& plans, const Preference& preference) {
  Choice choice;
  for (size_t i = 1; i < plans.size(); ++i) {
    if (Better(plans[i].figures, plans[choice.best].figures, preference)) choice.best = i;
  }
  choice.chosen = choice.best;
  if (preference.simpler_within <= 0) return choice;
  const Choosable& best = plans[choice.best];
  const bool survives = preference.prefer == v1::PLAN_PREFERENCE_BALANCED &&
                        preference.asked_requests_per_second > 0 &&
                        Sustains(best.figures, preference) && !ServesOn(best);
  const double value = ValueOf(best.figures, preference) * kRounding;
  for (size_t i = 0; i < plans.size(); ++i) {
    const double within = survives && ServesOn(plans[i])
                              ? std::max(kServesOnWithin, preference.simpler_within)
                              : preference.simpler_within;
    if (plans[i].figures.missed.empty() != best.figures.missed.empty() ||
        Sustains(plans[i].figures, preference) != Sustains(best.figures, preference) ||
        ValueOf(plans[i].figures, preference) < value * (1 - within))
      continue;
    const Choosable& chosen = plans[choice.chosen];
    const bool as_simple = !Simpler(chosen, plans[i]);
    if (Simpler(plans[i], chosen) ||
        (as_simple && Better(plans[i].figures, chosen.figures, preference)))
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
