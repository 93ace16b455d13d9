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

// Who meets more prompts than others has longer steps than what runs at once explains.
constexpr double kUnlikeRequests = 2;

// The longest TPOT of a replica that sends on as many requests as come: with all its sequences
// running it completes most, and no fewer than come. Infinite: it may run any number.
double LongestTpot(const v1::DeploymentPlan& plan, const v1::Replica& replica) {
  const v1::PlanBasis& basis = plan.basis();
  double share = 0;
  for (const v1::RoutingShare& to : plan.routing())
    share += to.decode_replica() == replica.name() ? to.share() : 0;
  const double steps = share * basis.requests_per_second() * (basis.output_tokens() - 1);
  if (replica.max_sequences() <= 0 || steps <= 0) return std::numeric_limits<double>::infinity();
  return kUnlikeRequests * static_cast<double>(replica.max_sequences()) / steps;
}

// How many of those that decode can have a TPOT within the limit: it varies from request to
// request, so that a mean above the limit leaves some below, but then others are far above.
double MostWithin(double limit, double mean, double longest) {
  if (mean <= limit || std::isinf(longest)) return 1;
  return longest > mean ? (longest - mean) / (longest - limit) : 0;
}

struct DecodeTimes {
  double least = 0, mean = 0, longest = std::numeric_limits<double>::infinity();  // TPOT
};

// Part of a class that can be in time on one pair of replicas: no wait, no KV on its way, prompts
// computed and weights read at the peak of the devices.
double MostInTime(const v1::ClassPrediction& one, const DecodeTimes& tpot,
                  double seconds_per_prompt_token) {
  const v1::ServiceObjectives& limits = one.objectives();
  const double tpot_limit = LimitOf(limits.time_per_output_token_seconds());
  double first_only = 0, within = 0, decoding = 0, all = 0;
  for (const v1::LengthSample& length : one.lengths()) {
    const double weight = length.weight() > 0 ? length.weight() : 1;
    const double steps = std::max(0.0, static_cast<double>(length.output_tokens()) - 1);
    const double first = static_cast<double>(length.prompt_tokens()) * (1 - one.prefix_hit_rate()) *
                         seconds_per_prompt_token;
    all += weight;
    if (steps > 0) decoding += weight;
    if (first > LimitOf(limits.time_to_first_token_seconds())) continue;
    if (steps > 0 && tpot.least > tpot_limit) continue;
    if (first + steps * tpot.least > LimitOf(limits.end_to_end_seconds())) continue;
    (steps > 0 ? within : first_only) += weight;
  }
  if (all <= 0) return 1;
  return (first_only +
          std::min(within, decoding * MostWithin(tpot_limit, tpot.mean, tpot.longest))) /
         all;
}

}  // namespace

absl::Status CheckAttainment(const v1::DeploymentPlan& plan,
                             const std::map<std::string, LeastSeconds>& least) {
  const v1::Prediction& prediction = plan.prediction();
  if (prediction.classes().empty()) {
    if (!plan.basis().goodput()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the plan counts requests within their limits, but says of no class what it attains");
  }
  std::map<std::string, DecodeTimes> tpot;
  for (const v1::Replica& replica : plan.replicas()) {
    const auto known = least.find(replica.name());
    tpot[replica.name()] = {known == least.end() ? 0 : known->second.per_output_token,
                            replica.prediction().time_per_output_token_seconds(),
                            LongestTpot(plan, replica)};
  }
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
      const auto prompts = least.find(share.prefill_replica());
      routed += share.share();
      most +=
          share.share() * MostInTime(one, tpot[share.decode_replica()],
                                     prompts == least.end() ? 0 : prompts->second.per_prompt_token);
    }
    if (routed <= 0 || one.attainment() <= most / routed + kOfListedLengths) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "class %s: %.1f %% within the limits are predicted, but with the predicted mean TPOT, "
        "without waits and at the peak of the devices, it is %.1f %% at most",
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
