#include "deploy/plan_cli.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "deploy/describe_machine.h"
#include "deploy/failure.h"
#include "deploy/helix_import.h"
#include "deploy/plan_watch.h"
#include "proto/document.h"
#include "proto/file_text.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check.h"
#include "scheduler/planner/plan_diff.h"
#include "scheduler/planner/plan_picture.h"
#include "scheduler/planner/sensitivity.h"
#include "scheduler/planner/shared_text.h"
#include "third_party/absl/str_cat.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {
namespace {

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(StrCat("cannot write ", path));
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
  if (!path.empty()) return WriteText(path, text);
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

PlanCli::PlanCli(CLI::App& app)
    : plan_(app.add_subcommand("plan", "Plan a deployment: which devices form which replicas")) {
  AddPlan();
  AddCheck();
  AddDiff();
  AddInit();
  AddImport();
  plan_->require_subcommand(0, 1);
}

void PlanCli::AddPlan() {
  PlanFlags& f = flags_;
  plan_->add_option("cluster", f.cluster, "Description of the cluster, YAML or JSON");
  plan_
      ->add_option("--model", models_,
                   "A known name (Llama-2-70B), a Hugging Face folder, or a config.json; several "
                   "--model share the cluster")
      ->allow_extra_args(false);
  plan_
      ->add_option("--workload", workloads_,
                   "Description (YAML, JSON) or trace (.csv, .jsonl); default: --prompt, --output; "
                   "for several models one each, or one for all")
      ->allow_extra_args(false);
  plan_->add_option("--prompt", f.prompt_tokens, "Tokens of a prompt; not beside --workload")
      ->check(WholeFrom(1))
      ->default_str(std::to_string(kUsualPromptTokens));
  plan_->add_option("--output", f.output_tokens, "Tokens of an answer; not beside --workload")
      ->check(WholeFrom(1))
      ->default_str(std::to_string(kUsualOutputTokens));
  plan_
      ->add_option("--rate", rates_,
                   "Requests per second; 0 or not given: as the workload says; for several models "
                   "one each")
      ->allow_extra_args(false)
      ->check(NonNegative());
  plan_->add_flag(
      "--survive-machine-loss", f.options.survive_machine_loss,
      "Promise only the rate that remains when any one machine is lost, and plan for that");
  plan_
      ->add_option("--spot-share", f.options.spot.share,
                   "Part of the rented machines with a spot_price to rent as spot, 0 to 1")
      ->check(NonNegative())
      ->capture_default_str();
  plan_
      ->add_option("--spot-extra", f.options.spot.extra,
                   "Of each machine of the description with a spot_price, how many to hope for "
                   "beyond what the plan needs, as far as its `available` leaves any; --spot-share "
                   "is of both together, and on demand are no more than the plan needs")
      ->check(WholeFrom(0))
      ->capture_default_str();
  plan_
      ->add_option("--weight-read", f.weight_read,
                   "Rate at which a machine reads weights from its disk")
      ->capture_default_str();
  plan_->add_option(
      "--weight-network", f.weight_network,
      "Rate at which a machine gets weights over the network; default: from its disk only");
  plan_->add_flag("--move-keeps-weights", f.options.move.keeps_weights,
                  "Count on workers to keep weights they hold when the plan changes");
  plan_->add_option("--from", f.running,
                    "The plan.json that runs now: prints the cost of the move");
  plan_->add_option("--max-tpot", f.max_tpot,
                    "Max time per output token, such as \"150 ms\"; 0: no limit");
  plan_->add_option("--max-ttft", f.max_ttft,
                    "Max time to the first token, such as \"2 s\"; 0: no limit");
  plan_->add_option("--max-e2e", f.max_end_to_end,
                    "Max time of a request, such as \"20 s\"; 0: no limit");
  plan_
      ->add_option("--attainment", f.attainment,
                   "Part of the requests that must meet the limits; 0: the workload's, or 0.99")
      ->check(Between(0, 1));
  plan_
      ->add_option("--arrival-variation", f.arrival_variation,
                   "Variation of the gaps between requests; 0: the workload's, or 1 (Poisson)")
      ->check(NonNegative());
  plan_->add_option("--seed", f.options.seed, "Seed of random searches; 0: their own")
      ->check(WholeFrom(0));
  plan_
      ->add_option("--objective", f.goal,
                   "throughput, goodput (within the latency limits), price (cheapest for --rate), "
                   "budget (best within the cluster's)")
      ->capture_default_str();
  plan_
      ->add_option("--search", f.options.search,
                   "Search: best, exact, hexgen, hexgen2, thunderserve, cost")
      ->capture_default_str();
  plan_->add_option("--search-option", f.options.search_options,
                    "A constant of that search, such as hexgen.population=32; repeated; a plan "
                    "names all under its assumptions");
  plan_->add_option("--dtype", f.weight_dtype,
                    "Type of weights: float32, float16, bfloat16, int8; default: as stored");
  plan_->add_option("--kv-dtype", f.kv_dtype,
                    "Type of keys and values; default: 16 bits, or 32 if the weights have 32");
  plan_->add_option("--utilisation", f.options.utilisation, "Part of each device's memory to use")
      ->check(Between(0.01, 1))
      ->capture_default_str();
  plan_->add_option(
      "--reserve", f.runtime_reserve,
      "Memory per device for the runtime; default: 1 GiB, or none where all devices are CPUs");
  plan_->add_option("--kv-headroom", f.options.kv_headroom, "Part of the KV kept free")
      ->check(Between(0, 0.9))
      ->capture_default_str();
  plan_
      ->add_option("--kv-codec-rate", f.kv_codec_rate,
                   "Rate at which devices encode and decode compressed KV")
      ->capture_default_str();
  plan_->add_option("--max-batched-tokens", f.options.max_step_tokens, "Max tokens of one step")
      ->check(WholeFrom(1))
      ->capture_default_str();
  plan_
      ->add_option("--max-sequences", f.options.max_sequences,
                   "Max concurrent sequences of a replica")
      ->check(WholeFrom(1))
      ->capture_default_str();
  plan_
      ->add_option("--context", f.options.context_tokens,
                   "Max sequence length, tokens; 0: the model's")
      ->check(WholeFrom(0));
  plan_->add_flag("--no-split", no_split_, "Every replica both prefills and decodes");
  plan_->add_flag_function(
      "--simulate,!--no-simulate", [&f](int64_t times) { f.options.simulate = times > 0; },
      "Simulate the plans that the search kept and take the one that does better; default: with "
      "up to 64 devices, 1,000 where a plan splits prefill and decode");
  plan_->add_flag("--prove", f.options.prove,
                  "Up to eight devices: test as many layouts as proving the optimum takes");
  plan_->add_option("--out", out_, "Write plan.json here");
  plan_->add_option("--picture", picture_, "Draw the plan as SVG here");
  plan_->add_flag("--sensitivity", sensitivity_,
                  "Search again with every assumption off (up to 12 devices: always done), "
                  "and without each kind: seconds to minutes, by the number of devices");
  plan_
      ->add_option(
          "--time-limit", time_limit_seconds_,
          "Seconds until the best plan so far is returned, marked as interrupted; 0: no limit")
      ->check(NonNegative());
  plan_->add_option("--layout", f.layout, "Judge the layout of this file instead of searching one");
  plan_->add_option(
      "--what-if", what_if_,
      "Print what changes with, for example, \"+2 L40S, -machine3, link a-b 10 Gbit/s\"");
}

void PlanCli::AddCheck() {
  check_ =
      plan_->add_subcommand("check", "Check a plan.json, with code independent of the planner");
  check_->add_option("plan", checked_plan_, "The plan.json")->required();
  check_->add_option("--cluster", checked_cluster_,
                     "Check devices, memory and links against this description as well");
  check_->add_option("--model", checked_model_, "Check that the plan is for this model");
}

void PlanCli::AddDiff() {
  diff_ = plan_->add_subcommand("diff", "Print the differences between two plans");
  diff_->add_option("from", diff_from_, "A plan.json")->required();
  diff_->add_option("to", diff_to_, "Another")->required();
}

void PlanCli::AddInit() {
  init_ = plan_->add_subcommand("init", "Write a commented cluster.yaml for this machine");
  init_->add_option("--out", init_out_, "File to write; default: stdout");
}

void PlanCli::AddImport() {
  import_ =
      plan_->add_subcommand("import-helix", "Turn a cluster INI of Helix into a cluster.yaml");
  import_->add_option("ini", import_from_, "The INI with [ComputeNode-0], [Link-0-1], ...")
      ->required();
  import_->add_option("--profiles", import_profiles_, "INI with the NIC speeds of machine types");
  import_->add_option("--out", import_out_, "File to write; default: stdout");
}

int PlanCli::Run() {
  if (plan_->got_subcommand(init_)) return RunInit();
  if (plan_->got_subcommand(import_)) return RunImport();
  if (plan_->got_subcommand(check_)) return RunCheck();
  if (plan_->got_subcommand(diff_)) return RunDiff();
  return RunPlan();
}

int PlanCli::RunCheck() {
  const absl::StatusOr<v1::DeploymentPlan> plan = ReadPlanFile(checked_plan_);
  if (!plan.ok()) return Fail(plan.status());
  const absl::Status checked = CheckAgainstFiles(*plan, checked_cluster_, checked_model_);
  if (!checked.ok())
    return Fail(
        absl::InvalidArgumentError(StrCat(checked_plan_, ": ", StdView(checked.message()))));
  std::cout << scheduler::PlanTable(*plan) << "\nthe plan is sound";
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
  const absl::Status written = Answer(init_out_, DescribeMachine(ReadMachineFacts("")));
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
  return WriteText(picture_, scheduler::PlanPicture(plan, *graph));
}

absl::Status PlanCli::Finish(const PlanQuestion& question, v1::DeploymentPlan* plan) const {
  scheduler::AddSensitivity(question.input, question.options, sensitivity_, plan);
  if (!picture_.empty()) {
    if (absl::Status s = WritePicture(*plan, question.input.cluster, question.input); !s.ok())
      return s;
  }
  if (out_.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> json = PlanJson(*plan);
  return json.ok() ? WriteText(out_, *json) : json.status();
}

int PlanCli::RunWhatIf() {
  absl::StatusOr<WhatIfAnswer> answer = WhatIf(flags_, what_if_);
  if (!answer.ok()) return Fail(answer.status());
  std::cout << answer->text;
  if (out_.empty() && picture_.empty() && !sensitivity_) return 0;
  if (absl::Status s = Finish(answer->question, &answer->plan); !s.ok()) return Fail(s);
  if (sensitivity_) std::cout << "\nthe plan then:\n\n" << scheduler::PlanTable(answer->plan);
  for (const std::string& path : {out_, picture_}) {
    if (!path.empty()) std::cout << "\nthe plan then is written to " << path << "\n";
  }
  return 0;
}

int PlanCli::RunPlan() {
  if (flags_.cluster.empty() || models_.empty()) {
    return FailUsage(
        "plan needs a cluster description and --model: tessera plan cluster.yaml --model NAME");
  }
  flags_.options.allow_split = !no_split_;
  PlanWatch watch(time_limit_seconds_);
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
  const absl::Status finished = Finish(*question, &*plan);
  std::cout << scheduler::PlanTable(*plan);
  if (!finished.ok()) return Fail(finished);
  if (!picture_.empty()) std::cout << "\ndrawn in " << picture_ << "\n";
  if (!out_.empty()) std::cout << "\nwritten to " << out_ << "\n";
  return 0;
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
    if (absl::Status s = WriteText(names[i], *json); !s.ok()) return Fail(s);
    std::cout << "\nwritten to " << names[i] << "\n";
  }
  return 0;
}

}  // namespace tessera::deploy
