#include "deploy/plan_cli.h"

#include <filesystem>
#include <iostream>

#include "absl/strings/str_join.h"
#include "deploy/describe_machine.h"
#include "deploy/device_choice.h"
#include "deploy/failure.h"
#include "deploy/helix_import.h"
#include "deploy/search_interrupt.h"
#include "proto/data_types.h"
#include "proto/document.h"
#include "proto/file_text.h"
#include "proto/model/gguf_header.h"
#include "proto/protocol.h"
#include "proto/written_file.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/advice/left_out_devices.h"
#include "scheduler/planner/advice/sensitivity.h"
#include "scheduler/planner/report/plan_diff.h"
#include "scheduler/planner/report/plan_picture.h"
#include "scheduler/planner/report/plan_summary.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/shared/shared_text.h"
#include "scheduler/search/searches.h"
#include "third_party/absl/str_cat.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {
namespace {

constexpr int64_t kAttainRequests = 20'000;

// For commands that read weights: a model of the catalogue is planned for without them.
std::string WeightsFolder(const std::string& model) {
  std::error_code error;
  const bool has_weights = std::filesystem::is_directory(model, error) || HasGgufName(model);
  return has_weights ? model : "MODEL_FOLDER";
}

// Also of files that are not there yet.
bool SameFile(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(a, error), error) ==
         fs::weakly_canonical(fs::absolute(b, error), error);
}

// To the file, or to stdout where none is named.
absl::Status Answer(const std::string& path, const std::string& text) {
  if (!path.empty()) return WriteFileText(path, text);
  std::cout << text;
  return absl::OkStatus();
}

absl::Status CheckAgainstFiles(const v1::DeploymentPlan& plan, const std::string& cluster_file,
                               const std::string& model_name) {
  if (!cluster_file.empty()) {
    v1::Cluster cluster;
    if (absl::Status s = ReadDocumentFile(cluster_file, &cluster); !s.ok()) return s;
    const absl::StatusOr<v1::DeviceCatalogue> catalogue = scheduler::BuiltInDevices();
    if (!catalogue.ok()) return catalogue.status();
    if (absl::Status s = scheduler::CheckPlanOn(plan, cluster, *catalogue); !s.ok()) return s;
  }
  if (model_name.empty()) return absl::OkStatus();
  const absl::StatusOr<v1::Model> model = ReadPlannedModel(model_name);
  if (!model.ok()) return model.status();
  return scheduler::CheckPlanIsFor(plan, *model);
}

}  // namespace

PlanCli::PlanCli(const Command& app)
    : plan_(app.AddSubcommand("plan", "Plan a deployment: which devices form which replicas")) {
  AddPlan();
  AddApply();
  AddCheck();
  AddDiff();
  AddInit();
  AddImport();
  plan_.RequireSubcommands(0, 1);
}

void PlanCli::AddPlan() {
  PlanFlags& f = flags_;
  plan_.AddOption("cluster", f.cluster, "Description of the cluster, YAML or JSON");
  plan_
      .AddOption("--model", models_,
                 "A known name (Llama-2-70B), a Hugging Face folder, or a config.json; with "
                 "several --model the models share the cluster")
      .OneValuePerUse();
  plan_
      .AddOption("--workload", workloads_,
                 "Description (YAML, JSON) or trace (.csv, .jsonl); default: --prompt, --output; "
                 "for several models one each, or one for all")
      .OneValuePerUse();
  plan_.AddOption("--prompt", f.prompt_tokens, "Tokens of a prompt; not together with --workload")
      .Check(WholeFrom(1))
      .ShowDefault(std::to_string(kUsualPromptTokens));
  plan_.AddOption("--output", f.output_tokens, "Tokens of an answer; not together with --workload")
      .Check(WholeFrom(1))
      .ShowDefault(std::to_string(kUsualOutputTokens));
  plan_
      .AddOption("--rate", rates_,
                 "Requests per second; 0 or not given: as the workload says; for several models "
                 "one each")
      .OneValuePerUse()
      .Check(NonNegative());
  plan_.AddSwitch("--survive-machine-loss", f.options.survive_machine_loss,
                  "Plan for the rate that remains after the loss of any one machine, and promise "
                  "only that rate");
  plan_
      .AddOption("--spot-share", f.options.spot.share,
                 "Fraction of the rented machines with a spot_price to rent as spot, 0 to 1")
      .Check(NonNegative())
      .ShowDefault();
  plan_
      .AddOption("--spot-extra", f.options.spot.extra,
                 "Extra spot machines per machine entry with a spot_price, beyond those that the "
                 "plan needs and within its `available`; --spot-share counts them too, but the "
                 "plan never rents more on demand than it needs")
      .Check(WholeFrom(0))
      .ShowDefault();
  plan_
      .AddOption("--weight-read", f.weight_read,
                 "Rate at which a machine reads weights from its disk")
      .ShowDefault();
  plan_.AddOption(
      "--weight-network", f.weight_network,
      "Rate at which a machine gets weights over the network; default: from its disk only");
  plan_.AddSwitch("--move-keeps-weights", f.options.move.keeps_weights,
                  "Assume that workers keep the weights they hold when the plan changes");
  plan_.AddOption("--from", f.running,
                  "plan.json of the running plan: prints the cost of moving to the new plan");
  plan_.AddOption("--max-tpot", f.max_tpot,
                  "Max time per output token, such as \"150 ms\"; default: the workload's, else "
                  "any, but a rate counts less the longer it is than 100 ms; 0: any; where no plan "
                  "keeps it, the nearest is printed, and the exit code is 3");
  plan_.AddOption(
      "--max-ttft", f.max_ttft,
      "Max mean time to the first token, such as \"2 s\"; default: the workload's, else any, but a "
      "rate counts less the longer it is than 5 s, or than twice that of an idle cluster; 0: any; "
      "with --max-tpot 0 also plans of more stages are taken for any gain; where no plan keeps it, "
      "the nearest is printed, and the exit code is 3");
  plan_.AddOption("--max-e2e", f.max_end_to_end,
                  "Max time of a request, such as \"20 s\"; 0: no limit");
  plan_
      .AddOption("--attainment", f.attainment,
                 "Fraction of the requests that must meet the limits; 0: the workload's, or 0.99")
      .Check(Between(0, 1));
  plan_
      .AddOption("--arrival-variation", f.arrival_variation,
                 "Coefficient of variation of the times between arrivals; 0: the workload's, or 1 "
                 "(Poisson)")
      .Check(NonNegative());
  plan_.AddOption("--seed", f.options.seed, "Seed of random searches; 0: each search's own")
      .Check(WholeFrom(0));
  plan_.AddOption(
      "--objective", f.goal,
      "throughput (most requests whatever their latencies), goodput (within the latency "
      "limits), price (cheapest for --rate), budget (most requests within the cluster's "
      "budget); default: most requests, counted less for long latencies");
  plan_
      .AddOption("--prefer", f.prefer,
                 "Which of three plans to take: latency (the soonest answer for one user alone), "
                 "balanced, throughput (the most requests); with --rate, latency and balanced take "
                 "a plan that serves it with 20 % to spare, balanced the one that answers soonest "
                 "at it; default: balanced")
      .OneOf({"latency", "balanced", "throughput"});
  plan_
      .AddOption("--search", f.options.search,
                 "Search: " + absl::StrJoin(scheduler::SearchNames(), ", "))
      .ShowDefault();
  plan_.AddOption("--search-option", f.options.search_options,
                  "A constant of the search, such as hexgen.population=32; may be given more than "
                  "once; the plan lists all under its assumptions");
  plan_.AddOption(
      "--dtype", f.weight_dtype,
      "Type of weights: float32, float16, bfloat16, int8; of a checkpoint int4, in groups of 128 "
      "(AWQ, GPTQ), or fp8, in blocks of 128; default: as stored");
  plan_.AddOption("--kv-cache-dtype,--kv-dtype", f.kv_dtype,
                  std::string("Type of keys and values: ") + kKvTypesText);
  // As the programs that serve call it, then as `plan` called it first.
  plan_
      .AddOption("--gpu-memory-utilization,--utilisation", f.options.utilisation,
                 "Fraction of each device's memory to use")
      .Check(Between(0.01, 1))
      .ShowDefault();
  plan_.AddOption(
      "--reserve", f.runtime_reserve,
      "Memory per device for the runtime; default: 1 GiB, or none where all devices are CPUs");
  plan_.AddOption("--kv-headroom", f.options.kv_headroom, "Fraction of the KV memory to keep free")
      .Check(Between(0, 0.9))
      .ShowDefault();
  plan_
      .AddOption("--kv-codec-rate", f.kv_codec_rate,
                 "Rate at which devices encode and decode compressed KV")
      .ShowDefault();
  plan_
      .AddOption("--max-num-batched-tokens,--max-batched-tokens", f.options.max_step_tokens,
                 "Max tokens of one step")
      .Check(WholeFrom(1))
      .ShowDefault();
  plan_
      .AddOption("--max-num-seqs,--max-sequences", f.options.max_sequences,
                 "Max sequences that decode at once in a replica, on average; its worker takes a "
                 "quarter more, and those whose prompt is being computed")
      .Check(WholeFrom(1))
      .ShowDefault();
  plan_
      .AddOption(
          "--max-model-len,--context", f.options.context_tokens,
          "Max sequence length, tokens, of which every replica that decodes holds one; 0: the "
          "model's, and replicas hold what the workload asks for")
      .Check(WholeFrom(0));
  plan_.AddSwitch("--split,!--no-split", split_,
                  "Every replica only prefills or only decodes; --no-split: every one does both; "
                  "default: the better of both");
  plan_.AddSwitch("--kv-int4", kv_int4_,
                  "KV that moves between replicas may be rounded to four bits; default: to eight");
  plan_
      .AddOption("--speculate", f.speculate,
                 "Plan for steps that try tokens ahead, as tessera-coordinator has it: off, auto, "
                 "ngram, mtp, or draft:PATH with the draft model's name, folder or config.json; "
                 "each step has as many drafts as pay beside what else it has")
      .ShowDefault();
  plan_
      .AddOption("--speculate-tokens", f.speculate_tokens,
                 "Max tokens that --speculate tries ahead of one sequence in a step; 0: 6")
      .Range(0, 6);
  plan_
      .AddOption(
          "--draft-acceptance", f.draft_acceptance,
          "Fraction of the drafts that are accepted where those before them are; 0: 0.7 of the "
          "model's own head, 0.6 of a draft model; n-grams count for nothing then")
      .Check(Between(0, 1));
  plan_.AddSwitch("--simulate,!--no-simulate", f.options.simulate,
                  "Simulate the best plans of the search and choose by the result; default: on for "
                  "up to 64 devices, or 1,000 if a plan splits prefill and decode");
  plan_.AddSwitch("--prove", f.options.prove,
                  "Test as many layouts as a proof of the optimum needs (up to eight devices)");
  plan_.AddSwitch("--include-unsupported", f.include_unsupported,
                  "Plan also for kinds of devices that no worker runs on, such as a P40; default: "
                  "they are left out, and the plan says what they would bring");
  plan_.AddSwitch("--quick", quick_,
                  "Print the predicted rate; default: simulate 20,000 requests with each of three "
                  "seeds, and print the rate that all attain");
  plan_.AddSwitch("--explain", explain_,
                  "Print memory, routing, links, other choices, sensitivity and every assumption; "
                  "default: about 25 lines and one for each replica");
  plan_.AddOption("--out", out_, "File for plan.json");
  plan_.AddOption("--picture", picture_, "SVG file for a drawing of the plan");
  plan_.AddSwitch(
      "--sensitivity", sensitivity_,
      "Search again with each assumption changed (up to 12 devices: always done), and without each "
      "kind of device; takes seconds to minutes, by the number of devices");
  plan_
      .AddOption("--time-limit", time_limit_seconds_,
                 "Max seconds; at the limit returns the best plan so far, marked as interrupted; "
                 "0: no limit")
      .Check(NonNegative());
  plan_.AddOption("--layout", f.layout,
                  "Judge the layout in this file instead of searching for one");
  plan_.AddOption(
      "--what-if", what_if_,
      "Print the effect of a change, such as \"+2 L40S, -machine3, link a-b 10 Gbit/s\"");
}

void PlanCli::AddApply() {
  const Command apply = plan_.AddSubcommand(
      "apply", "Put a plan.json in force at a running coordinator, as the smallest change");
  apply.AddOption("plan", applied_plans_, "The plan.json; of several models at most one for each")
      .Required();
  AddCoordinatorFlags(apply, coordinator_);
  apply
      .AddOption("--timeout", apply_timeout_seconds_,
                 "Seconds to wait until the plan serves; it goes on after them")
      .Check(Positive())
      .ShowDefault();
}

void PlanCli::AddCheck() {
  const Command check =
      plan_.AddSubcommand("check", "Check a plan.json, with code independent of the planner");
  check.AddOption("plan", checked_plan_, "The plan.json").Required();
  check.AddOption("--cluster", checked_cluster_,
                  "Check devices, memory and links against this description as well");
  check.AddOption("--model", checked_model_, "Check that the plan is for this model");
}

void PlanCli::AddDiff() {
  const Command diff = plan_.AddSubcommand("diff", "Print the differences between two plans");
  diff.AddOption("from", diff_from_, "A plan.json").Required();
  diff.AddOption("to", diff_to_, "Another").Required();
}

void PlanCli::AddInit() {
  const Command init =
      plan_.AddSubcommand("init", "Write a commented cluster.yaml for this machine");
  init.AddOption("--out", init_out_, "File to write; default: stdout");
}

void PlanCli::AddImport() {
  const Command import =
      plan_.AddSubcommand("import-helix", "Convert a Helix cluster INI file to a cluster.yaml");
  import.AddOption("ini", import_from_, "The INI with [ComputeNode-0], [Link-0-1], ...").Required();
  import.AddOption("--profiles", import_profiles_, "INI with the NIC speeds of machine types");
  import.AddOption("--out", import_out_, "File to write; default: stdout");
}

int PlanCli::Run() {
  if (plan_.Named("init")) return RunInit();
  if (plan_.Named("import-helix")) return RunImport();
  if (plan_.Named("apply")) return RunApply();
  if (plan_.Named("check")) return RunCheck();
  if (plan_.Named("diff")) return RunDiff();
  return RunPlan();
}

int PlanCli::RunApply() {
  std::vector<v1::DeploymentPlan> plans;
  for (const std::string& file : applied_plans_) {
    absl::StatusOr<v1::DeploymentPlan> plan = ReadPlanFile(file);
    if (!plan.ok()) return Fail(plan.status());
    plans.push_back(*std::move(plan));
  }
  const absl::StatusOr<CoordinatorDoor> door = ReadDoor(coordinator_);
  if (!door.ok()) return Fail(door.status());
  constexpr double kConnectSeconds = 5;
  const absl::Status there = FetchCluster(*door, kConnectSeconds).status();
  if (!there.ok()) return Fail(there);
  const absl::StatusOr<v1::ApplyPlanReply> applied =
      ApplyPlan(*door, std::move(plans), apply_timeout_seconds_);
  if (!applied.ok()) return Fail(applied.status());
  std::cout << ShowApplied(*applied);
  return 0;
}

int PlanCli::RunCheck() {
  const absl::StatusOr<v1::DeploymentPlan> plan = ReadPlanFile(checked_plan_);
  if (!plan.ok()) return Fail(plan.status());
  const absl::Status checked = CheckAgainstFiles(*plan, checked_cluster_, checked_model_);
  if (!checked.ok())
    return Fail(
        absl::InvalidArgumentError(StrCat(checked_plan_, ": ", StdView(checked.message()))));
  std::cout << scheduler::PlanTable(*plan);
  const std::string short_kv = scheduler::ShortKvWarning(*plan, plan->model().max_positions());
  if (!short_kv.empty()) std::cout << "\nwarning: " << short_kv << "\n";
  std::cout << "\nthe plan is sound";
  std::cout << (checked_cluster_.empty()
                    ? " by itself; --cluster FILE checks devices, memory and links as well\n"
                    : StrCat(", and fits ", checked_cluster_, "\n"));
  return 0;
}

int PlanCli::RunDiff() {
  const absl::StatusOr<v1::DeploymentPlan> from = ReadPlanFile(diff_from_);
  if (!from.ok()) return Fail(from.status());
  const absl::StatusOr<v1::DeploymentPlan> to = ReadPlanFile(diff_to_);
  if (!to.ok()) return Fail(to.status());
  std::cout << scheduler::PlanDiff(*from, *to, std::filesystem::path(diff_from_).stem(),
                                   std::filesystem::path(diff_to_).stem());
  return 0;
}

int PlanCli::RunInit() {
  if (!init_out_.empty() && std::filesystem::exists(init_out_)) {
    return Fail(absl::AlreadyExistsError(
        StrCat("--out: ", init_out_, " exists, and may have been edited; name another file")));
  }
  absl::StatusOr<v1::DeviceList> devices = AskForDevices("");
  if (devices.ok() && HasUnknownGpu(*devices)) {
    std::cerr << "measuring GPUs that the catalogue does not know ...\n";
    absl::StatusOr<v1::DeviceList> measured = AskForDevices("", /*measure=*/true);
    if (measured.ok()) devices = *std::move(measured);
  }
  if (!devices.ok()) {
    std::cerr << "warning: GPUs are left out: " << std::string(devices.status().message()) << "\n";
  }
  const MachineFacts facts =
      ReadMachineFacts("", devices.ok() ? *devices : v1::DeviceList::default_instance());
  const absl::Status written = Answer(init_out_, DescribeMachine(facts));
  if (!written.ok()) return Fail(written);
  if (!init_out_.empty()) std::cout << "this machine is described in " << init_out_ << "\n";
  return 0;
}

int PlanCli::RunImport() {
  const absl::StatusOr<std::string> text = ReadFileText(import_from_, kMaxDocumentBytes);
  if (!text.ok()) return Fail(text.status());
  std::string profiles;
  if (!import_profiles_.empty()) {
    absl::StatusOr<std::string> read = ReadFileText(import_profiles_, kMaxDocumentBytes);
    if (!read.ok()) return Fail(read.status());
    profiles = *std::move(read);
  }
  const absl::StatusOr<std::string> cluster =
      ImportHelixCluster(*text, import_from_, profiles, import_profiles_);
  if (!cluster.ok()) return Fail(cluster.status());
  const absl::Status written = Answer(import_out_, *cluster);
  return written.ok() ? 0 : Fail(written);
}

absl::Status PlanCli::CheckFiles() const {
  for (const auto& [flag, path] : {std::pair("--out", out_), {"--picture", picture_}}) {
    if (path.empty()) continue;
    if (absl::Status s = CheckCanWrite(path); !s.ok())
      return absl::InvalidArgumentError(StrCat(flag, ": ", StdView(s.message())));
  }
  if (out_.empty() || picture_.empty() || !SameFile(out_, picture_)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("--picture: ", picture_, " is the file of --out too; name another one"));
}

absl::Status PlanCli::WritePicture(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                                   const scheduler::PlannerInput& input) const {
  const absl::StatusOr<scheduler::ClusterGraph> graph =
      scheduler::MakeClusterGraph(cluster, input.catalogue, input.cluster_file);
  if (!graph.ok()) return graph.status();
  return WriteFileText(picture_, scheduler::PlanPicture(plan, *graph));
}

absl::Status PlanCli::Finish(const PlanQuestion& question, v1::DeploymentPlan* plan) const {
  if (explain_ || sensitivity_ || !out_.empty())
    scheduler::AddSensitivity(question.input, question.options, sensitivity_, plan);
  if (!picture_.empty()) {
    if (absl::Status s = WritePicture(*plan, question.input.cluster, question.input); !s.ok())
      return s;
  }
  if (out_.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> json = PlanJson(*plan);
  return json.ok() ? WriteFileText(out_, *json) : json.status();
}

int PlanCli::RunWhatIf() {
  absl::StatusOr<WhatIfAnswer> answer = WhatIf(flags_, what_if_);
  if (!answer.ok()) return Fail(answer.status());
  std::cout << answer->text;
  if (out_.empty() && picture_.empty() && !sensitivity_) return 0;
  if (absl::Status s = Finish(answer->question, &answer->plan); !s.ok()) return Fail(s);
  if (sensitivity_)
    std::cout << "\nthe plan after the change:\n\n" << scheduler::PlanTable(answer->plan);
  for (const std::string& path : {out_, picture_}) {
    if (!path.empty()) std::cout << "\nwrote the plan after the change to " << path << "\n";
  }
  return 0;
}

int PlanCli::RunPlan() {
  if (flags_.cluster.empty() || models_.empty()) {
    return FailUsage(
        "plan needs a cluster description and --model: tessera plan cluster.yaml --model NAME");
  }
  explain_ = explain_ || sensitivity_;
  flags_.options.allow_split = split_.value_or(true);
  flags_.options.require_split = split_.value_or(false);
  if (kv_int4_) flags_.options.strongest_kv_codec = scheduler::KvCodec::kInt4;
  // What is judged by simulation is also promised by it, unless somebody has no time for that.
  flags_.options.attain_requests = quick_ ? 0 : kAttainRequests;
  SearchInterrupt watch(time_limit_seconds_);
  flags_.options.watch = watch.ForSearch();
  if (absl::Status s = CheckFiles(); !s.ok()) return Fail(s);
  if (models_.size() > 1) return RunShared();
  flags_.model = models_.front();
  if (workloads_.size() > 1 || rates_.size() > 1) {
    return Fail(absl::InvalidArgumentError(
        "--workload, --rate: more than one, but one --model; several share a cluster"));
  }
  if (!workloads_.empty()) flags_.workload = workloads_.front();
  if (!rates_.empty()) flags_.requests_per_second = rates_.front();
  if (!what_if_.empty()) return RunWhatIf();
  const absl::StatusOr<PlanQuestion> question = ReadPlanQuestion(flags_);
  if (!question.ok()) return Fail(question.status());
  absl::StatusOr<v1::DeploymentPlan> plan = scheduler::MakePlan(question->input, question->options);
  if (!plan.ok()) return Fail(plan.status());
  scheduler::AddLeftOutGain(question->input, question->options, &*plan);
  const absl::Status finished = Finish(*question, &*plan);
  const int done = plan->missed_limits().empty() ? 0 : kMissedLimits;
  if (!explain_) {
    std::cout << scheduler::PlanSummary(*plan, {WeightsFolder(flags_.model), out_, picture_});
    return finished.ok() ? done : Fail(finished);
  }
  std::cout << scheduler::PlanTable(*plan);
  if (!finished.ok()) return Fail(finished);
  if (!picture_.empty()) std::cout << "\ndrawn in " << picture_ << "\n";
  if (!out_.empty()) std::cout << "\nwritten to " << out_ << "\n";
  return done;
}

int PlanCli::RunShared() {
  const absl::StatusOr<std::vector<PlanQuestion>> questions =
      ReadSharedQuestions(flags_, models_, workloads_, rates_);
  if (!questions.ok()) return Fail(questions.status());
  const absl::StatusOr<SharedAnswer> answer = PlanSharedModels(
      *questions, {what_if_, what_if_.empty() || !out_.empty() || sensitivity_, sensitivity_});
  if (!answer.ok()) return Fail(answer.status());
  std::cout << answer->text;
  const scheduler::PlannerInput& input = questions->front().input;
  if (!picture_.empty()) {
    const absl::Status drawn =
        WritePicture(scheduler::PlanForPicture(answer->plans), answer->cluster, input);
    if (!drawn.ok()) return Fail(drawn);
    std::cout << "\ndrawn in " << picture_ << "\n";
  }
  if (out_.empty()) return 0;
  const std::vector<std::string> names = scheduler::PlanFileNames(out_, answer->plans);
  for (size_t i = 0; i < names.size(); ++i) {
    const absl::StatusOr<std::string> json = PlanJson(answer->plans.plans[i]);
    if (!json.ok()) return Fail(json.status());
    if (absl::Status s = WriteFileText(names[i], *json); !s.ok()) return Fail(s);
    std::cout << "\nwritten to " << names[i] << "\n";
  }
  return 0;
}

}  // namespace tessera::deploy
