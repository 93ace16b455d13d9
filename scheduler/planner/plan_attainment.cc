#include "scheduler/planner/plan_attainment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/search/goodput.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMostLengths = 128;  // of a class that the plan lists

// What replicas do at the rates that are sent to them.
class Served {
 public:
  Served(const ServedPlacement& served, const v1::DeploymentPlan& plan)
      : problem_(*served.problem),
        placement_(*served.placement),
        load_(served.load),
        model_(*problem_.model, problem_.classes, problem_.options, problem_.arrival_variation),
        at_(placement_.replicas.size()) {
    for (const Share& share : placement_.shares) {
      at_[static_cast<size_t>(share.prefill)].prefills += load_ * share.requests_per_second;
      at_[static_cast<size_t>(share.decode)].decodes += load_ * share.requests_per_second;
    }
    for (size_t i = 0; i < at_.size(); ++i) {
      const int64_t planned = plan.replicas(static_cast<int>(i)).max_batched_tokens();
      const int64_t tokens = planned > 0 ? planned : problem_.options.memory.max_step_tokens;
      Operate(placement_.replicas[i], static_cast<double>(tokens), &at_[i]);
    }
  }

  // The plan's latencies, of each replica and of all, as they are judged here.
  void SetLatencies(v1::DeploymentPlan* plan) const {
    double ttft = 0, tpot = 0;
    for (size_t i = 0; i < at_.size(); ++i) {
      v1::Prediction& prediction =
          *plan->mutable_replicas(static_cast<int>(i))->mutable_prediction();
      prediction.set_time_per_output_token_seconds(at_[i].tpot_seconds);
      tpot += at_[i].decodes * at_[i].tpot_seconds;
      if (at_[i].prefills <= 0) continue;
      const Attained attained = model_.At(at_[i].speed, at_[i].prefills, at_[i].tpot_seconds);
      double mean = 0;
      for (size_t c = 0; c < problem_.classes.size(); ++c)
        mean += problem_.classes[c].share * attained.ttft_seconds[c];
      prediction.set_time_to_first_token_seconds(mean);
      ttft += at_[i].prefills * mean;
    }
    const double rate = load_ * placement_.requests_per_second;
    plan->mutable_prediction()->set_time_to_first_token_seconds(ttft / rate);
    plan->mutable_prediction()->set_time_per_output_token_seconds(tpot / rate);
  }

  // Means over the shares.
  Attained All() const {
    Attained sum;
    sum.by_class.assign(problem_.classes.size(), 0);
    sum.ttft_seconds = sum.end_to_end_seconds = sum.by_class;
    std::vector<const PlacedReplica*> replicas;
    for (const PlacedReplica& replica : placement_.replicas) replicas.push_back(&replica);
    const Transport transport = MakeTransport(problem_, model_.lengths(), replicas);
    for (const Share& share : placement_.shares) {
      const Attained one = Of(share, transport);
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
    double tpot_seconds = 0;
    PrefillSpeed speed;
  };

  void Operate(const PlacedReplica& replica, double step_tokens, At* at) const {
    const ReplicaSpec spec = SpecOf(problem_, replica);
    const int m = std::max(1, replica.rate.micro_batches);
    double rows = 0;
    if (replica.role == Role::kBoth && model_.lengths().decode_steps > 0) {
      rows = model_.RowsAtRate(spec, m, at->decodes, step_tokens);
      at->tpot_seconds = model_.PaceBeside(spec, m, rows, step_tokens).tpot_seconds;
    } else if (replica.role == Role::kDecode) {
      rows =
          DecodeRowsAt(*problem_.model, spec, model_.lengths(), problem_.options, m, at->decodes);
      const StepWork work = SteadyWork(replica.role, model_.lengths(), rows, problem_.options);
      at->tpot_seconds = m * PeriodOf(*problem_.model, spec, work, m).seconds;
    }
    if (replica.role != Role::kDecode) at->speed = model_.PrefillBeside(spec, m, rows, step_tokens);
  }

  Attained Of(const Share& share, const Transport& transport) const {
    const At& prefill = at_[static_cast<size_t>(share.prefill)];
    const At& decode = at_[static_cast<size_t>(share.decode)];
    if (share.prefill == share.decode)
      return model_.At(prefill.speed, prefill.prefills, decode.tpot_seconds);
    KvPath path;
    for (const Transport::Pair& pair : transport.pairs) {
      if (pair.prefill == share.prefill && pair.decode == share.decode)
        path = PathOf(problem_, pair);
    }
    return model_.At(prefill.speed, prefill.prefills, decode.tpot_seconds, &path);
  }

  const PlacementProblem& problem_;
  const Placement& placement_;
  const double load_;
  AttainmentModel model_;
  std::vector<At> at_;
};

// At most kMostLengths: of long lists, neighbours by end-to-end work are put together.
void AddLengths(const RequestClass& one, v1::ClassPrediction* out) {
  std::vector<RequestLengths> samples = one.samples;
  std::sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) {
    return std::pair(a.output_tokens, a.prompt_tokens) <
           std::pair(b.output_tokens, b.prompt_tokens);
  });
  const double each = 1.0 / static_cast<double>(std::min(samples.size(), kMostLengths));
  RequestLengths sum = {0, 0, 0};
  for (size_t i = 0; i < samples.size(); ++i) {
    sum.prompt_tokens += samples[i].weight * samples[i].prompt_tokens;
    sum.output_tokens += samples[i].weight * samples[i].output_tokens;
    sum.weight += samples[i].weight;
    if (samples.size() > kMostLengths && sum.weight < each && i + 1 < samples.size()) continue;
    v1::LengthSample& length = *out->add_lengths();
    length.set_prompt_tokens(std::llround(sum.prompt_tokens / sum.weight));
    length.set_output_tokens(std::llround(sum.output_tokens / sum.weight));
    length.set_weight(sum.weight);
    sum = {0, 0, 0};
  }
}

double FiniteOrZero(double value) { return std::isfinite(value) ? value : 0; }

std::string SecondsText(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.4g ms", seconds * 1e3)
                     : absl::StrFormat("%.4g s", seconds);
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

void PredictAttainment(const ServedPlacement& served, v1::DeploymentPlan* plan) {
  const std::vector<RequestClass>& classes = served.problem->classes;
  if (!AnyLimits(classes) || served.placement->requests_per_second <= 0) return;
  const Served at(served, *plan);
  const Attained attained = at.All();
  if (plan->basis().goodput()) at.SetLatencies(plan);
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
}

std::string LimitsText(const v1::ServiceObjectives& objectives) {
  std::vector<std::string> limits;
  for (const auto& [name, seconds] : {std::pair("TTFT", objectives.time_to_first_token_seconds()),
                                      {"TPOT", objectives.time_per_output_token_seconds()},
                                      {"end to end", objectives.end_to_end_seconds()}}) {
    if (seconds > 0) limits.push_back(StrCat(name, " <= ", SecondsText(seconds)));
  }
  return limits.empty() ? "no limit" : absl::StrJoin(limits, ", ");
}

std::string AttainmentTable(const v1::DeploymentPlan& plan) {
  const v1::Prediction& prediction = plan.prediction();
  if (prediction.classes().empty()) return "";
  std::string out =
      absl::StrFormat("predicted within their limits at %.3f requests/s: %.1f %% of the requests\n",
                      plan.basis().requests_per_second(), 100 * prediction.attainment());
  for (const v1::ClassPrediction& one : prediction.classes()) {
    absl::StrAppendFormat(
        &out, "  %s, %.1f %% of the requests: %.1f %% within (asked: %g %%%s) %s", one.name(),
        100 * one.share(), 100 * one.attainment(), 100 * one.objectives().attainment(),
        one.judged_with() == 0 && prediction.classes_size() > 1 ? ", all such classes together"
                                                                : "",
        LimitsText(one.objectives()));
    if (one.time_to_first_token_seconds() > 0) {
      absl::StrAppendFormat(&out, "; mean TTFT %s, end to end %s",
                            SecondsText(one.time_to_first_token_seconds()),
                            SecondsText(one.end_to_end_seconds()));
    }
    out += "\n";
  }
  return out;
}

}  // namespace tessera::scheduler
