#include "deploy/simulate_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "deploy/plan_command.h"
#include "deploy/plan_file.h"
#include "proto/quantity.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/pictures.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"
#include "third_party/absl/str_cat.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {
namespace {

// Where nothing says how fast requests come.
constexpr double kDefaultLoad = 0.85;
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

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus()
              : absl::UnavailableError(StrCat(path, ": cannot be written; is its folder there?"));
}

class SimulateCall {
 public:
  explicit SimulateCall(const SimulateFlags& flags) : flags_(flags) {}

  absl::StatusOr<std::string> Run() {
    if (absl::Status s = Read(); !s.ok()) return s;
    const absl::StatusOr<scheduler::SimulationResult> result = SimulateAt(rate_, true);
    if (!result.ok()) return result.status();
    const auto& objectives = input_.workload.objectives();
    std::string out =
        ReportTable(ReportOf(*result, objectives, replicas_.usd_per_hour), objectives);
    out += "\nassumptions:\n";
    for (const std::string& line : assumptions_) out += StrCat("  ", line, "\n");
    if (!flags_.csv.empty()) {
      if (absl::Status s = WriteText(flags_.csv, RequestsCsv(*result)); !s.ok()) return s;
      out += StrCat("\nrequests written to ", flags_.csv, "\n");
    }
    if (!flags_.timeline_svg.empty()) {
      if (absl::Status s = WriteText(flags_.timeline_svg, TimelineSvg(*result)); !s.ok()) return s;
      out += StrCat("\ntimeline written to ", flags_.timeline_svg, "\n");
    }
    if (flags_.attainment_svg.empty() && flags_.rates_csv.empty()) return out;
    if (absl::Status s = Curve(&out); !s.ok()) return s;
    return out;
  }

 private:
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
    absl::StatusOr<PlanQuestion> read = ReadPlanQuestion(question);
    if (!read.ok()) return read.status();
    input_ = std::move(read->input);
    if (input_.model.layers() != plan_.model().layers()) {
      return absl::InvalidArgumentError(StrCat("--model: ", question.model, " has ",
                                               input_.model.layers(), " layers, but ", flags_.plan,
                                               " places a model of ", plan_.model().layers(),
                                               ": leave --model out, or plan for this model"));
    }
    absl::StatusOr<scheduler::ClusterGraph> graph =
        scheduler::MakeClusterGraph(input_.cluster, input_.catalogue, flags_.cluster);
    if (!graph.ok()) return graph.status();
    graph_ = *std::move(graph);
    scheduler::PlanReplicaOptions options;
    options.max_sequences = flags_.max_sequences;
    options.max_batched_tokens = flags_.max_batched_tokens;
    absl::StatusOr<scheduler::PlanReplicas> replicas = ReplicasOfPlan(plan_, graph_, options);
    if (!replicas.ok())
      return absl::InvalidArgumentError(
          StrCat(flags_.plan, ": ", StdView(replicas.status().message())));
    replicas_ = *std::move(replicas);
    for (const std::string& text : flags_.changes) {
      if (absl::Status s = ReadChange(text); !s.ok()) return s;
    }
    return ReadObjectivesAndRate();
  }

  absl::Status ReadChange(const std::string& text) {
    const auto error = [&](std::string_view reason) {
      return absl::InvalidArgumentError(
          StrCat("--change: \"", text, "\": ", reason,
                 "; write \"r0 lost 10 s\", \"r0 back 40 s\" or \"r1 slow 2.5 5 s\""));
    };
    std::istringstream words(text);
    std::string name, what, time;
    words >> name >> what;
    scheduler::ScheduledChange change;
    const auto& replicas = replicas_.replicas;
    const auto found = std::find_if(replicas.begin(), replicas.end(),
                                    [&](const auto& r) { return r.name == name; });
    if (found == replicas.end()) return error(StrCat("the plan has no replica ", name));
    change.replica = static_cast<int>(found - replicas.begin());
    if (what == "lost") {
      change.kind = scheduler::ScheduledChange::Kind::kLose;
    } else if (what == "back") {
      change.kind = scheduler::ScheduledChange::Kind::kRecover;
    } else if (what == "slow") {
      change.kind = scheduler::ScheduledChange::Kind::kSlow;
      if (!(words >> change.factor) || !(change.factor > 0)) return error("by what factor?");
    } else {
      return error("what happens to it?");
    }
    std::getline(words >> std::ws, time);
    if (absl::Status s = ReadLimit("--change", time, &change.at_seconds); !s.ok()) return s;
    if (time.empty()) return error("when?");
    changes_.push_back(change);
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
    if (rate_ <= 0) rate_ = kDefaultLoad * predicted_;
    if (rate_ <= 0) {
      return absl::InvalidArgumentError(
          "--rate: neither the workload nor the plan says how many requests come per second");
    }
    Assume();
    return absl::OkStatus();
  }

  // Lines of the plan that the simulation's own workload, rate or limits take the place of.
  bool Replaced(const std::string& line) const {
    const bool limits = flags_.max_batched_tokens > 0 || flags_.max_sequences > 0;
    for (const char* start : {"rate = ", "prompts = ", "prefix hits = "}) {
      if (line.starts_with(start)) return true;
    }
    return limits && line.starts_with("at most ");
  }

  static std::string LimitText(int64_t limit, const char* what, const char* flag) {
    return limit > 0 ? StrCat("at most ", limit, " ", what, " (", flag, ")")
                     : StrCat(what, " as the plan says");
  }

  void Assume() {
    for (const std::string& line : plan_.assumptions()) {
      if (!Replaced(line)) assumptions_.push_back(line);
    }
    if (flags_.max_batched_tokens > 0 || flags_.max_sequences > 0) {
      assumptions_.push_back(StrCat(
          LimitText(flags_.max_batched_tokens, "tokens in one step", "--max-batched-tokens"), ", ",
          LimitText(flags_.max_sequences, "sequences at once in one replica", "--max-sequences")));
    }
    const scheduler::LengthMoments lengths = scheduler::MomentsOf(samples_.samples);
    assumptions_.push_back(absl::StrFormat(
        "prompts = %.0f tokens and answers = %.0f on average, prefix hits = %.1f %% of prompt "
        "tokens (the simulated workload)",
        lengths.prompt_tokens, lengths.output_tokens, 100 * samples_.prefix_hit_rate));
    assumptions_.push_back(
        absl::StrFormat("requests come at %.3f per second, %.0f %% of what the plan predicts",
                        rate_, predicted_ > 0 ? 100 * rate_ / predicted_ : 0.0));
    if (input_.trace.empty()) {
      assumptions_.push_back(
          absl::StrFormat("%d requests drawn with seed %d; gaps vary by %g (1: Poisson)",
                          flags_.requests, flags_.seed, samples_.arrival_variation));
    } else {
      assumptions_.push_back(
          absl::StrFormat("%d requests as the trace has them, its clock scaled "
                          "to the rate",
                          input_.trace.size()));
    }
    assumptions_.push_back(StrCat(
        "routing = ", flags_.routing,
        "; it does not know how long an answer will be, only the limit ", "that a request sends: ",
        flags_.max_tokens > 0 ? StrCat(flags_.max_tokens, " tokens (--max-tokens)")
                              : "that of the longest answer, for all"));
  }

  absl::StatusOr<std::unique_ptr<scheduler::Dispatcher>> MakeDispatcher() const {
    if (flags_.routing == "router") return scheduler::MakePlanDispatcher({{0, replicas_.shares}});
    if (flags_.routing == "load") return scheduler::MakeRouterDispatcher();
    if (flags_.routing == "round-robin") return scheduler::MakeRoundRobinDispatcher();
    if (flags_.routing == "shares") return scheduler::MakeSharesDispatcher(replicas_.shares);
    return absl::InvalidArgumentError(
        StrCat("--routing: \"", flags_.routing, "\" is none of router, load, shares, round-robin"));
  }

  absl::StatusOr<scheduler::SimulationResult> SimulateAt(double rate, bool sampled) const {
    scheduler::SimulationSetup setup;
    setup.replicas = replicas_.replicas;
    setup.transfers = replicas_.transfers;
    setup.changes = changes_;
    if (input_.trace.empty()) {
      const scheduler::ArrivalProcess process = {rate, samples_.arrival_variation, flags_.requests,
                                                 flags_.seed};
      setup.requests = RequestsFromProcess(process, samples_.samples);
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
      const absl::StatusOr<scheduler::SimulationResult> result = SimulateAt(rate, false);
      if (!result.ok()) return result.status();
      points.push_back(
          {rate, ReportOf(*result, input_.workload.objectives(), replicas_.usd_per_hour)});
    }
    const double wanted = input_.workload.objectives().attainment();
    if (!flags_.attainment_svg.empty()) {
      const std::string svg = scheduler::AttainmentSvg(points, wanted > 0 ? wanted : 0.99);
      if (absl::Status s = WriteText(flags_.attainment_svg, svg); !s.ok()) return s;
      *out += StrCat("\nattainment over rate written to ", flags_.attainment_svg, "\n");
    }
    if (flags_.rates_csv.empty()) return absl::OkStatus();
    *out += StrCat("\nfigures over rate written to ", flags_.rates_csv, "\n");
    return WriteText(flags_.rates_csv, scheduler::RatesCsv(points));
  }

  const SimulateFlags& flags_;
  v1::DeploymentPlan plan_;
  scheduler::ClusterGraph graph_;
  scheduler::PlanReplicas replicas_;
  std::vector<scheduler::ScheduledChange> changes_;
  scheduler::PlannerInput input_;
  scheduler::WorkloadSamples samples_;
  double predicted_ = 0;
  double rate_ = 0;
  std::vector<std::string> assumptions_;
};

}  // namespace

void AddSimulate(CLI::App& app, SimulateFlags* flags) {
  CLI::App* simulate =
      app.add_subcommand("simulate", "Simulate a plan: what users of it would see");
  simulate->add_option("plan", flags->plan, "plan.json, from tessera plan --out")->required();
  simulate->add_option("--cluster", flags->cluster, "The cluster's description, YAML or JSON")
      ->required();
  simulate->add_option("--model", flags->model, "As for tessera plan; default: the plan's");
  simulate->add_option("--workload", flags->workload,
                       "Description (YAML, JSON) or trace (.csv, .jsonl); default: --prompt, "
                       "--output");
  simulate->add_option("--prompt", flags->prompt_tokens, "Tokens of a prompt")
      ->check(WholeFrom(1))
      ->capture_default_str();
  simulate->add_option("--output", flags->output_tokens, "Tokens of an answer")
      ->check(WholeFrom(1))
      ->capture_default_str();
  simulate
      ->add_option("--rate", flags->requests_per_second,
                   "Requests per second; 0: the workload's, else 85 % of the plan's")
      ->check(NonNegative());
  simulate->add_option("--requests", flags->requests, "How many to draw; a trace has its own")
      ->check(Between(1, 100'000'000))
      ->capture_default_str();
  simulate->add_option("--seed", flags->seed, "Of the draws")->capture_default_str();
  simulate
      ->add_option("--routing", flags->routing,
                   "router (as the coordinator: by load, within the plan's shares), load (without "
                   "shares), shares (without load), round-robin")
      ->capture_default_str();
  simulate
      ->add_option("--max-sequences", flags->max_sequences,
                   "Sequences of a replica at once; 0: as planned")
      ->check(WholeFrom(0));
  simulate
      ->add_option("--max-batched-tokens", flags->max_batched_tokens,
                   "Tokens of one step; 0: as planned")
      ->check(WholeFrom(0));
  simulate
      ->add_option("--max-tokens", flags->max_tokens,
                   "The limit that requests send; 0: the longest answer of them all")
      ->check(WholeFrom(0));
  simulate->add_option("--max-ttft", flags->max_ttft, "Objective, such as \"2 s\"");
  simulate->add_option("--max-tpot", flags->max_tpot, "Objective, such as \"150 ms\"");
  simulate->add_option("--max-e2e", flags->max_end_to_end, "Objective, such as \"30 s\"");
  simulate
      ->add_option(
          "--change", flags->changes,
          "What happens meanwhile: \"r0 lost 10 s\", \"r0 back 40 s\", \"r1 slow 2.5 5 s\"")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  simulate->add_option("--csv", flags->csv, "Write a line per request here");
  simulate->add_option("--rates-csv", flags->rates_csv, "Write figures over the rate here");
  simulate->add_option("--attainment-svg", flags->attainment_svg,
                       "Draw attainment over the rate here");
  simulate->add_option("--timeline-svg", flags->timeline_svg, "Draw queues and KV over time here");
}

absl::StatusOr<std::string> SimulateFromFiles(const SimulateFlags& flags) {
  return SimulateCall(flags).Run();
}

}  // namespace tessera::deploy
