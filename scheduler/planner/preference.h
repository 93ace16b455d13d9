// Which of several plans a practitioner would take: rates weighed by latency, and simple where that
// costs little; or the soonest answer for one user, or the most throughput, for who asks for it.
//
// A plan's value is rate x min(1, F / TPOT) x min(1, T / TTFT): up to F and T a latency counts in
// full, beyond them twice the time is worth half the rate. T is at least twice the best TTFT of
// idle replicas, since long prompts never reach a fixed one. A limit that the workload sets is
// hard: plans that keep all of them come first, and where none does, a miss by a factor m counts as
// m to the fourth power, so that the nearest plan is taken that still serves. Of the plans whose
// value is at most `simpler_within` below the best, those that serve on after the loss of any
// machine come first, then those whose longest pipeline has the fewest stages, then those that lose
// least with a machine. Where a rate is asked for, plans that serve it at no more than kUsualLoad
// of what they sustain come next after those that keep limits, and of these the value of a balanced
// one is 1 / the time of a mean answer at that rate; one that serves on after the loss of any
// machine may have a fifth less of it. For latency the value is 1 / the time of an
// answer that has the deployment for itself, for throughput the rate alone. Thread rule: pure
// functions. Units: seconds, requests per second.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "proto/plan_facts.pb.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// Load at which latencies are predicted, simulated and weighed where no lower rate is asked for: at
// capacity a queue grows without end.
inline constexpr double kUsualLoad = 0.8;

struct Preference {
  v1::PlanPreference prefer = v1::PLAN_PREFERENCE_BALANCED;
  double full_tpot_seconds = 0;  // F; 0: TPOT is not weighed
  double full_ttft_seconds = 0;  // the least T; 0: TTFT is not weighed
  double simpler_within = 0;     // of the best value; 0: the best, whatever its stages
  bool nearest = false;          // where no plan keeps the workload's limits; else there is no plan
  double asked_requests_per_second = 0;  // 0: as many as can be served
  double decode_steps = 0;               // of a mean answer
  // The only limit of TPOT that is searched, infinite: none; not given: several.
  std::optional<double> only_tpot_seconds = std::nullopt;

  bool weighs() const { return full_tpot_seconds > 0 || full_ttft_seconds > 0; }
  bool any() const { return weighs() || simpler_within > 0 || nearest || only_tpot_seconds; }
};

// "latency", "balanced", "throughput"; anything else: balanced.
v1::PlanPreference PreferenceNamed(std::string_view name);

// What counts where nobody says otherwise: 100 ms, 5 s, 5 %.
Preference UsualPreference();

// What is known of a plan when it is chosen.
struct PlanFigures {
  double requests_per_second = 0;       // that it promises, or sustains in simulation if less
  double ttft_seconds = 0;              // mean at the usual load; infinite: some wait without end
  double tpot_seconds = 0;              // the same
  double alone_seconds = 0;             // of a mean answer while nothing else runs
  std::vector<v1::MissedLimit> missed;  // of the workload's limits
};

double ValueOf(const PlanFigures& figures, const Preference& preference);

// Whether it serves the asked rate, if there is one, with room to spare. For throughput always.
bool Sustains(const PlanFigures& figures, const Preference& preference);

struct Choosable {
  PlanFigures figures;
  int stages = 0;                             // of the longest pipeline
  double requests_per_second_after_loss = 0;  // of the worst machine
};

// Whether something is left of it then.
bool ServesOn(const Choosable& plan);

struct Choice {
  size_t best = 0;    // whatever its stages
  size_t chosen = 0;  // beside it
};

// `plans` is not empty; the first of equal ones is taken.
Choice Choose(const std::vector<Choosable>& plans, const Preference& preference);

// Stages of the longest pipeline that serves anything.
int MaxStages(const Placement& placement);

}  // namespace tessera::scheduler
