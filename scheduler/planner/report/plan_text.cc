#include "scheduler/planner/report/plan_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kAlikeFraction = 5e-4;

struct Run {
  std::string machine;  // with the slash; or a whole name that has no number
  int first = 0, last = 0;
  bool numbered = false;
};

// Neighbouring devices of one machine make one run.
std::vector<Run> RunsOf(const v1::Stage& stage) {
  std::vector<Run> runs;
  for (const v1::PlannedWorker& worker : stage.workers()) {
    const std::string& name = worker.device();
    const size_t slash = name.rfind('/');
    const bool numbered = slash != std::string::npos && slash + 1 < name.size() &&
                          name.find_first_not_of("0123456789", slash + 1) == std::string::npos;
    const int index = numbered ? std::atoi(name.c_str() + slash + 1) : 0;
    const std::string machine = numbered ? name.substr(0, slash + 1) : name;
    if (numbered && !runs.empty() && runs.back().numbered && runs.back().machine == machine &&
        runs.back().last + 1 == index) {
      runs.back().last = index;
    } else {
      runs.push_back({machine, index, index, numbered});
    }
  }
  return runs;
}

std::string RunsText(const v1::Stage& stage, const char* apart) {
  std::string text;
  for (const Run& run : RunsOf(stage)) {
    if (!text.empty()) text += apart;
    text += run.machine;
    if (!run.numbered) continue;
    text += StrCat(run.first);
    if (run.last > run.first) text += StrCat("..", run.last);
  }
  return text;
}

}  // namespace

std::string RoleText(v1::ReplicaRole role) {
  switch (role) {
    case v1::REPLICA_ROLE_BOTH: return "prefill and decode";
    case v1::REPLICA_ROLE_PREFILL: return "prefill";
    case v1::REPLICA_ROLE_DECODE: return "decode";
    default: return "no role";
  }
}

std::string StageDevicesText(const v1::Stage& stage) {
  if (IsMixed(stage)) return MixedStageText(stage);
  const std::string text = RunsText(stage, ",");
  const std::string& kind = stage.workers(0).kind();
  return kind.empty() ? text : StrCat(text, " ", kind);
}

bool IsMixed(const v1::Stage& stage) {
  return std::any_of(stage.workers().begin(), stage.workers().end(),
                     [](const v1::PlannedWorker& worker) { return worker.fraction() > 0; });
}

std::string MixedStageText(const v1::Stage& stage) {
  std::string text;
  for (int i = 0; i < stage.workers_size();) {
    const v1::PlannedWorker& first = stage.workers(i);
    v1::Stage run;
    for (; i < stage.workers_size() && stage.workers(i).kind() == first.kind() &&
           std::abs(stage.workers(i).fraction() - first.fraction()) < kAlikeFraction;
         ++i) {
      *run.add_workers() = stage.workers(i);
    }
    absl::StrAppendFormat(&text, "%s%s (%s) %.0f %%%s", text.empty() ? "" : " + ",
                          RunsText(run, ","), first.kind(), 100 * first.fraction(),
                          run.workers_size() > 1 ? " each" : "");
  }
  return text;
}

std::string ReplicaDevicesText(const v1::Replica& replica) {
  v1::Stage all;
  for (const v1::Stage& stage : replica.stages()) all.mutable_workers()->MergeFrom(stage.workers());
  return RunsText(all, ", ");
}

std::string UsdText(double usd) {
  if (usd < 1) return absl::StrFormat("%.3g", usd);
  return usd < 100 ? absl::StrFormat("%.2f", usd) : absl::StrFormat("%.0f", usd);
}

std::string LimitsText(const v1::ServiceObjectives& objectives) {
  std::vector<std::string> limits;
  for (const auto& [name, seconds] : {std::pair("TTFT", objectives.time_to_first_token_seconds()),
                                      {"TPOT", objectives.time_per_output_token_seconds()},
                                      {"end to end", objectives.end_to_end_seconds()}}) {
    if (seconds > 0)
      limits.push_back(seconds < 1 ? absl::StrFormat("%s <= %.4g ms", name, seconds * 1e3)
                                   : absl::StrFormat("%s <= %.4g s", name, seconds));
  }
  return limits.empty() ? "no limit" : absl::StrJoin(limits, ", ");
}

std::string GbitText(double bytes_per_second) {
  const double gbit = bytes_per_second * 8e-9;
  return gbit < 1000 ? absl::StrFormat("%.3g Gbit/s", gbit) : absl::StrFormat("%.0f Gbit/s", gbit);
}

bool SimulatedToAttainLess(const v1::DeploymentPlan& plan) {
  constexpr double kHolds = 0.98;
  return plan.simulated().has_attained_requests_per_second() &&
         plan.simulated().attained_requests_per_second() <
             kHolds * plan.prediction().requests_per_second();
}

std::string HeadlineRate(const v1::DeploymentPlan& plan) {
  const v1::SimulatedFigures& s = plan.simulated();
  const double predicted = plan.prediction().requests_per_second();
  if (s.attained_seeds() == 0)
    return absl::StrFormat("up to %.3f requests/s (predicted)", predicted);
  return absl::StrFormat("%.3f requests/s (simulated, %d x %d; predicted %.3f)",
                         s.attained_requests_per_second(), s.attained_seeds(),
                         s.attained_requests(), predicted);
}

std::string HeadlineTokens(const v1::DeploymentPlan& plan) {
  const v1::SimulatedFigures& s = plan.simulated();
  const double rate = s.attained_seeds() > 0 ? s.attained_requests_per_second()
                                             : plan.prediction().requests_per_second();
  const double tokens = rate * plan.basis().output_tokens();
  return tokens > 0 ? absl::StrFormat(", %.0f output tokens/s", tokens) : std::string();
}

std::string CutText(const v1::DeploymentPlan& plan) {
  constexpr double kWorthSaying = 0.01;
  if (plan.basis().cut_requests_share() <= kWorthSaying) return "";
  return absl::StrFormat(
      "warning: %.3g %% of the requests are longer than the longest sequence (%.0f tokens) and are "
      "counted as cut to it",
      100 * plan.basis().cut_requests_share(), plan.basis().longest_sequence_tokens());
}

std::string LatencyText(const v1::DeploymentPlan& plan) {
  const v1::Prediction& p = plan.prediction();
  const v1::SimulatedFigures& s = plan.simulated();
  const bool seen = s.time_to_first_token_mean_seconds() > 0;
  const double ttft = seen ? s.time_to_first_token_mean_seconds() : p.time_to_first_token_seconds();
  const double tpot =
      seen ? s.time_per_output_token_mean_seconds() : p.time_per_output_token_seconds();
  const double rate = seen ? s.latency_requests_per_second() : plan.basis().requests_per_second();
  // Then requests wait for longer the longer they are simulated.
  const bool too_much = s.attained_seeds() > 0 && rate > s.attained_requests_per_second();
  const auto seconds = [](double value) {
    return value < 100 ? absl::StrFormat("%.2g s", value) : absl::StrFormat("%.0f s", value);
  };
  std::string text =
      ttft > 0 ? StrCat("TTFT ", seconds(ttft)) : std::string("TTFT without end for some requests");
  if (tpot > 0) absl::StrAppendFormat(&text, ", TPOT %.0f ms", 1e3 * tpot);
  absl::StrAppendFormat(&text, " (means at %.3g requests/s%s, %s)", rate,
                        too_much ? ", more than it attains" : "", seen ? "simulated" : "predicted");
  if (seen && !too_much && s.time_to_first_token_p99_seconds() > 0)
    absl::StrAppendFormat(&text, "; p99 %s and %.0f ms",
                          seconds(s.time_to_first_token_p99_seconds()),
                          1e3 * s.time_per_output_token_p99_seconds());
  return text;
}

std::string CountedOnText(const v1::DeploymentPlan& plan) {
  if (SimulatedToAttainLess(plan))
    return absl::StrFormat("by simulation: %.3f", plan.simulated().attained_requests_per_second());
  if (!plan.has_survival()) return "";
  return absl::StrFormat("%.3f after the loss of any one machine",
                         plan.survival().requests_per_second());
}

std::string ChangeText(double ratio, const char* same) {
  const double percent = 100 * (ratio - 1);
  return std::abs(percent) < 0.05 ? same : absl::StrFormat("%+.1f %%", percent);
}

std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

bool IsWarning(const std::string& line) { return line.starts_with("warning: "); }

void AppendLines(const char* heading, const std::vector<std::string>& lines, std::string* out) {
  if (std::all_of(lines.begin(), lines.end(), IsWarning)) return;
  *out += StrCat("\n", heading, ":\n");
  for (const std::string& line : lines) {
    if (!IsWarning(line)) *out += StrCat("  ", line, "\n");
  }
}

}  // namespace tessera::scheduler
