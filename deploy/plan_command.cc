#include "deploy/plan_command.h"

#include <algorithm>
#include <filesystem>

#include "proto/data_types.h"
#include "proto/document.h"
#include "proto/file_text.h"
#include "proto/layers/layers.h"
#include "proto/model/gguf_header.h"
#include "proto/model/model_config.h"
#include "proto/model/model_tensors.h"
#include "proto/quantity.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/draft_choice.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/input/workload_file.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/advice/what_if.h"
#include "scheduler/planner/report/plan_diff.h"
#include "scheduler/planner/shared/shared_outlook.h"
#include "scheduler/planner/shared/shared_text.h"
#include "scheduler/planner/written_layout.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

namespace fs = std::filesystem;

constexpr char kInt4[] = "int4", kFp8[] = "fp8";

// Flags beat the objectives of the workload, not those of its classes.
absl::Status ReadObjectives(const PlanFlags& flags, scheduler::WorkloadOptions* given,
                            v1::Workload* workload) {
  const struct {
    const char* name;
    const std::string& text;
    bool* given;
    void (v1::ServiceObjectives::*set)(double);
  } limits[] = {{"--max-tpot", flags.max_tpot, &given->max_tpot,
                 &v1::ServiceObjectives::set_time_per_output_token_seconds},
                {"--max-ttft", flags.max_ttft, &given->max_ttft,
                 &v1::ServiceObjectives::set_time_to_first_token_seconds},
                {"--max-e2e", flags.max_end_to_end, &given->max_end_to_end,
                 &v1::ServiceObjectives::set_end_to_end_seconds}};
  for (const auto& limit : limits) {
    if (limit.text.empty()) continue;
    absl::StatusOr<double> seconds = 0.0;  // none, whatever the workload says
    if (limit.text != "0") seconds = ParseQuantity(limit.text, Dimension::kSeconds);
    if (!seconds.ok()) {
      return absl::InvalidArgumentError(
          StrCat(limit.name, ": ", StdView(seconds.status().message())));
    }
    (workload->mutable_objectives()->*limit.set)(*seconds);
    *limit.given = true;
  }
  given->attainment = flags.attainment > 0;
  if (flags.attainment > 0) workload->mutable_objectives()->set_attainment(flags.attainment);
  return absl::OkStatus();
}

// Lengths beside a workload, which has its own, would be ignored.
absl::Status CheckLengths(const PlanFlags& flags) {
  if (flags.workload.empty() || (flags.prompt_tokens == 0 && flags.output_tokens == 0))
    return absl::OkStatus();
  const std::string given = flags.output_tokens == 0   ? "--prompt"
                            : flags.prompt_tokens == 0 ? "--output"
                                                       : "--prompt, --output";
  return absl::InvalidArgumentError(StrCat(given, ": beside --workload ", flags.workload,
                                           ", which has its own lengths: leave out ", given,
                                           " or --workload"));
}

absl::Status ReadWorkload(const PlanFlags& flags, scheduler::PlannerInput* input) {
  if (absl::Status s = CheckLengths(flags); !s.ok()) return s;
  input->workload_file = flags.workload.empty() ? "--prompt and --output" : flags.workload;
  if (flags.workload.empty()) {
    v1::LengthSample* lengths = input->workload.add_classes()->add_lengths();
    lengths->set_prompt_tokens(flags.prompt_tokens > 0 ? flags.prompt_tokens : kUsualPromptTokens);
    lengths->set_output_tokens(flags.output_tokens > 0 ? flags.output_tokens : kUsualOutputTokens);
  } else {
    absl::StatusOr<scheduler::WorkloadFile> file = scheduler::ReadWorkloadFile(flags.workload);
    if (!file.ok()) return file.status();
    input->workload = std::move(file->workload);
    input->trace = std::move(file->trace);
  }
  if (flags.requests_per_second > 0)
    input->workload.set_requests_per_second(flags.requests_per_second);
  if (flags.arrival_variation > 0) input->workload.set_arrival_variation(flags.arrival_variation);
  scheduler::WorkloadOptions& given = input->workload_options;
  given.lengths = flags.workload.empty();
  given.rate = flags.requests_per_second > 0;
  given.arrival_variation = flags.arrival_variation > 0;
  return ReadObjectives(flags, &given, &input->workload);
}

absl::StatusOr<v1::DataType> WeightType(const std::string& flag, const std::string& name) {
  if (name.empty()) return v1::DATA_TYPE_UNSPECIFIED;
  const std::optional<v1::DataType> type = WeightTypeNamed(name);
  if (type.has_value() && name != "auto") return *type;
  return absl::InvalidArgumentError(
      StrCat(flag, ": \"", name, "\" is none of float32, float16, bfloat16, int8"));
}

absl::Status ReadOptions(const PlanFlags& flags, scheduler::PlannerOptions* options) {
  if (flags.goal.empty() || flags.goal == "throughput") {
    options->goal = scheduler::Goal::kThroughput;
  } else if (flags.goal == "goodput") {
    options->goal = scheduler::Goal::kGoodput;
  } else if (flags.goal == "price") {
    options->goal = scheduler::Goal::kPrice;
  } else if (flags.goal == "budget") {
    options->goal = scheduler::Goal::kBudget;
  } else {
    return absl::InvalidArgumentError(
        StrCat("--objective: \"", flags.goal, "\" is none of throughput, goodput, price, budget"));
  }
  if (!flags.runtime_reserve.empty()) {
    const absl::StatusOr<double> reserve = ParseQuantity(flags.runtime_reserve, Dimension::kBytes);
    if (!reserve.ok())
      return absl::InvalidArgumentError(StrCat("--reserve: ", StdView(reserve.status().message())));
    options->runtime_reserve_bytes = *reserve;
  }
  const absl::StatusOr<double> codec =
      ParseQuantity(flags.kv_codec_rate, Dimension::kBytesPerSecond);
  if (!codec.ok() || *codec <= 0) {
    return absl::InvalidArgumentError(
        StrCat("--kv-codec-rate: ", codec.ok() ? std::string("must be above 0")
                                               : std::string(codec.status().message())));
  }
  options->kv_codec_bytes_per_second = *codec;
  const absl::StatusOr<double> read = ParseQuantity(flags.weight_read, Dimension::kBytesPerSecond);
  if (!read.ok())
    return absl::InvalidArgumentError(StrCat("--weight-read: ", StdView(read.status().message())));
  options->move.disk_bytes_per_second = *read;
  if (!flags.weight_network.empty()) {
    const absl::StatusOr<double> network =
        ParseQuantity(flags.weight_network, Dimension::kBytesPerSecond);
    if (!network.ok())
      return absl::InvalidArgumentError(
          StrCat("--weight-network: ", StdView(network.status().message())));
    options->move.network_bytes_per_second = *network;
  }
  // These say the checkpoint, not the type that its weights are rounded to.
  const bool stored = flags.weight_dtype == kInt4 || flags.weight_dtype == kFp8;
  const absl::StatusOr<v1::DataType> weights =
      WeightType("--dtype", stored ? std::string() : flags.weight_dtype);
  if (!weights.ok())
    return absl::InvalidArgumentError(StrCat(StdView(weights.status().message()), ", int4, fp8"));
  const std::optional<v1::DataType> kv =
      KvTypeNamed(flags.kv_dtype.empty() ? "auto" : flags.kv_dtype);
  if (!kv) {
    return absl::InvalidArgumentError(
        StrCat("--kv-cache-dtype: \"", flags.kv_dtype, "\" is none of ", kKvTypesText));
  }
  options->weight_dtype = *weights;
  options->kv_dtype = *kv;
  return absl::OkStatus();
}

// Plans for a checkpoint of the model whose matrices are int4 or FP8, as published ones are.
absl::Status MakeStored(const std::string& dtype, v1::Model* model) {
  constexpr int kUsualGroup = 128;  // and block
  if (dtype != kInt4 && dtype != kFp8) return absl::OkStatus();
  if (model->has_quantization()) {
    if (dtype == kInt4 && KeepsInt4(*model) && !IsMixed(model->quantization()))
      return absl::OkStatus();
    if (dtype == kFp8 && model->quantization().format() == v1::WEIGHT_FORMAT_FP8)
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        StrCat("--dtype ", dtype, ": the weights of ", model->name(),
               " are quantised already, in another format: leave out --dtype"));
  }
  v1::Quantization& quantization = *model->mutable_quantization();
  if (dtype == kInt4) {
    quantization.set_group_size(kUsualGroup);
    return absl::OkStatus();
  }
  quantization.set_format(v1::WEIGHT_FORMAT_FP8);
  quantization.set_decoded(true);  // none is int4
  quantization.set_block_rows(kUsualGroup);
  quantization.set_block_columns(kUsualGroup);
  quantization.set_code_bytes(1 + 4.0 / kUsualGroup);
  return absl::OkStatus();
}

// A draft model is planned for like the model: by a known name, a folder or a config.json.
absl::Status ReadDraftModel(const std::string& path, v1::Model* model) {
  absl::StatusOr<v1::Model> draft = ReadPlannedModel(path);
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(StrCat("--speculate draft:", path, ": ", why));
  };
  if (!draft.ok()) return refused(draft.status().message());
  if (KeepsStates(*draft)) {
    return refused(
        "its layers keep states (gated delta nets), from which refused tokens cannot be taken "
        "back: use a draft model whose layers attend, or --speculate ngram");
  }
  draft->clear_draft_head();
  *model->mutable_draft_model()->mutable_model() = *std::move(draft);
  model->mutable_draft_model()->set_folder(path);
  return absl::OkStatus();
}

absl::Status ReadDrafts(const PlanFlags& flags, PlanQuestion* question) {
  scheduler::DraftRequest request = {flags.speculate, flags.speculate_tokens, std::nullopt};
  if (flags.draft_acceptance > 0) request.acceptance = flags.draft_acceptance;
  scheduler::PlannerOptions& options = question->options;
  v1::Model* model = &question->input.model;
  const std::string path = scheduler::DraftModelPath(flags.speculate);
  absl::Status read = path.empty() ? absl::OkStatus() : ReadDraftModel(path, model);
  if (!read.ok()) return read;
  absl::StatusOr<v1::DraftTerms> drafts =
      scheduler::ChooseDrafts(request, options.weight_dtype, options.kv_dtype, model);
  if (!drafts.ok()) return drafts.status();
  options.drafts = *std::move(drafts);
  return absl::OkStatus();
}

// Lengths that no sequence holds would be cut to one, and the plan be for other requests.
absl::Status CheckGivenLengths(const PlanFlags& flags, const v1::Model& model) {
  const bool given = flags.options.context_tokens > 0;
  const int64_t context = given ? flags.options.context_tokens : model.max_positions();
  const std::string longest =
      StrCat("the longest sequence has ", context, " tokens (",
             given ? std::string("--context") : model.name(), "); ask with at most ");
  const int64_t prompt = flags.prompt_tokens, output = flags.output_tokens;
  if (context <= 0) return absl::OkStatus();
  if (prompt >= context) {
    return absl::InvalidArgumentError(StrCat(
        "--prompt: ", prompt, " tokens leave no room for an answer: ", longest, context - 1));
  }
  if (output >= context || (prompt > 0 && prompt + output > context)) {
    return absl::InvalidArgumentError(
        StrCat("--output: ", output, " tokens after a prompt",
               prompt > 0 ? StrCat(" of ", prompt, " tokens") : std::string(), ": ", longest,
               context - std::max<int64_t>(prompt, 1)));
  }
  return absl::OkStatus();
}

// Who wants no limit of either kind wants the most that can be served.
scheduler::Preference PreferenceOf(const PlanFlags& flags) {
  scheduler::Preference preference = scheduler::UsualPreference();
  const bool most = flags.goal == "throughput" || (flags.max_tpot == "0" && flags.max_ttft == "0");
  if (most || !flags.max_tpot.empty()) preference.full_tpot_seconds = 0;
  if (most || !flags.max_ttft.empty()) preference.full_ttft_seconds = 0;
  if (most) preference.simpler_within = 0;
  preference.prefer = scheduler::PreferenceNamed(flags.prefer);
  return preference;
}

// A choice between plans is one between those of the usual search.
absl::Status CheckPrefer(const PlanFlags& flags) {
  if (flags.prefer.empty()) return absl::OkStatus();
  const std::string other = !flags.goal.empty()                  ? "--objective " + flags.goal
                            : !flags.layout.empty()              ? "--layout"
                            : flags.options.require_split        ? "--split"
                            : flags.options.survive_machine_loss ? "--survive-machine-loss"
                            : flags.options.spot.share > 0       ? "--spot-share"
                                                                 : "";
  if (other.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("--prefer: not together with ", other,
                                           ", which says what is planned for: leave out one"));
}

}  // namespace

absl::StatusOr<v1::Model> ReadPlannedModel(const std::string& name) {
  std::error_code error;
  if (fs::is_regular_file(name, error) && !HasGgufName(name)) {
    const absl::StatusOr<std::string> text = ReadFileText(name, kMaxDocumentBytes);
    if (!text.ok()) return text.status();
    absl::StatusOr<v1::Model> model = ParseModelConfig(*text, name);
    if (model.ok()) model->set_name(name);
    return model;
  }
  absl::StatusOr<v1::Model> built_in = scheduler::BuiltInModel(name);
  if (built_in.ok()) return built_in;
  absl::StatusOr<CheckedModel> folder = ReadCheckedModel(name);
  if (folder.ok()) {
    if (folder->model.name().empty()) folder->model.set_name(name);
    return std::move(folder->model);
  }
  // Whoever names a path or an organisation means a folder; another name that is no folder here is
  // looked for among the built-in ones.
  const bool meant =
      name.find('/') != std::string::npos || fs::is_directory(name, error) || HasGgufName(name);
  return meant ? folder.status() : built_in.status();
}

absl::StatusOr<PlanQuestion> ReadPlanQuestion(const PlanFlags& flags) {
  if (absl::Status s = CheckPrefer(flags); !s.ok()) return s;
  PlanQuestion question;
  scheduler::PlannerInput& input = question.input;
  input.cluster_file = flags.cluster;
  if (absl::Status s = ReadDocumentFile(flags.cluster, &input.cluster); !s.ok()) return s;
  absl::StatusOr<v1::DeviceCatalogue> catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  input.catalogue = *std::move(catalogue);
  absl::StatusOr<v1::Model> model = ReadPlannedModel(flags.model);
  if (!model.ok()) return model.status();
  input.model = *std::move(model);
  if (absl::Status s = ReadWorkload(flags, &input); !s.ok()) return s;
  question.options = flags.options;
  question.options.runtime_reserve_bytes = scheduler::RuntimeReserveBytes(input.cluster);
  if (absl::Status s = ReadOptions(flags, &question.options); !s.ok()) return s;
  if (absl::Status s = MakeStored(flags.weight_dtype, &input.model); !s.ok()) return s;
  if (absl::Status s = ReadDrafts(flags, &question); !s.ok()) return s;
  question.options.preference = PreferenceOf(flags);
  // Whoever writes a layout names its devices.
  question.options.supported_only = !flags.include_unsupported && flags.layout.empty();
  if (absl::Status s = CheckGivenLengths(flags, input.model); !s.ok()) return s;
  if (!flags.running.empty()) {
    absl::StatusOr<v1::DeploymentPlan> running = ReadPlanFile(flags.running);
    if (!running.ok())
      return absl::InvalidArgumentError(StrCat("--from: ", StdView(running.status().message())));
    const absl::Status fits = scheduler::CheckRunningPlan(*running, input.cluster, input.catalogue);
    if (!fits.ok()) {
      return absl::InvalidArgumentError(StrCat("--from: ", flags.running, ": ",
                                               StdView(fits.message()), "; ", flags.cluster,
                                               " must describe the devices it runs on"));
    }
    input.running = *std::move(running);
  }
  if (flags.layout.empty()) return question;
  v1::WrittenLayout layout;
  if (absl::Status s = ReadDocumentFile(flags.layout, &layout); !s.ok()) return s;
  question.options.given_search = scheduler::GivenLayout(std::move(layout), flags.layout);
  if (!question.options.simulate) question.options.simulate = true;  // one plan: it takes no time
  return question;
}

absl::StatusOr<std::vector<PlanQuestion>> ReadSharedQuestions(
    const PlanFlags& flags, const std::vector<std::string>& models,
    const std::vector<std::string>& workloads, const std::vector<double>& rates) {
  if (workloads.size() > 1 && workloads.size() != models.size()) {
    return absl::InvalidArgumentError(StrCat("--workload: ", workloads.size(), " for ",
                                             models.size(),
                                             " models; give one for each, in their order, or one "
                                             "for all"));
  }
  if (rates.size() > 1 && rates.size() != models.size()) {
    return absl::InvalidArgumentError(StrCat("--rate: ", rates.size(), " for ", models.size(),
                                             " models; give one for each, in their order"));
  }
  if (!flags.prefer.empty() && models.size() > 1) {
    return absl::InvalidArgumentError(
        "--prefer: is for one model; models that share a cluster get as much of their rates each");
  }
  if (flags.speculate != "off")
    return absl::InvalidArgumentError("--speculate: is for one model; plan the models one by one");
  if (!flags.running.empty())
    return absl::InvalidArgumentError("--from: is for one model; plan the models one by one");
  std::vector<PlanQuestion> questions;
  for (size_t i = 0; i < models.size(); ++i) {
    PlanFlags one = flags;
    one.model = models[i];
    if (!workloads.empty()) one.workload = workloads[workloads.size() == 1 ? 0 : i];
    if (!rates.empty()) one.requests_per_second = rates[rates.size() == 1 ? 0 : i];
    absl::StatusOr<PlanQuestion> question = ReadPlanQuestion(one);
    if (!question.ok()) return question.status();
    questions.push_back(*std::move(question));
  }
  return questions;
}

absl::StatusOr<v1::DeploymentPlan> PlanFromFiles(const PlanFlags& flags) {
  const absl::StatusOr<PlanQuestion> question = ReadPlanQuestion(flags);
  if (!question.ok()) return question.status();
  return scheduler::MakePlan(question->input, question->options);
}

absl::StatusOr<WhatIfAnswer> WhatIf(const PlanFlags& flags, const std::string& changes) {
  absl::StatusOr<PlanQuestion> question = ReadPlanQuestion(flags);
  if (!question.ok()) return question.status();
  const auto refused = [&](std::string_view what, const absl::Status& why) {
    return absl::Status(why.code(), StrCat("--what-if: ", what, StdView(why.message())));
  };
  v1::Cluster changed = question->input.cluster;
  if (absl::Status s = scheduler::ApplyChanges(changes, &changed); !s.ok()) return refused("", s);
  const absl::StatusOr<v1::DeploymentPlan> now =
      scheduler::MakePlan(question->input, question->options);
  if (!now.ok()) return now.status();
  question->input.cluster = std::move(changed);
  question->input.cluster_file += " changed so";
  absl::StatusOr<v1::DeploymentPlan> then = scheduler::MakePlan(question->input, question->options);
  if (!then.ok()) return refused(StrCat("\"", changes, "\": "), then.status());
  std::string text =
      StrCat("what if: ", changes, "\n\n", scheduler::PlanDiff(*now, *then, "now", "then"));
  return WhatIfAnswer{std::move(text), *std::move(question), *std::move(then)};
}

absl::StatusOr<SharedAnswer> PlanSharedModels(const std::vector<PlanQuestion>& questions,
                                              const SharedAsk& ask) {
  const scheduler::PlannerOptions& options = questions.front().options;
  std::vector<scheduler::PlannerInput> inputs;
  for (const PlanQuestion& question : questions) inputs.push_back(question.input);
  SharedAnswer answer;
  answer.cluster = inputs.front().cluster;
  if (!ask.changes.empty()) {
    if (absl::Status s = scheduler::ApplyChanges(ask.changes, &answer.cluster); !s.ok())
      return absl::Status(s.code(), StrCat("--what-if: ", StdView(s.message())));
  }
  const auto plan = [&](bool told) -> absl::StatusOr<scheduler::SharedPlans> {
    scheduler::SharingOptions sharing;
    sharing.choices = told;
    absl::StatusOr<scheduler::SharedPlans> plans = scheduler::PlanShared(inputs, options, sharing);
    if (plans.ok() && told) scheduler::AddSharedOutlook(inputs, options, ask.search_again, &*plans);
    return plans;
  };
  absl::StatusOr<scheduler::SharedPlans> now = plan(ask.outlook && ask.changes.empty());
  if (!now.ok()) return now.status();
  if (ask.changes.empty()) {
    answer.text = scheduler::SharedText(*now);
    answer.plans = *std::move(now);
    return answer;
  }
  for (scheduler::PlannerInput& input : inputs) {
    input.cluster = answer.cluster;
    input.cluster_file += " changed so";
  }
  absl::StatusOr<scheduler::SharedPlans> then = plan(ask.outlook);
  if (!then.ok()) {
    return absl::Status(then.status().code(), StrCat("--what-if: \"", ask.changes,
                                                     "\": ", StdView(then.status().message())));
  }
  answer.text = StrCat("what if: ", ask.changes, "\n\nnow: ", now->text, "\nthen: ", then->text);
  for (size_t i = 0; i < inputs.size(); ++i) {
    answer.text += StrCat("\n", inputs[i].model.name(), ":\n",
                          scheduler::PlanDiff(now->plans[i], then->plans[i], "now", "then"));
  }
  if (ask.search_again)
    answer.text += StrCat("\nthe plans then:\n\n", scheduler::SharedText(*then));
  answer.plans = *std::move(then);
  return answer;
}

}  // namespace tessera::deploy
