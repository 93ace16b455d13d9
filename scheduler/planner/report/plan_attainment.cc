#include "scheduler/planner/report/plan_attainment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/layout/split_attainment.h"

namespace tessera::scheduler {
namespace {

constexpr double kWorthTelling = 1e-3;  // of all requests: more of them would be within

constexpr size_t kMaxLengths = 128;  // of a class that the plan lists

double FiniteOrZero(double value) { return std::isfinite(value) ? value : 0; }

// What replicas do at the rates that are sent to them.
class Served {
 public:
  Served(const ServedPlacement& served, const v1::DeploymentPlan& plan)
      : problem_(*served.problem),
        placement_(*served.placement),
        load_(served.load),
        model_(*problem_.model, problem_.classes, problem_.options, problem_.arrival_variation),
        split_(problem_, model_, placement_.replicas),
        at_(placement_.replicas.size()) {
    std::vector<double> rates = split_.RatesOf(placement_.shares);
    for (double& rate : rates) rate *= load_;
    pairs_ = split_.At(rates);
    for (const Share& share : placement_.shares) {
      at_[static_cast<size_t>(share.prefill)].prefills += load_ * share.requests_per_second;
      at_[static_cast<size_t>(share.decode)].decodes += load_ * share.requests_per_second;
    }
    std::map<std::string, At> known;  // large clusters have many replicas that are alike
    for (size_t i = 0; i < at_.size(); ++i) {
      if (placement_.replicas[i].role == Role::kBoth)
        Operate(placement_.replicas[i], plan.replicas(static_cast<int>(i)), &known, &at_[i]);
      if (placement_.replicas[i].role == Role::kDecode)
        at_[i].tpot_seconds = pairs_.decode[i].mean_tpot_seconds();
    }
    for (const Share& share : placement_.shares) AddTtft(share);
  }

  // The plan's latencies, of each replica and of all. False: some wait without end.
  bool SetLatencies(v1::DeploymentPlan* plan) const {
    double ttft = 0, tpot = 0;
    for (size_t i = 0; i < at_.size(); ++i) {
      v1::Prediction& prediction =
          *plan->mutable_replicas(static_cast<int>(i))->mutable_prediction();
      prediction.set_time_per_output_token_seconds(at_[i].tpot_seconds);
      tpot += at_[i].decodes * at_[i].tpot_seconds;
      if (at_[i].prefills <= 0) continue;
      prediction.set_time_to_first_token_seconds(FiniteOrZero(at_[i].ttft_sum / at_[i].prefills));
      ttft += at_[i].ttft_sum;
    }
    const double rate = load_ * placement_.requests_per_second;
    plan->mutable_prediction()->set_time_to_first_token_seconds(FiniteOrZero(ttft / rate));
    plan->mutable_prediction()->set_time_per_output_token_seconds(tpot / rate);
    return std::isfinite(ttft);
  }

  // Means over the shares.
  Attained All() const {
    Attained sum;
    sum.by_class.assign(problem_.classes.size(), 0);
    sum.ttft_seconds = sum.end_to_end_seconds = sum.by_class;
    for (const Share& share : placement_.shares) {
      const Attained& one = Of(share);
      const double part = share.requests_per_second / placement_.requests_per_second;
      for (size_t c = 0; c < sum.by_class.size(); ++c) {
        sum.by_class[c] += part * one.by_class[c];
        sum.ttft_seconds[c] += part * one.ttft_seconds[c];
        sum.end_to_end_seconds[c] += part * one.end_to_end_seconds[c];
      }
      sum.all += part * one.all;
    }
    return sum;
  }

 private:
  struct At {
    double prefills = 0, decodes = 0;  // requests per second
    double ttft_sum = 0;               // times requests per second
    double tpot_seconds = 0;           // of those that decode
    Attained alone;                    // of role both
  };

  void Operate(const PlacedReplica& replica, const v1::Replica& planned,
               std::map<std::string, At>* known, At* at) const {
    const ReplicaSpec spec = SpecOf(problem_, replica);
    const ReplicaOptions& options = problem_.options;
    const int m = std::max(1, replica.rate.micro_batches);
    const double tokens =
        static_cast<double>(planned.max_batched_tokens() > 0 ? planned.max_batched_tokens()
                                                             : options.memory.max_step_tokens);
    const double sequences = planned.max_sequences() > 0
                                 ? static_cast<double>(planned.max_sequences())
                                 : options.max_sequences;
    const double kv = replica.rate.kv_capacity_tokens;
    const auto [like, fresh] = known->try_emplace(
        AlikeKey(spec) + absl::StrFormat("|%d,%.17g,%.17g,%.17g,%.17g,%.17g", m, tokens, sequences,
                                         kv, at->prefills, at->decodes));
    if (fresh) {
      like->second = *at;
      Operate(spec, m, tokens, sequences, kv, &like->second);
    }
    *at = like->second;
  }

  void Operate(const ReplicaSpec& spec, int m, double tokens, double sequences, double kv,
               At* at) const {
    const LengthMoments& lengths = model_.lengths();
    if (lengths.decode_steps <= 0) {
      at->alone = model_.At(model_.PrefillBeside(spec, m, 0, tokens), at->prefills, {});
      return;
    }
    at->alone = model_.At(model_.CurveOf(spec, m, kv, sequences, tokens), at->prefills);
    // Steps as the batcher makes them, some with a chunk of a prompt and some without. Who decodes
    // takes no more of the KV on average than its headroom leaves.
    const double most = (1 - problem_.options.kv_headroom) * kv / lengths.decode_context_sum;
    at->tpot_seconds = at->alone.tpot_seconds;
    if (at->decodes > 0) at->tpot_seconds = std::min(at->tpot_seconds, most / at->decodes);
  }

  void AddTtft(const Share& share) {
    At& at = at_[static_cast<size_t>(share.prefill)];
    const Attained& one = Of(share);
    double mean = 0;
    for (size_t c = 0; c < problem_.classes.size(); ++c)
      mean += problem_.classes[c].share * one.ttft_seconds[c];
    at.ttft_sum += load_ * share.requests_per_second * mean;
  }

  const Attained& Of(const Share& share) const {
    if (share.prefill == share.decode) return at_[static_cast<size_t>(share.prefill)].alone;
    const std::vector<RateProgram::Pair>& pairs = split_.transport().pairs;
    const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const RateProgram::Pair& pair) {
      return pair.prefill == share.prefill && pair.decode == share.decode;
    });
    return pairs_.pairs[static_cast<size_t>(found - pairs.begin())];
  }

  const PlacementProblem& problem_;
  const Placement& placement_;
  const double load_;
  const AttainmentModel model_;
  const SplitAttainment split_;
  SplitAttainment::Operation pairs_;
  std::vector<At> at_;
};

// At most kMaxLengths: of long lists, neighbours by end-to-end work are put together.
void AddLengths(const RequestClass& one, v1::ClassPrediction* out) {
  std::vector<RequestLengths> samples = one.samples;
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) {
    return std::pair(a.output_tokens, a.prompt_tokens) <
           std::pair(b.output_tokens, b.prompt_tokens);
  });
  const double each = 1.0 / static_cast<double>(std::min(samples.size(), kMaxLengths));
  RequestLengths sum = {0, 0, 0};
  for (size_t i = 0; i < samples.size(); ++i) {
    sum.prompt_tokens += samples[i].weight * samples[i].prompt_tokens;
    sum.output_tokens += samples[i].weight * samples[i].output_tokens;
    sum.weight += samples[i].weight;
    if (samples.size() > kMaxLengths && sum.weight < each && i + 1 < samples.size()) continue;
    v1::LengthSample& length = *out->add_lengths();
    length.set_prompt_tokens(std::llround(sum.prompt_tokens / sum.weight));
    length.set_output_tokens(std::llround(sum.output_tokens / sum.weight));
    length.set_weight(sum.weight);
    sum = {0, 0, 0};
  }
}

}  // namespace

v1::ServiceObjectives ObjectivesOf(const RequestClass& one) {
  v1::ServiceObjectives objectives;
  objectives.set_time_to_first_token_seconds(FiniteOrZero(one.limits.ttft_seconds));
  objectives.set_time_per_output_token_seconds(FiniteOrZero(one.limits.tpot_seconds));
  objectives.set_end_to_end_seconds(FiniteOrZero(one.limits.end_to_end_seconds));
  objectives.set_attainment(one.required_attainment);
  return objectives;
}

bool PredictLatencies(const ServedPlacement& served, v1::DeploymentPlan* plan) {
  const std::vector<RequestClass>& classes = served.problem->classes;
  if (served.placement->requests_per_second <= 0) return true;
  const Served at(served, *plan);
  const bool waits_end = at.SetLatencies(plan);
  if (!AnyLimits(classes)) return waits_end;
  const Attained attained = at.All();
  v1::Prediction& prediction = *plan->mutable_prediction();
  prediction.set_attainment(attained.all);
  for (size_t c = 0; c < classes.size(); ++c) {
    v1::ClassPrediction& out = *prediction.add_classes();
    out.set_name(classes[c].name);
    out.set_share(classes[c].share);
    *out.mutable_objectives() = ObjectivesOf(classes[c]);
    out.set_judged_with(classes[c].judged_with);
    out.set_attainment(attained.by_class[c]);
    out.set_time_to_first_token_seconds(FiniteOrZero(attained.ttft_seconds[c]));
    out.set_end_to_end_seconds(FiniteOrZero(attained.end_to_end_seconds[c]));
    out.set_prefix_hit_rate(classes[c].samples.front().prefix_hit_rate);
    AddLengths(classes[c], &out);
  }
  return waits_end;
}

std::optional<v1::HardestLimit> HardestLimitOf(const ServedPlacement& served,
                                               const v1::DeploymentPlan& plan) {
  std::vector<v1::WithoutLimit> limits;
  for (const auto& [name, limit] :
       {std::pair(v1::LATENCY_LIMIT_TTFT, &LatencyLimits::ttft_seconds),
        {v1::LATENCY_LIMIT_TPOT, &LatencyLimits::tpot_seconds},
        {v1::LATENCY_LIMIT_END_TO_END, &LatencyLimits::end_to_end_seconds}}) {
    PlacementProblem without = *served.problem;
    bool any = false;
    for (RequestClass& one : without.classes) {
      any = any || std::isfinite(one.limits.*limit);
      one.limits.*limit = std::numeric_limits<double>::infinity();
    }
    if (!any) continue;
    ServedPlacement other = served;
    other.problem = &without;
    limits.emplace_back().set_limit(name);
    limits.back().set_attainment(Served(other, plan).All().all);
  }
  if (limits.size() < 2) return std::nullopt;
  std::stable_sort(limits.begin(), limits.end(),
                   [](const auto& a, const auto& b) { return a.attainment() > b.attainment(); });
  // None by itself where they keep out the same, or nothing.
  const double with_all = Served(served, plan).All().all;
  if (limits.front().attainment() < with_all + kWorthTelling) return std::nullopt;
  v1::HardestLimit hardest;
  for (v1::WithoutLimit& one : limits) *hardest.add_without() = std::move(one);
  return hardest;
}

std::string AttainmentTable(const v1::DeploymentPlan& plan) {
  const v1::Prediction& prediction = plan.prediction();
  if (prediction.classes().empty()) return "";
  std::string out =
      absl::StrFormat("predicted within their limits at %.3f requests/s: %.1f %% of the requests\n",
                      plan.basis().requests_per_second(), 100 * prediction.attainment());
  const auto together =
      std::count_if(prediction.classes().begin(), prediction.classes().end(),
                    [](const v1::ClassPrediction& one) { return one.judged_with() == 0; });
  constexpr double kAbout = 0.999;
  bool missed = false;
  for (const v1::ClassPrediction& one : prediction.classes()) {
    absl::StrAppendFormat(
        &out, "  %s, %.1f %% of the requests: %.1f %% within (asked: %g %%%s) %s", one.name(),
        100 * one.share(), 100 * one.attainment(), 100 * one.objectives().attainment(),
        one.judged_with() == 0 && together > 1 ? ", all classes without their own limits together"
                                               : "",
        LimitsText(one.objectives()));
    if (one.time_to_first_token_seconds() > 0) {
      absl::StrAppendFormat(&out, "; mean TTFT %.3g s, end to end %.3g s",
                            one.time_to_first_token_seconds(), one.end_to_end_seconds());
    }
    out += "\n";
    missed = missed || one.attainment() < one.objectives().attainment() * kAbout;
  }
  if (missed && !plan.basis().goodput()) {
    out +=
        "warning: fewer requests are within their limits than asked, because this objective "
        "considers the mean TPOT only: --objective goodput plans for all limits, --rate for less "
        "load\n";
  }
  return out;
}

}  // namespace tessera::scheduler
