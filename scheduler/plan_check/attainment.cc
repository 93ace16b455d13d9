#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/plan_check/parts.h"

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

bool IsLimit(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

absl::Status CheckClass(const v1::ClassPrediction& one) {
  const v1::ServiceObjectives& limits = one.objectives();
  if (!IsPart(one.share()) || !IsPart(one.attainment()) || !IsPart(limits.attainment())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "class ", one.name(), ": share, attainment and required attainment are fractions, 0 to 1"));
  }
  if (!IsLimit(limits.time_to_first_token_seconds()) ||
      !IsLimit(limits.time_per_output_token_seconds()) || !IsLimit(limits.end_to_end_seconds()) ||
      !IsLimit(one.time_to_first_token_seconds()) || !IsLimit(one.end_to_end_seconds())) {
    return absl::InvalidArgumentError(
        absl::StrCat("class ", one.name(), ": limits and latencies are seconds, 0 (none) or more"));
  }
  const double ttft = one.time_to_first_token_seconds(), all = one.end_to_end_seconds();
  if (all == 0 || ttft <= all * (1 + kRounding)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "class %s: a mean TTFT of %g s and a mean end to end of %g s, which it is part of",
      one.name(), ttft, all));
}

// The classes together are the requests of the basis.
absl::Status CheckLengths(const v1::DeploymentPlan& plan) {
  double prompts = 0, outputs = 0;
  for (const v1::ClassPrediction& one : plan.prediction().classes()) {
    double all = 0, prompt = 0, output = 0;
    for (const v1::LengthSample& length : one.lengths()) {
      const double weight = length.weight() > 0 ? length.weight() : 1;
      all += weight;
      prompt += weight * static_cast<double>(length.prompt_tokens());
      output += weight * static_cast<double>(length.output_tokens());
    }
    if (all <= 0) return absl::OkStatus();
    prompts += one.share() * prompt / all;
    outputs += one.share() * output / all;
  }
  const v1::PlanBasis& basis = plan.basis();
  const auto near = [](double listed, double mean) {
    return std::abs(listed - mean) <= kOfListedLengths * mean + 0.5;  // whole tokens
  };
  if (near(prompts, basis.prompt_tokens()) && near(outputs, basis.output_tokens()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the classes' requests have %.1f tokens and %.1f of output on average, those "
                      "of the basis %.1f "
                      "and %.1f",
                      prompts, outputs, basis.prompt_tokens(), basis.output_tokens()));
}

bool LimitsWaits(const v1::ClassPrediction& one) {
  return one.objectives().time_to_first_token_seconds() > 0 ||
         one.objectives().end_to_end_seconds() > 0;
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
        "the plan counts requests within their limits, but gives no attainment of any class");
  }
  std::map<std::string, DecodeTimes> tpot;
  for (const v1::Replica& replica : plan.replicas()) {
    const auto known = least.find(replica.name());
    tpot[replica.name()] = {known == least.end() ? 0 : known->second.per_output_token,
                            replica.prediction().time_per_output_token_seconds(),
                            LongestTpot(plan, replica)};
  }
  std::set<std::string> endless;  // of role both: of others some pairs may have an end
  for (const v1::Replica& replica : plan.replicas()) {
    if (replica.role() == v1::REPLICA_ROLE_BOTH &&
        replica.prediction().time_to_first_token_seconds() <= 0)
      endless.insert(replica.name());
  }
  double shares = 0, all = 0;
  std::map<int, double> spare;  // by group of classes
  for (const v1::ClassPrediction& one : prediction.classes()) {
    const double asked = one.objectives().attainment();
    if (absl::Status s = CheckClass(one); !s.ok()) return s;
    shares += one.share();
    all += one.share() * one.attainment();
    spare[one.judged_with()] += one.share() * (one.attainment() - asked);
    double most = 0, routed = 0;
    for (const v1::RoutingShare& share : plan.routing()) {
      const auto prompts = least.find(share.prefill_replica());
      routed += share.share();
      // Where all wait without end none are in time.
      if (LimitsWaits(one) && endless.contains(share.prefill_replica())) continue;
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
  if (absl::Status s = CheckLengths(plan); !s.ok()) return s;
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
