#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/plan_check/parts.h"

namespace tessera::scheduler {
namespace {

constexpr double kRounding = 1 + 1e-6;
constexpr double kDay = 86400;
// Up to this part of what replicas serve and links carry queues have an end, whatever comes at once
// and however unlike requests are. Above it a plan may say nothing: by its formula they wait
// without end.
constexpr double kQueuesEnd = 0.5;
// Short answers wait for more prompts per token than long ones: the mean time per output token is
// above what sequences that decode at once explain.
constexpr double kUnlikeRequests = 2;

struct Sent {
  double prompts = 0, decoded = 0;  // requests per second
  double busiest =
      0;  // part of what replicas serve and links carry, of those that its prompts meet
};

// The fullest link, at this rate.
double FullestLink(const v1::DeploymentPlan& plan, double rate) {
  double fullest = 0;
  for (const v1::LinkLoad& link : plan.links())
    fullest = std::max(fullest, link.bytes_per_second() / link.capacity_bytes_per_second());
  return fullest * rate / plan.prediction().requests_per_second();
}

std::map<std::string, Sent> SentTo(const v1::DeploymentPlan& plan, double rate) {
  std::map<std::string, Sent> sent;
  for (const v1::RoutingShare& share : plan.routing()) {
    sent[share.prefill_replica()].prompts += share.share() * rate;
    sent[share.decode_replica()].decoded += share.share() * rate;
  }
  std::map<std::string, double> load;
  for (const v1::Replica& replica : plan.replicas()) {
    const Sent& here = sent[replica.name()];
    load[replica.name()] =
        std::max(here.prompts, here.decoded) / replica.prediction().requests_per_second();
  }
  const double link = FullestLink(plan, rate);
  for (const v1::RoutingShare& share : plan.routing()) {
    double& busiest = sent[share.prefill_replica()].busiest;
    busiest = std::max({busiest, load[share.prefill_replica()], load[share.decode_replica()]});
    if (share.prefill_replica() != share.decode_replica()) busiest = std::max(busiest, link);
  }
  return sent;
}

absl::Status CheckStep(const v1::Replica& replica) {
  for (const auto& [name, value] : {std::pair("max_batched_tokens", replica.max_batched_tokens()),
                                    {"max_sequences", replica.max_sequences()}}) {
    if (value >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("replica ", replica.name(), ": ", name, " is ", value,
                     "; the promised rate depends on it: it must be 1 or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckFirstToken(const v1::Replica& replica, const Sent& sent) {
  const double ttft = replica.prediction().time_to_first_token_seconds();
  if (ttft > kDay) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "replica %s: a TTFT of %g s is predicted; max 86400 s", replica.name(), ttft));
  }
  if (ttft > 0 || sent.prompts <= 0 || sent.busiest > kQueuesEnd) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "replica %s: no TTFT is predicted, though it and those that decode for it "
      "and links between them are at %.0f %% of their max: queues are bounded there",
      replica.name(), 100 * sent.busiest));
}

absl::Status CheckDecoding(const v1::DeploymentPlan& plan, const v1::Replica& replica,
                           double decoded) {
  const double steps = plan.basis().output_tokens() - 1;
  const double tpot = replica.prediction().time_per_output_token_seconds();
  if (decoded <= 0 || steps <= 0) return absl::OkStatus();
  if (tpot <= 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("replica %s: no TPOT is predicted, though it decodes answers of %g tokens",
                        replica.name(), plan.basis().output_tokens()));
  }
  const double at_once = decoded * steps * tpot;
  if (at_once <= kUnlikeRequests * static_cast<double>(replica.max_sequences()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("replica %s: %.3f requests/s that decode for %.1f s each are %.0f at once; "
                      "it runs %d at most",
                      replica.name(), decoded, steps * tpot, at_once, replica.max_sequences()));
}

}  // namespace

absl::Status CheckSteadyState(const v1::DeploymentPlan& plan) {
  if (!(plan.prediction().requests_per_second() > 0)) return absl::OkStatus();
  const double rate = plan.basis().requests_per_second();
  if (!(rate > 0)) {
    return absl::InvalidArgumentError(
        "basis: requests_per_second is 0: latencies are those at no load at all");
  }
  std::map<std::string, Sent> sent = SentTo(plan, rate);
  for (const v1::Replica& replica : plan.replicas()) {
    const Sent& here = sent[replica.name()];
    if (absl::Status s = CheckStep(replica); !s.ok()) return s;
    if (absl::Status s = CheckFirstToken(replica, here); !s.ok()) return s;
    if (absl::Status s = CheckDecoding(plan, replica, here.decoded); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace tessera::scheduler
