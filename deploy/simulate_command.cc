#include "deploy/simulate_command.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "deploy/plan_command.h"
#include "deploy/plan_file.h"
#include "deploy/simulate_schedule.h"
#include "deploy/simulate_workflows.h"
#include "proto/layers/layers.h"
#include "proto/quantity.h"
#include "proto/written_file.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/move_cost.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/pictures.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

// Where nothing says how fast requests come.
constexpr double kDefaultLoad = 0.85;
// Where nothing says how many come: so often is what is in the system at once to come again between
// first and last arrival, since the first requests meet empty devices, and what is sustained is
// measured in the second half.
constexpr double kStays = 12;
constexpr double kMinStays = 6;  // fewer tell little: who asks for so few requests gets a warning
constexpr int64_t kMinRequests = 5000, kMaxRequests = 60'000;
constexpr int kMaxDraws = 3;  // requests stay longer once everything has filled
// Rates of the attainment curve, as parts of what the plan predicts.
constexpr int kCurvePoints = 12;
constexpr double kHighestCurveLoad = 1.2;
constexpr int kTimelineSamples = 400;

absl::Status ReadLimit(const char* flag, const std::string& text, double* seconds) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<double> value = ParseQuantity(text, Dimension::kSeconds);
  if (!value.ok())
    return absl::InvalidArgumentError(StrCat(flag, ": ", StdView(value.status().message())));
  *seconds = *value;
  return absl::OkStatus();
}

scheduler::TokenLimits TokenLimitsOf(const scheduler::LatencyLimits& limits) {
  const auto given = [](double seconds) { return std::isfinite(seconds) ? seconds : 0; };
  return {given(limits.ttft_seconds), given(limits.end_to_end_seconds)};
}

class SimulateCall {
 public:
  explicit SimulateCall(const SimulateFlags& flags) : flags_(flags) {}

  absl::StatusOr<std::string> Run() {
    if (absl::Status s = Read(); !s.ok()) return s;
    if (!flags_.workflows.empty()) return Workflows();
    if (absl::Status s = ReadObjectivesAndRate(); !s.ok()) return s;
    const absl::StatusOr<scheduler::SimulationResult> result = SimulateEnough();
    if (!result.ok()) return result.status();
    Assume();
    std::string out = Report(*result);
    if (absl::Status s = Write(*result, &out); !s.ok()) return s;
    if (flags_.attainment_svg.empty() && flags_.rates_csv.empty()) return out;
    if (absl::Status s = Curve(&out); !s.ok()) return s;
    return out;
  }

 private:
  std::string Report(const scheduler::SimulationResult& result) const {
    const double price = MeanUsdPerHour(schedule_.timeline, result.end_seconds);
    const scheduler::SimulationReport report = ReportOf(result, samples_.classes, price);
    const bool drawn = input_.trace.empty();
    std::string out = ReportTable(report, drawn ? rate_ : 0, TooFew(report));
    out += "\nassumptions:\n";
    for (const std::string& line : assumptions_) out += StrCat("  ", line, "\n");
    for (const std::string& line : schedule_.assumptions) out += StrCat("  ", line, "\n");
    return out;
  }

  // For whoever is shown a file of this simulation alone.
  std::string RestsOn() const {
    if (flags_.cost_table != "model")
      return "simulated, not measured: steps cost what DistServe's authors fitted for OPT";
    const std::string estimates = scheduler::EstimatesText(plan_);
    return StrCat("simulated with the cost model",
                  estimates.empty() ? ", not measured" : StrCat("; ", estimates));
  }

  absl::Status Write(const scheduler::SimulationResult& result, std::string* out) const {
    if (!flags_.csv.empty()) {
      if (absl::Status s = WriteFileText(flags_.csv, RequestsCsv(result, RestsOn())); !s.ok())
        return s;
      *out += StrCat("\nrequests written to ", flags_.csv, "\n");
    }
    if (!flags_.timeline_svg.empty()) {
      if (absl::Status s = WriteFileText(flags_.timeline_svg, TimelineSvg(result, RestsOn()));
          !s.ok())
        return s;
      *out += StrCat("\ntimeline written to ", flags_.timeline_svg, "\n");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Workflows() {
    for (const auto& [flag, given] : {std::pair("--attainment-svg", !flags_.attainment_svg.empty()),
                                      {"--rates-csv", !flags_.rates_csv.empty()},
                                      {"--timeline-svg", !flags_.timeline_svg.empty()},
                                      {"--workload", !flags_.workload.empty()},
                                      {"--prompt", flags_.prompt_tokens > 0},
                                      {"--output", flags_.output_tokens > 0},
                                      {"--max-tokens", flags_.max_tokens > 0}}) {
      if (!given) continue;
      return absl::InvalidArgumentError(
          StrCat(flag, ": is only for single requests: leave it out with --workflows"));
    }
    WorkflowFlags flags;
    flags.source = flags_.workflows;
    flags.csv = flags_.workflows_csv;
    flags.rests_on = RestsOn();
    flags.workflows_per_second = flags_.requests_per_second;
    flags.workflows = flags_.requests;
    flags.seed = flags_.seed;
    if (!flags_.routing.empty()) flags.routing = flags_.routing;
    if (!flags_.alphas.empty()) flags.tuning.alphas = flags_.alphas;
    flags.tuning.window = flags_.tuning_window;
    flags.tuning.every = flags_.tuning_every;
    absl::StatusOr<WorkflowsOnPlan> result =
        SimulateWorkflowsOn(schedule_.timeline.replicas, schedule_.changes, flags);
    if (!result.ok()) return result.status();
    AssumePlan();
    assumptions_.insert(assumptions_.end(), result->assumptions.begin(), result->assumptions.end());
    std::string out = StrCat(result->table, "\ntheir calls:\n", Report(result->simulation));
    if (absl::Status s = Write(result->simulation, &out); !s.ok()) return s;
    return out;
  }

  // What steps cost: null for the cost model.
  absl::StatusOr<std::shared_ptr<const scheduler::CostTable>> ReadCostTable() {
    constexpr std::string_view kDistServe = "distserve:";
    const std::string& name = flags_.cost_table;
    if (name == "model") return nullptr;
    const bool known = name.starts_with(kDistServe);
    const absl::StatusOr<scheduler::FittedLatencies> fit =
        scheduler::DistServeLatencies(known ? name.substr(kDistServe.size()) : "");
    if (!fit.ok()) {
      return absl::InvalidArgumentError(StrCat("--cost-table: \"", name,
                                               "\" is neither \"model\" nor \"", kDistServe,
                                               "FIT\": ", StdView(fit.status().message())));
    }
    assumptions_.push_back(StrCat(
        "every step costs what DistServe's authors fitted for OPT-", name.substr(kDistServe.size()),
        " on A100-80, whatever the plan's model and devices (--cost-table); KV room is the "
        "plan's"));
    return scheduler::MakeFittedCostTable(*fit);
  }

  absl::Status Read() {
    absl::StatusOr<v1::DeploymentPlan> plan = ReadPlanFile(flags_.plan);
    if (!plan.ok()) return plan.status();
    plan_ = *std::move(plan);
    PlanFlags question;
    question.cluster = flags_.cluster;
    question.model = flags_.model.empty() ? plan_.model().name() : flags_.model;
    question.workload = flags_.workload;
    question.prompt_tokens = flags_.prompt_tokens;
    question.output_tokens = flags_.output_tokens;
    question.requests_per_second = flags_.requests_per_second;
    question.max_tpot = flags_.max_tpot;
    question.weight_read = flags_.weight_read;
    question.weight_network = flags_.weight_network;
    question.options.move.keeps_weights = flags_.move_keeps_weights;
    absl::StatusOr<PlanQuestion> read = ReadPlanQuestion(question);
    if (!read.ok()) return read.status();
    if (absl::Status s = scheduler::CheckMoveOptions(read->options.move); !s.ok()) return s;
    input_ = read->input;
    if (LayerCount(input_.model) != LayerCount(plan_.model())) {
      return absl::InvalidArgumentError(
          StrCat("--model: ", question.model, " has ", LayerCount(input_.model), " layers, but ",
                 flags_.plan, " places a model of ", LayerCount(plan_.model()),
                 ": leave --model out, or plan for this model"));
    }
    absl::StatusOr<scheduler::ClusterGraph> graph =
        scheduler::MakeClusterGraph(input_.cluster, input_.catalogue, flags_.cluster);
    if (!graph.ok()) return graph.status();
    graph_ = *std::move(graph);
    const absl::Status fits = scheduler::CheckPlanOn(plan_, input_.cluster, input_.catalogue);
    if (!fits.ok()) {
      return absl::InvalidArgumentError(
          StrCat(flags_.plan, ": ", StdView(fits.message()),
                 "; --cluster must describe the cluster that the plan was made for"));
    }
    scheduler::PlanReplicaOptions options;
    options.max_sequences = flags_.max_sequences;
    options.max_batched_tokens = flags_.max_batched_tokens;
    absl::StatusOr<std::shared_ptr<const scheduler::CostTable>> cost = ReadCostTable();
    if (!cost.ok()) return cost.status();
    options.cost = *std::move(cost);
    absl::StatusOr<scheduler::PlanReplicas> replicas = ReplicasOfPlan(plan_, graph_, options);
    if (!replicas.ok())
      return absl::InvalidArgumentError(
          StrCat(flags_.plan, ": ", StdView(replicas.status().message())));
    absl::StatusOr<SimulationSchedule> schedule = ReadSchedule(
        {flags_.changes, flags_.replans}, plan_, *std::move(replicas), *read, graph_, options);
    if (!schedule.ok()) return schedule.status();
    schedule_ = *std::move(schedule);
    return absl::OkStatus();
  }

  absl::Status ReadObjectivesAndRate() {
    v1::ServiceObjectives* objectives = input_.workload.mutable_objectives();
    double ttft = objectives->time_to_first_token_seconds();
    double end_to_end = objectives->end_to_end_seconds();
    if (absl::Status s = ReadLimit("--max-ttft", flags_.max_ttft, &ttft); !s.ok()) return s;
    if (absl::Status s = ReadLimit("--max-e2e", flags_.max_end_to_end, &end_to_end); !s.ok())
      return s;
    objectives->set_time_to_first_token_seconds(ttft);
    objectives->set_end_to_end_seconds(end_to_end);
    absl::StatusOr<scheduler::WorkloadSamples> samples = SamplesOf(
        input_.workload, input_.trace, plan_.model().max_positions(), input_.workload_file);
    if (!samples.ok()) return samples.status();
    samples_ = *std::move(samples);
    predicted_ = plan_.prediction().requests_per_second();
    rate_ = samples_.requests_per_second;
    rate_origin_ = flags_.requests_per_second > 0 ? "--rate" : "the workload's";
    if (rate_ <= 0) {
      rate_ = kDefaultLoad * predicted_;
      rate_origin_ = "none was given";
    }
    if (rate_ <= 0) {
      return absl::InvalidArgumentError(
          "--rate: neither the workload nor the plan says how many requests come per second");
    }
    return absl::OkStatus();
  }

  // With as many requests as the flags or the trace say, or as it takes.
  absl::StatusOr<scheduler::SimulationResult> SimulateEnough() {
    requests_ = flags_.requests > 0 ? flags_.requests : kMinRequests;
    absl::StatusOr<scheduler::SimulationResult> result = SimulateAt(rate_, requests_, true);
    if (flags_.requests > 0 || !input_.trace.empty()) return result;
    for (int draw = 1; draw < kMaxDraws && result.ok(); ++draw) {
      stay_seconds_ = MeanStaySeconds(ReportOf(*result, samples_.classes));
      const int64_t enough = EnoughRequests(rate_);
      if (enough <= requests_) break;
      requests_ = enough;
      result = SimulateAt(rate_, requests_, true);
    }
    return result;
  }

  // Drawn at that rate.
  int64_t EnoughRequests(double rate) const {
    if (flags_.requests > 0) return flags_.requests;
    const double enough = std::ceil(kStays * rate * stay_seconds_);
    return static_cast<int64_t>(std::clamp(enough, double{kMinRequests}, double{kMaxRequests}));
  }

  // Whether requests came for long enough, in words where they did not.
  std::string TooFew(const scheduler::SimulationReport& report) const {
    const double stay = MeanStaySeconds(report);
    if (rate_ <= 0 || stay <= 0 || report.arrival_seconds >= kMinStays * stay) return "";
    const double enough = std::max(2.0, kStays * rate_ * stay);
    const double unit = std::pow(10, std::floor(std::log10(enough)) - 1);
    return absl::StrFormat(
        "warning: requests arrived for %.3g s and take %.3g s on average: too few to measure the "
        "sustained rate; %s",
        report.arrival_seconds, stay,
        input_.trace.empty()
            ? absl::StrFormat("--requests %.0f", std::max(2.0, std::ceil(enough / unit) * unit))
            : std::string("use a longer trace"));
  }

  static std::string LimitText(int64_t limit, const char* what, const char* flag) {
    return limit > 0 ? StrCat("at most ", limit, " ", what, " (", flag, ")")
                     : StrCat(what, " as the plan says");
  }

  void AssumePlan() {
    // The simulation has its own workload, rate and limits.
    v1::Assumptions assumed = plan_.assumptions();
    assumed.mutable_workload()->clear_length_pairs();
    assumed.clear_classes();
    if (flags_.max_batched_tokens > 0 || flags_.max_sequences > 0)
      assumed.mutable_planning()->clear_max_step_tokens();
    for (std::string& line : scheduler::AssumptionLines(assumed))
      assumptions_.push_back(std::move(line));
  }

  std::string Routing() const { return flags_.routing.empty() ? "router" : flags_.routing; }

  // Answers end at the limit that requests send.
  scheduler::LengthMoments SentLengths() const {
    std::vector<scheduler::RequestLengths> sent = samples_.samples;
    for (scheduler::RequestLengths& one : sent) {
      if (flags_.max_tokens > 0)
        one.output_tokens = std::min(one.output_tokens, static_cast<double>(flags_.max_tokens));
    }
    return scheduler::MomentsOf(sent);
  }

  void Assume() {
    AssumePlan();
    if (flags_.max_batched_tokens > 0 || flags_.max_sequences > 0) {
      assumptions_.push_back(StrCat(
          LimitText(flags_.max_batched_tokens, "tokens in one step", "--max-batched-tokens"), ", ",
          LimitText(flags_.max_sequences, "sequences at once in one replica", "--max-sequences")));
    }
    const scheduler::LengthMoments lengths = SentLengths();
    assumptions_.push_back(absl::StrFormat(
        "prompts = %.0f tokens and answers = %.0f on average, prefix hits = %.1f %% of prompt "
        "tokens (the simulated workload)",
        lengths.prompt_tokens, lengths.output_tokens, 100 * samples_.prefix_hit_rate));
    assumptions_.push_back(absl::StrFormat(
        "requests arrive at %.3f per second (%s), %.0f %% of the rate that the plan predicts",
        rate_, rate_origin_, predicted_ > 0 ? 100 * rate_ / predicted_ : 0.0));
    if (input_.trace.empty()) {
      assumptions_.push_back(
          absl::StrFormat("%d requests drawn with seed %d; gaps vary by %g (1: Poisson)", requests_,
                          flags_.seed, samples_.arrival_variation));
    } else {
      assumptions_.push_back(
          absl::StrFormat("%d requests as the trace has them, its clock scaled "
                          "to the rate",
                          input_.trace.size()));
    }
    assumptions_.push_back(StrCat(
        "routing = ", Routing(),
        "; it knows only the max_tokens of a request, not the length of its answer: ",
        flags_.max_tokens > 0 ? StrCat(flags_.max_tokens, " tokens (--max-tokens), where it ends")
                              : "that of the longest answer, for all"));
  }

  absl::StatusOr<std::unique_ptr<scheduler::Dispatcher>> MakeDispatcher() const {
    const std::string routing = Routing();
    if (routing == "router") return scheduler::MakePlanDispatcher(schedule_.timeline.shares);
    if (routing == "load") return scheduler::MakeRouterDispatcher();
    if (routing == "round-robin") return scheduler::MakeRoundRobinDispatcher();
    if (routing == "shares" && flags_.replans.empty())
      return scheduler::MakeSharesDispatcher(schedule_.timeline.replicas.shares);
    return absl::InvalidArgumentError(
        routing == "shares"
            ? "--routing: \"shares\" does not follow --replan: router keeps each plan's shares"
            : StrCat("--routing: \"", routing, "\" is none of router, load, shares, round-robin"));
  }

  absl::StatusOr<scheduler::SimulationResult> SimulateAt(double rate, int64_t requests,
                                                         bool sampled) const {
    scheduler::SimulationSetup setup;
    setup.replicas = schedule_.timeline.replicas.replicas;
    setup.transfers = schedule_.timeline.replicas.transfers;
    setup.changes = schedule_.changes;
    for (const scheduler::RequestClass& one : samples_.classes)
      setup.limits.push_back(TokenLimitsOf(one.limits));
    if (input_.trace.empty()) {
      const scheduler::ArrivalProcess process = {rate, samples_.arrival_variation, requests,
                                                 flags_.seed};
      setup.requests = RequestsFromProcess(process, samples_.classes);
    } else {
      const double span = input_.trace.back().arrival_seconds;
      const double own = span > 0 ? static_cast<double>(input_.trace.size() - 1) / span : rate;
      setup.requests = RequestsFromTrace(input_.trace, rate / own, plan_.model().max_positions());
    }
    AskForAtMost(flags_.max_tokens, &setup.requests);
    if (sampled && !flags_.timeline_svg.empty()) {
      setup.sample_seconds =
          std::max(1e-3, setup.requests.back().arrival_seconds / kTimelineSamples);
    }
    absl::StatusOr<std::unique_ptr<scheduler::Dispatcher>> dispatcher = MakeDispatcher();
    if (!dispatcher.ok()) return dispatcher.status();
    return Simulate(setup, dispatcher->get());
  }

  absl::Status Curve(std::string* out) {
    const double full = predicted_ > 0 ? predicted_ : rate_;
    std::vector<scheduler::RatePoint> points;
    for (int i = 1; i <= kCurvePoints; ++i) {
      const double rate = full * kHighestCurveLoad * i / kCurvePoints;
      const absl::StatusOr<scheduler::SimulationResult> result =
          SimulateAt(rate, EnoughRequests(rate), false);
      if (!result.ok()) return result.status();
      points.push_back({rate, ReportOf(*result, samples_.classes,
                                       MeanUsdPerHour(schedule_.timeline, result->end_seconds))});
    }
    if (!flags_.attainment_svg.empty()) {
      double wanted = 0;
      for (const scheduler::RequestClass& one : samples_.classes)
        wanted = std::max(wanted, one.required_attainment);
      const std::string svg = scheduler::AttainmentSvg(points, wanted, RestsOn());
      if (absl::Status s = WriteFileText(flags_.attainment_svg, svg); !s.ok()) return s;
      *out += StrCat("\nattainment over rate written to ", flags_.attainment_svg, "\n");
    }
    if (flags_.rates_csv.empty()) return absl::OkStatus();
    *out += StrCat("\nfigures over rate written to ", flags_.rates_csv, "\n");
    return WriteFileText(flags_.rates_csv, scheduler::RatesCsv(points, RestsOn()));
  }

  const SimulateFlags& flags_;
  v1::DeploymentPlan plan_;
  scheduler::ClusterGraph graph_;
  SimulationSchedule schedule_;
  scheduler::PlannerInput input_;
  scheduler::WorkloadSamples samples_;
  double predicted_ = 0;
  double rate_ = 0;          // 0: of workflows, which have their own
  int64_t requests_ = 0;     // that were drawn
  double stay_seconds_ = 0;  // of a request in the system, where that says how many to draw
  std::string rate_origin_;
  std::vector<std::string> assumptions_;
};

}  // namespace

absl::StatusOr<std::string> SimulateFromFiles(const SimulateFlags& flags) {
  return SimulateCall(flags).Run();
}

}  // namespace tessera::deploy
