#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/plan_check_parts.h"

namespace tessera::scheduler {
namespace {

constexpr double kRounding = 1e-6;
// The plan lists lengths in whole tokens, of long traces in groups.
constexpr double kOfListedLengths = 0.02;

double LimitOf(double seconds) {
  return seconds > 0 ? seconds * (1 + kRounding) : std::numeric_limits<double>::infinity();
}

bool IsPart(double value) { return value >= 0 && value <= 1 + kRounding; }

// Part of a class that can be in time on one pair of replicas: no wait, no KV on its way, prompts
// computed at the peak of the devices.
double MostInTime(const v1::ClassPrediction& one, double tpot, double seconds_per_prompt_token) {
  const v1::ServiceObjectives& limits = one.objectives();
  double within = 0, all = 0;
  for (const v1::LengthSample& length : one.lengths()) {
    const double weight = length.weight() > 0 ? length.weight() : 1;
    const double steps = std::max(0.0, static_cast<double>(length.output_tokens()) - 1);
    const double first = static_cast<double>(length.prompt_tokens()) * (1 - one.prefix_hit_rate()) *
                         seconds_per_prompt_token;
    all += weight;
    if (first > LimitOf(limits.time_to_first_token_seconds())) continue;
    if (steps > 0 && tpot > LimitOf(limits.time_per_output_token_seconds())) continue;
    if (first + steps * tpot > LimitOf(limits.end_to_end_seconds())) continue;
    within += weight;
  }
  return all > 0 ? within / all : 1;
}

}  // namespace

absl::Status CheckAttainment(const v1::DeploymentPlan& plan,
                             const std::map<std::string, double>& seconds_per_prompt_token) {
  const v1::Prediction& prediction = plan.prediction();
  if (prediction.classes().empty()) {
    if (!plan.basis().goodput()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the plan counts requests within their limits, but says of no class what it attains");
  }
  std::map<std::string, double> tpot;
  for (const v1::Replica& replica : plan.replicas())
    tpot[replica.name()] = replica.prediction().time_per_output_token_seconds();
  double shares = 0, all = 0;
  std::map<int, double> spare;  // by group of classes
  for (const v1::ClassPrediction& one : prediction.classes()) {
    const double asked = one.objectives().attainment();
    if (!IsPart(one.share()) || !IsPart(one.attainment()) || !IsPart(asked)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "class ", one.name(), ": share, attainment and what is asked for are parts, 0 to 1"));
    }
    shares += one.share();
    all += one.share() * one.attainment();
    spare[one.judged_with()] += one.share() * (one.attainment() - asked);
    double most = 0, routed = 0;
    for (const v1::RoutingShare& share : plan.routing()) {
      const auto prompts = seconds_per_prompt_token.find(share.prefill_replica());
      routed += share.share();
      most += share.share() *
              MostInTime(one, tpot[share.decode_replica()],
                         prompts == seconds_per_prompt_token.end() ? 0 : prompts->second);
    }
    if (routed <= 0 || one.attainment() <= most / routed + kOfListedLengths) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "class %s: %.1f %% within the limits are predicted, but at the predicted TPOT, without "
        "waits and with prompts at the peak of the devices, it is %.1f %% at most",
        one.name(), 100 * one.attainment(), 100 * most / routed));
  }
  if (std::abs(shares - 1) > kRounding || std::abs(all - prediction.attainment()) > kRounding) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the classes have %.6f of the requests and %.6f of them within the limits; the plan says 1 "
        "and %.6f",
        shares, all, prediction.attainment()));
  }
  for (const auto& [group, value] : spare) {
    if (!plan.basis().goodput() || value >= -kRounding) continue;
    for (const v1::ClassPrediction& one : prediction.classes()) {
      if (one.judged_with() != group) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "class %s%s: fewer requests are within the limits (%.2f %%) than are asked for (%.2f %%)",
          one.name(),
          group == 0 && prediction.classes_size() > 1 ? " and those judged with it" : "",
          100 * one.attainment(), 100 * one.objectives().attainment()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::scheduler
