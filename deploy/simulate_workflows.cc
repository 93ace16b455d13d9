#include "deploy/simulate_workflows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/document.h"
#include "proto/written_file.h"
#include "scheduler/simulator/report.h"
#include "scheduler/simulator/workflow_input.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

using scheduler::Workflow;
using scheduler::WorkflowResult;

constexpr char kGenerated[] = "generated";
// Where nothing says how fast workflows come, as a part of capacity; and how many find that out.
constexpr double kDefaultLoad = 0.85;
constexpr int64_t kCapacitySample = 300;

std::string WorkflowsCsv(const std::vector<Workflow>& workflows, const WorkflowResult& result) {
  std::string out = "workflow,arrival_seconds,stages,calls,deadline_seconds,seconds,fate,met\n";
  for (size_t w = 0; w < workflows.size(); ++w) {
    const Workflow& workflow = workflows[w];
    size_t calls = 0;
    for (const auto& stage : workflow.stages) calls += stage.size();
    const double seconds = result.seconds[w];
    absl::StrAppendFormat(&out, "%d,%.9g,%d,%d,%.9g,", w, workflow.arrival_seconds,
                          workflow.stages.size(), calls, workflow.deadline_seconds);
    if (seconds >= 0) absl::StrAppendFormat(&out, "%.9g", seconds);
    absl::StrAppendFormat(&out, ",%s,%d\n", seconds >= 0 ? "finished" : "failed",
                          seconds >= 0 && seconds <= workflow.deadline_seconds ? 1 : 0);
  }
  return out;
}

class Simulation {
 public:
  Simulation(const scheduler::PlanReplicas& plan,
             const std::vector<scheduler::ScheduledChange>& changes, const WorkflowFlags& flags)
      : replicas_(plan.replicas), links_(plan.transfers.links), changes_(changes), flags_(flags) {}

  absl::StatusOr<WorkflowsOnPlan> Run() {
    if (absl::Status s = Check(); !s.ok()) return s;
    if (absl::Status s = Read(); !s.ok()) return s;
    const absl::StatusOr<WorkflowResult> plain =
        SimulateWorkflows(replicas_, workflows_, {}, {}, expected_, changes_, links_);
    if (!plain.ok()) return plain.status();
    scheduler::TuningOptions tuning = flags_.tuning;
    tuning.tuned = flags_.routing != "round-robin";
    absl::StatusOr<WorkflowResult> result =
        SimulateWorkflows(replicas_, workflows_, {}, tuning, expected_, changes_, links_);
    if (!result.ok()) return result.status();
    WriteTable(*plain, *result, tuning.tuned);
    if (!flags_.csv.empty()) {
      const absl::Status written = WriteFileText(
          flags_.csv,
          StrCat(scheduler::CsvComment(flags_.rests_on), WorkflowsCsv(workflows_, *result)));
      if (!written.ok()) return written;
      out_.table += StrCat("\nworkflows written to ", flags_.csv, "\n");
    }
    out_.simulation = std::move(result->simulation);
    return std::move(out_);
  }

 private:
  absl::Status Check() const {
    if (flags_.routing != "tuned" && flags_.routing != "round-robin") {
      return absl::InvalidArgumentError(
          StrCat("--routing: \"", flags_.routing,
                 "\" does not go with --workflows; it is tuned or round-robin"));
    }
    for (const double alpha : flags_.tuning.alphas) {
      if (!(alpha >= 0 && alpha <= 1))
        return absl::InvalidArgumentError(StrCat("--alphas: ", alpha, " is not within 0 and 1"));
    }
    return absl::OkStatus();
  }

  absl::Status Read() {
    v1::AgentWorkflows described;
    if (flags_.source != kGenerated) {
      if (absl::Status s = ReadDocumentFile(flags_.source, &described); !s.ok()) return s;
      if (!described.workflows().empty() && described.has_generator()) {
        return absl::InvalidArgumentError(
            StrCat(flags_.source, ": it has workflows and a generator: leave one out"));
      }
    }
    if (!described.workflows().empty()) return ReadWritten(described);
    return Generate(described.generator());
  }

  // Their clock is scaled to the rate where one is asked for.
  absl::Status ReadWritten(const v1::AgentWorkflows& described) {
    absl::StatusOr<std::vector<Workflow>> read = scheduler::WorkflowsOf(described, flags_.source);
    if (!read.ok()) return read.status();
    workflows_ = *std::move(read);
    expected_ = MeanCall(workflows_);
    const double span = workflows_.back().arrival_seconds - workflows_.front().arrival_seconds;
    if (flags_.workflows_per_second > 0 && span > 0) {
      const double own = static_cast<double>(workflows_.size() - 1) / span;
      for (Workflow& workflow : workflows_)
        workflow.arrival_seconds *= own / flags_.workflows_per_second;
    }
    out_.assumptions.push_back(
        StrCat(workflows_.size(), " workflows of ", flags_.source,
               flags_.workflows_per_second > 0 ? ", their clock scaled to --rate" : ""));
    return FindCapacity(workflows_);
  }

  absl::Status Generate(const v1::AgentGenerator& generator) {
    absl::StatusOr<scheduler::WorkflowProcess> process =
        scheduler::ProcessOf(generator, flags_.source);
    if (!process.ok()) return process.status();
    process->seed = flags_.seed;
    expected_ = {static_cast<int64_t>(process->mean_prompt_tokens),
                 static_cast<int64_t>(process->mean_output_tokens)};
    std::vector<scheduler::ReplicaSpeed> speeds;
    const double context = process->mean_prompt_tokens + process->mean_output_tokens / 2;
    for (const scheduler::ReplicaSetup& replica : replicas_)
      speeds.push_back(SpeedOf(replica, context));
    scheduler::WorkflowProcess sample = *process;
    sample.workflows = kCapacitySample;
    sample.workflows_per_second = 1;
    if (absl::Status s = FindCapacity(GenerateWorkflows(sample, speeds)); !s.ok()) return s;
    if (flags_.workflows_per_second > 0)
      process->workflows_per_second = flags_.workflows_per_second;
    if (process->workflows_per_second <= 0)
      process->workflows_per_second = kDefaultLoad * capacity_;
    asked_rate_ = process->workflows_per_second;
    if (flags_.workflows > 0) process->workflows = flags_.workflows;
    workflows_ = GenerateWorkflows(*process, speeds);
    out_.assumptions.push_back(absl::StrFormat(
        "%d workflows drawn with seed %d: %d to %d calls, at most %d side by side, prompts of %g "
        "and answers of %g tokens on average; deadlines %g to %g times what each takes on the "
        "fastest replica alone",
        process->workflows, process->seed, process->fewest_calls, process->most_calls,
        process->most_parallel, process->mean_prompt_tokens, process->mean_output_tokens,
        process->least_slack, process->most_slack));
    return absl::OkStatus();
  }

  absl::Status FindCapacity(const std::vector<Workflow>& sample) {
    std::vector<scheduler::ReplicaSetup> ready;
    for (const scheduler::ReplicaSetup& replica : replicas_) {
      if (replica.ready) ready.push_back(replica);
    }
    const absl::StatusOr<double> capacity = WorkflowCapacity(ready, sample, expected_, links_);
    if (!capacity.ok()) return capacity.status();
    capacity_ = *capacity;
    return absl::OkStatus();
  }

  void WriteTable(const WorkflowResult& plain, const WorkflowResult& result, bool tuned) {
    const double span = workflows_.back().arrival_seconds - workflows_.front().arrival_seconds;
    const double rate = span > 0 ? static_cast<double>(workflows_.size() - 1) / span : 0;
    out_.table = absl::StrFormat(
        "%d workflows, %d calls, %s, %.0f %% of capacity\n\n"
        "  %-22s %13s %9s %9s %9s\n",
        workflows_.size(), result.calls, scheduler::RateText(asked_rate_, rate, "workflows "),
        capacity_ > 0 ? 100 * (asked_rate_ > 0 ? asked_rate_ : rate) / capacity_ : 0.0, "",
        "deadlines met", "p50", "p95", "failed");
    if (tuned) AppendRow("tuned", result);
    AppendRow("round-robin", plain);
    if (!tuned) return;
    absl::StrAppendFormat(&out_.table,
                          "\ntuned %d times; %.0f %% of the calls were sent by round-robin\n",
                          result.tunings,
                          100 * static_cast<double>(result.round_robin_calls) /
                              static_cast<double>(std::max<int64_t>(1, result.calls)));
    out_.assumptions.push_back(
        StrCat("dispatch is tuned every ", flags_.tuning.every, " workflows by replaying the last ",
               flags_.tuning.window, " with alpha = ", absl::StrJoin(flags_.tuning.alphas, ", "),
               " (--alphas) and round-robin; it is round-robin until another choice wins"));
  }

  void AppendRow(const char* name, const WorkflowResult& result) {
    std::vector<double> seconds;
    for (const double s : result.seconds) {
      if (s >= 0) seconds.push_back(s);
    }
    const size_t failed = result.seconds.size() - seconds.size();
    const scheduler::Percentiles percentiles = scheduler::PercentilesOf(&seconds);
    const auto text = [&](double value) {
      return percentiles.values > 0 ? absl::StrFormat("%.2f", value) : std::string("-");
    };
    absl::StrAppendFormat(&out_.table, "  %-22s %11.1f %% %7s s %7s s %9d\n", name,
                          100 * result.attainment, text(percentiles.p50), text(percentiles.p95),
                          failed);
  }

  const std::vector<scheduler::ReplicaSetup>& replicas_;
  const std::vector<scheduler::SharedLink>& links_;
  const std::vector<scheduler::ScheduledChange>& changes_;
  const WorkflowFlags& flags_;
  std::vector<Workflow> workflows_;
  scheduler::WorkflowCall expected_;
  double capacity_ = 0;
  double asked_rate_ = 0;  // of workflows, where they are drawn
  WorkflowsOnPlan out_;
};

}  // namespace

absl::StatusOr<WorkflowsOnPlan> SimulateWorkflowsOn(
    const scheduler::PlanReplicas& plan, const std::vector<scheduler::ScheduledChange>& changes,
    const WorkflowFlags& flags) {
  return Simulation(plan, changes, flags).Run();
}

}  // namespace tessera::deploy
