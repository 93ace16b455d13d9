#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/plan_check/parts.h"

namespace tessera::scheduler {
namespace {

// Sums and products of the plan's figures, written to a file and read again.
constexpr double kRelative = 1e-4;
constexpr double kMeanRelative = 1e-3;
constexpr double kMaxOfOffered = 1.5;
constexpr double kLuck = 0.15;   // of a draw: more come in one half of the time than in the other
constexpr double kFewStays = 4;  // in so short a time none need finish

bool Near(double a, double b) { return std::abs(a - b) <= kRelative * std::max(a, b); }

absl::Status CheckFinite(const std::string& where, const v1::Prediction& p) {
  const struct {
    const char* name;
    double value;
  } figures[] = {{"output_tokens_per_second", p.output_tokens_per_second()},
                 {"requests_per_second", p.requests_per_second()},
                 {"time_to_first_token_seconds", p.time_to_first_token_seconds()},
                 {"time_per_output_token_seconds", p.time_per_output_token_seconds()},
                 {"usd_per_million_output_tokens", p.usd_per_million_output_tokens()},
                 {"kv_capacity_tokens", static_cast<double>(p.kv_capacity_tokens())}};
  for (const auto& figure : figures) {
    if (std::isfinite(figure.value) && figure.value >= 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s is %g; a prediction is a number of 0 or more", where, figure.name, figure.value));
  }
  return absl::OkStatus();
}

absl::Status Wrong(const char* field, double value, const std::string& needs) {
  return absl::InvalidArgumentError(
      absl::StrFormat("basis: %s is %g; it must be %s", field, value, needs));
}

absl::Status CheckBasis(const v1::PlanBasis& b) {
  if (!(b.requests_per_second() >= 0) || !std::isfinite(b.requests_per_second()))
    return Wrong("requests_per_second", b.requests_per_second(), "0 or more");
  if (!(b.output_tokens() >= 1) || !std::isfinite(b.output_tokens()))
    return Wrong("output_tokens", b.output_tokens(), "1 or more: prefill gives the first");
  if (!(b.uncached_prompt_tokens() >= 0) || !(b.uncached_prompt_tokens() <= b.prompt_tokens()))
    return Wrong("uncached_prompt_tokens", b.uncached_prompt_tokens(),
                 absl::StrFormat("between 0 and the prompt_tokens, %g", b.prompt_tokens()));
  const double longest = b.longest_sequence_tokens();
  if (!std::isfinite(longest) || b.prompt_tokens() + b.output_tokens() > longest * (1 + kRelative))
    return Wrong("longest_sequence_tokens", longest,
                 absl::StrFormat("at least the mean request, %g tokens",
                                 b.prompt_tokens() + b.output_tokens()));
  if (!(b.decode_context_tokens() >= 0) || b.decode_context_tokens() > longest * (1 + kRelative))
    return Wrong("decode_context_tokens", b.decode_context_tokens(),
                 absl::StrFormat("between 0 and the longest sequence, %g", longest));
  if (b.max_step_tokens() < 1)
    return Wrong("max_step_tokens", static_cast<double>(b.max_step_tokens()), "1 or more");
  if (!(b.memory_utilisation() > 0) || b.memory_utilisation() > 1)
    return Wrong("memory_utilisation", b.memory_utilisation(), "above 0 and at most 1");
  if (!(b.runtime_reserve_bytes() >= 0))
    return Wrong("runtime_reserve_bytes", b.runtime_reserve_bytes(), "0 or more");
  if (!(b.kv_headroom() >= 0) || b.kv_headroom() >= 1)
    return Wrong("kv_headroom", b.kv_headroom(), "0 or more and below 1");
  return absl::OkStatus();
}

absl::Status CheckTokens(const std::string& where, const v1::Prediction& prediction,
                         double output_tokens) {
  const double tokens = prediction.requests_per_second() * output_tokens;
  if (Near(tokens, prediction.output_tokens_per_second())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %.3f requests/s of %g output tokens are %.1f tokens/s; the plan says %.1f", where,
      prediction.requests_per_second(), output_tokens, tokens,
      prediction.output_tokens_per_second()));
}

// Shares are of the rate that the plan promises: none of it may be left without a replica.
absl::Status CheckServed(const v1::DeploymentPlan& plan) {
  double served = 0;
  for (const v1::RoutingShare& share : plan.routing()) served += share.share();
  if (served >= 1 - kRelative) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%.3f requests/s are promised, but routing sends only %.2f %% of them to replicas",
      plan.prediction().requests_per_second(), 100 * served));
}

// The plan's mean latency is that of its replicas by what routing sends to them; `replica_of`:
// the one of a pair that makes requests wait. What is not known, 0, is compared with nothing.
absl::Status CheckMean(const v1::DeploymentPlan& plan, const char* name,
                       const std::function<double(const v1::Prediction&)>& seconds,
                       const std::function<std::string(const v1::RoutingShare&)>& replica_of) {
  std::map<std::string, double> of_replica;
  for (const v1::Replica& replica : plan.replicas())
    of_replica[replica.name()] = seconds(replica.prediction());
  double sum = 0, shares = 0;
  for (const v1::RoutingShare& share : plan.routing()) {
    const double here = of_replica[replica_of(share)];
    if (!(here > 0)) return absl::OkStatus();
    sum += share.share() * here;
    shares += share.share();
  }
  const double mean = sum / shares, said = seconds(plan.prediction());
  if (!(said > 0) || !(shares > 0) || std::abs(said - mean) <= kMeanRelative * mean)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the plan: %s is %g; of its replicas, by their shares, it is %g", name, said, mean));
}

absl::Status CheckLatencies(const v1::DeploymentPlan& plan) {
  absl::Status s = CheckMean(
      plan, "time_to_first_token_seconds",
      [](const v1::Prediction& p) { return p.time_to_first_token_seconds(); },
      [](const v1::RoutingShare& share) { return share.prefill_replica(); });
  if (!s.ok()) return s;
  return CheckMean(
      plan, "time_per_output_token_seconds",
      [](const v1::Prediction& p) { return p.time_per_output_token_seconds(); },
      [](const v1::RoutingShare& share) { return share.decode_replica(); });
}

// Requests drawn, over how many seconds they came, over what the mean one stays.
double StaysOf(const v1::DeploymentPlan& plan) {
  const v1::SimulatedFigures& f = plan.simulated();
  const v1::Prediction& p = plan.prediction();
  const double steps = plan.basis().output_tokens();
  const double stay = std::max(
      p.time_to_first_token_seconds() + steps * p.time_per_output_token_seconds(),
      f.time_to_first_token_mean_seconds() + steps * f.time_per_output_token_mean_seconds());
  return static_cast<double>(f.requests()) / f.offered_requests_per_second() / stay;
}

// More than came is not served, but for requests that came in the first half of the time and are
// counted in the second: what is in flight between them.
absl::Status CheckSimulatedRate(const v1::DeploymentPlan& plan) {
  const v1::SimulatedFigures& f = plan.simulated();
  const double offered = f.offered_requests_per_second();
  if (!(offered > 0)) return absl::OkStatus();
  const double stays = StaysOf(plan);
  const double most = std::min(kMaxOfOffered, 1 + kLuck + 2 / stays);
  if (!(f.requests_per_second() <= most * offered)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("simulated: %g requests/s are served, but only %g arrive",
                        f.requests_per_second(), offered));
  }
  if (f.requests_per_second() > 0 || !(stays > kFewStays)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("simulated: none of %g requests/s are served, although arrivals last %.0f "
                      "times as long as one request takes",
                      offered, stays));
}

absl::Status CheckSimulated(const v1::DeploymentPlan& plan) {
  const v1::SimulatedFigures& f = plan.simulated();
  if (absl::Status s = CheckSimulatedRate(plan); !s.ok()) return s;
  const struct {
    const char* name;
    double p50, p99;
  } times[] = {{"time_to_first_token", f.time_to_first_token_p50_seconds(),
                f.time_to_first_token_p99_seconds()},
               {"time_per_output_token", f.time_per_output_token_p50_seconds(),
                f.time_per_output_token_p99_seconds()}};
  for (const auto& time : times) {
    if (time.p50 >= 0 && time.p50 <= time.p99) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "simulated: %s: a p50 of %g s and a p99 of %g s", time.name, time.p50, time.p99));
  }
  return absl::OkStatus();
}

// A rate is proved by its bound; a price has none, and what is proved is the rent.
absl::Status CheckProof(const v1::DeploymentPlan& plan) {
  const v1::Certificate& c = plan.certificate();
  if (!c.proved()) return absl::OkStatus();
  if (c.upper_bound() > 0) {
    if (c.gap() < kRelative) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("certificate: the plan is said to be proved the best with a gap of %.2f %%",
                        100 * c.gap()));
  }
  const v1::Prediction& p = plan.prediction();
  const double rent = p.usd_per_million_output_tokens() * p.output_tokens_per_second() * 3600 / 1e6;
  if (Near(rent, c.value())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("certificate: the plan is said to be proved the best without a bound, which "
                      "is possible only for the rent; its value is %g, the rent %g USD/h",
                      c.value(), rent));
}

absl::Status CheckCertificate(const v1::DeploymentPlan& plan) {
  const v1::Certificate& c = plan.certificate();
  if (!std::isfinite(c.value()) || !std::isfinite(c.upper_bound()) || !(c.value() >= 0) ||
      !(c.upper_bound() >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("certificate: a value of %g and a bound of %g; both are 0 or more",
                        c.value(), c.upper_bound()));
  }
  if (c.upper_bound() == 0) {
    if (c.gap() == 0) return CheckProof(plan);
    return absl::InvalidArgumentError(
        absl::StrFormat("certificate: a gap of %g to a bound that is not given", c.gap()));
  }
  if (c.value() > c.upper_bound() * (1 + 1e-6)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("certificate: the plan's value %.6f is above its own upper bound %.6f",
                        c.value(), c.upper_bound()));
  }
  // Only rates have bounds.
  if (c.value() > plan.prediction().requests_per_second() * (1 + kRelative)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("certificate: a value of %.6f requests/s, but %.6f are promised", c.value(),
                        plan.prediction().requests_per_second()));
  }
  const double gap = (c.upper_bound() - c.value()) / c.upper_bound();
  if (std::abs(gap - c.gap()) <= kRelative) return CheckProof(plan);
  return absl::InvalidArgumentError(
      absl::StrFormat("certificate: the gap is said to be %.4f; from %.6f to %.6f it is %.4f",
                      c.gap(), c.value(), c.upper_bound(), gap));
}

absl::Status CheckMicroBatches(const v1::Replica& replica) {
  if (replica.micro_batches() >= 0 && replica.micro_batches() <= replica.stages_size())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("replica ", replica.name(), ": ", replica.micro_batches(),
                   " micro-batches in flight; it has ", replica.stages_size(), " stages"));
}

// Weights of one replica are there no later than those of all.
absl::Status CheckLoading(const v1::DeploymentPlan& plan) {
  const double all = plan.has_move() ? plan.move().load_seconds() : 0;
  for (const double figure : {all, plan.move().seconds(), plan.move().lost_requests(),
                              plan.move().meanwhile_requests_per_second()}) {
    if (figure >= 0 && std::isfinite(figure)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("move: a figure of %g; all are 0 or more", figure));
  }
  for (const v1::Replica& replica : plan.replicas()) {
    const double one = replica.load_seconds();
    if (one >= 0 && one <= (plan.has_move() ? all * (1 + kRelative) : HUGE_VAL)) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("replica %s: load_seconds is %g; all replicas are said to load in %g",
                        replica.name(), one, all));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPromises(const v1::DeploymentPlan& plan) {
  if (absl::Status s = CheckFinite("the plan", plan.prediction()); !s.ok()) return s;
  for (const v1::Replica& replica : plan.replicas()) {
    const std::string where = absl::StrCat("replica ", replica.name());
    if (absl::Status s = CheckFinite(where, replica.prediction()); !s.ok()) return s;
    if (absl::Status s = CheckMicroBatches(replica); !s.ok()) return s;
  }
  if (absl::Status s = CheckLoading(plan); !s.ok()) return s;
  if (plan.has_certificate()) {
    if (absl::Status s = CheckCertificate(plan); !s.ok()) return s;
  }
  const bool promises = plan.prediction().requests_per_second() > 0 || plan.has_certificate();
  if (!promises) return absl::OkStatus();
  if (!plan.has_basis()) {
    return absl::InvalidArgumentError(
        "the plan promises a rate but has no basis: the requests it is for are unknown");
  }
  if (absl::Status s = CheckBasis(plan.basis()); !s.ok()) return s;
  const double output = plan.basis().output_tokens();
  if (absl::Status s = CheckTokens("the plan", plan.prediction(), output); !s.ok()) return s;
  for (const v1::Replica& replica : plan.replicas()) {
    if (replica.role() == v1::REPLICA_ROLE_PREFILL) continue;
    absl::Status s =
        CheckTokens(absl::StrCat("replica ", replica.name()), replica.prediction(), output);
    if (!s.ok()) return s;
  }
  if (absl::Status s = CheckLatencies(plan); !s.ok()) return s;
  if (plan.has_simulated()) {
    if (absl::Status s = CheckSimulated(plan); !s.ok()) return s;
  }
  return CheckServed(plan);
}

}  // namespace tessera::scheduler
