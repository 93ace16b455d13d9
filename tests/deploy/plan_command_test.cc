#include "deploy/plan_command.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "proto/layers/layers.h"
#include "scheduler/cost/model_shape.h"
#include "scheduler/plan_check/plan_check.h"

namespace tessera::deploy {
namespace {

PlanFlags Flags(const std::string& cluster) {
  PlanFlags flags;
  flags.cluster = cluster;
  flags.model = "Qwen2.5-7B";
  flags.workload = "deploy/workloads/azure_conversation.yaml";
  flags.options.allow_split = false;
  return flags;
}

std::string Scratch(const std::string& name, const std::string& text) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// The shipped model on the four workers, with steps as the coordinator plans them.
PlanFlags FourWorkers() {
  PlanFlags flags;
  flags.cluster = "deploy/clusters/four_unlike_workers.yaml";
  flags.model = "deploy/demo_model/tessera-demo";
  flags.options.max_step_tokens = 512;
  return flags;
}

// The same with prefill apart from decode, as `quickstart --split` has it.
PlanFlags FourWorkersToSplit() {
  PlanFlags flags = FourWorkers();
  flags.cluster = "deploy/clusters/four_unlike_workers_split.yaml";
  flags.workload = "deploy/workloads/short_questions.yaml";
  flags.options.max_step_tokens = 256;
  return flags;
}

TEST_CASE("--speculate is read with the draft model that it names, and refused by name") {
  PlanFlags flags = Flags("deploy/clusters/workstations.yaml");
  const auto refusal = [](const PlanFlags& given) {
    return std::string(ReadPlanQuestion(given).status().message());
  };
  const auto off = ReadPlanQuestion(flags);
  REQUIRE(off.status().message() == "");
  CHECK(off->options.drafts.source().empty());
  flags.speculate = "draft:Qwen2.5-0.5B";
  flags.speculate_tokens = 4;
  flags.draft_acceptance = 0.5;
  const auto drafted = ReadPlanQuestion(flags);
  REQUIRE(drafted.status().message() == "");
  CHECK(drafted->input.model.draft_model().model().name() == "Qwen2.5-0.5B");
  CHECK(drafted->options.drafts.draft_tokens() == 4);
  CHECK(drafted->options.drafts.acceptance() == 0.5);
  flags.speculate = "draft:no/where";
  CHECK_THAT(refusal(flags), Catch::Contains("--speculate draft:no/where: "));
  flags.speculate = "mtp";
  CHECK_THAT(refusal(flags), Catch::Contains("--speculate is mtp, but Qwen2.5-7B has no head"));
  flags.speculate = "off";
  CHECK_THAT(refusal(flags), Catch::Contains("give --speculate mtp, ngram, auto or draft:PATH"));
  flags.speculate = "ngram";
  CHECK_THAT(
      std::string(
          ReadSharedQuestions(flags, {"Qwen2.5-7B", "Qwen2.5-0.5B"}, {}, {}).status().message()),
      Catch::Contains("--speculate: is for one model"));
}

TEST_CASE("--prefer says which of three plans is taken, and refuses what says something else") {
  PlanFlags flags = Flags("deploy/clusters/workstations.yaml");
  for (const auto& [name, prefer] : {std::pair("latency", v1::PLAN_PREFERENCE_LATENCY),
                                     {"throughput", v1::PLAN_PREFERENCE_THROUGHPUT},
                                     {"", v1::PLAN_PREFERENCE_BALANCED}}) {
    flags.prefer = name;
    const auto question = ReadPlanQuestion(flags);
    REQUIRE(question.status().message() == "");
    CHECK(question->options.preference.prefer == prefer);
  }
  flags.prefer = "latency";
  const auto refusal = [](const PlanFlags& given) {
    return std::string(ReadPlanQuestion(given).status().message());
  };
  PlanFlags other = flags;
  other.goal = "goodput";
  CHECK_THAT(refusal(other), Catch::Contains("--prefer: not together with --objective goodput"));
  other = flags;
  other.options.survive_machine_loss = true;
  CHECK_THAT(refusal(other), Catch::Contains("with --survive-machine-loss"));
  other = flags;
  other.options.spot.share = 0.5;
  CHECK_THAT(refusal(other), Catch::Contains("with --spot-share"));
  CHECK_THAT(
      std::string(
          ReadSharedQuestions(flags, {"Qwen2.5-7B", "Llama-2-70B"}, {}, {}).status().message()),
      Catch::Contains("--prefer: is for one model"));
}

TEST_CASE("--dtype int4 plans for a quantised checkpoint, which needs a quarter of the memory") {
  PlanFlags flags = Flags("deploy/clusters/one_gpu.yaml");
  const auto stored = PlanFromFiles(flags);
  flags.weight_dtype = "int4";
  const auto int4 = PlanFromFiles(flags);
  REQUIRE(stored.status().message() == "");
  REQUIRE(int4.status().message() == "");
  const auto bytes = [](const v1::DeploymentPlan& plan) {
    return static_cast<double>(plan.replicas(0).stages(0).workers(0).weight_bytes());
  };
  CHECK(bytes(*int4) < 0.45 * bytes(*stored));  // embedding and head keep their type
  CHECK_THAT(std::string(scheduler::CheckPlanIsFor(*int4, stored->model()).message()),
             Catch::Contains("int4 weights in groups of = 128"));
  flags.weight_dtype = "int3";
  CHECK_THAT(std::string(PlanFromFiles(flags).status().message()),
             Catch::Contains("--dtype: \"int3\" is none of") && Catch::Contains("int4"));
}

TEST_CASE("--dtype fp8 plans for a checkpoint in blocks of 128, of models that are not quantised") {
  PlanFlags flags = Flags("deploy/clusters/one_gpu.yaml");
  flags.weight_dtype = "fp8";
  const auto plan = PlanFromFiles(flags);
  REQUIRE(plan.status().message() == "");
  const v1::Quantization& quantization = plan->model().quantization();
  CHECK(quantization.format() == v1::WEIGHT_FORMAT_FP8);
  CHECK(quantization.block_rows() == 128);
  // Planned as workers hold such a checkpoint.
  const auto shape = scheduler::MakeModelShape(plan->model());
  REQUIRE(shape.ok());
  int64_t bytes = 0;
  for (const v1::Stage& stage : plan->replicas(0).stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) bytes += worker.weight_bytes();
  }
  CHECK(static_cast<double>(bytes) == Approx(TotalWeightBytes(*shape)).epsilon(0.01));
  flags.cluster = "deploy/clusters/mixed_cloud_32.yaml";
  flags.model = "gpt-oss-20B";
  for (const char* dtype : {"fp8", "int4"}) {
    flags.weight_dtype = dtype;
    CHECK_THAT(std::string(PlanFromFiles(flags).status().message()),
               Catch::Contains(std::string("--dtype ") + dtype) &&
                   Catch::Contains("gpt-oss-20B are quantised already"));
  }
}

TEST_CASE("every example is planned, and its plan survives the file") {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/clusters")) {
    if (entry.path().extension() != ".yaml" || entry.path().stem().extension() == ".layout")
      continue;
    INFO(entry.path());
    PlanFlags flags = Flags(entry.path().string());
    if (entry.path().filename() == "rental_market.yaml") flags.goal = "budget";
    if (entry.path().filename() == "four_unlike_workers.yaml") flags = FourWorkers();
    if (entry.path().filename() == "four_unlike_workers_split.yaml") flags = FourWorkersToSplit();
    const auto plan = PlanFromFiles(flags);
    REQUIRE(plan.status().message() == "");
    CHECK(plan->prediction().requests_per_second() > 0);
    const auto json = PlanJson(*plan);
    REQUIRE(json.ok());
    const auto read = ReadPlanFile(Scratch("plan.json", *json));
    REQUIRE(read.status().message() == "");
    CHECK(read->SerializeAsString() == plan->SerializeAsString());
    ++examples;
  }
  CHECK(examples == 8);
}

TEST_CASE("--split: the best plan whose replicas only prefill or only decode") {
  PlanFlags flags = FourWorkersToSplit();
  flags.options.require_split = true;
  const auto plan = PlanFromFiles(flags);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 2);
  CHECK(plan->replicas(0).role() != v1::REPLICA_ROLE_BOTH);
  CHECK(plan->replicas(1).role() != v1::REPLICA_ROLE_BOTH);
  CHECK(plan->routing(0).prefill_replica() != plan->routing(0).decode_replica());

  flags.options.require_split = false;
  const auto freely = PlanFromFiles(flags);
  REQUIRE(freely.ok());
  CHECK(freely->prediction().requests_per_second() >= plan->prediction().requests_per_second());

  flags.cluster = "deploy/clusters/four_unlike_workers.yaml";  // of one replica
  flags.options.max_step_tokens = 512;
  flags.options.require_split = true;
  const auto none = PlanFromFiles(flags);
  CHECK_THAT(std::string(none.status().message()), Catch::Contains("no two replicas"));
}

TEST_CASE("none of the four unlike workers holds the shipped model, together they do") {
  for (int device = 0; device < 4; ++device) {
    PlanFlags flags = FourWorkers();
    flags.prompt_tokens = flags.output_tokens = 1;
    flags.layout = Scratch("alone.yaml", "replicas: [{stages: [{devices: [four/" +
                                             std::to_string(device) + "], layers: 6}]}]\n");
    CHECK_THAT(std::string(PlanFromFiles(flags).status().message()),
               Catch::Contains("does not fit"));
  }
  const auto own = PlanFromFiles(FourWorkers());
  REQUIRE(own.status().message() == "");
  CHECK(own->replicas_size() == 1);
  PlanFlags flags = FourWorkers();
  flags.layout = "deploy/clusters/four_unlike_workers.layout.yaml";
  const auto written = PlanFromFiles(flags);
  REQUIRE(written.status().message() == "");
  REQUIRE(written->replicas(0).stages_size() == 3);
  const std::pair<int, int> widths_and_layers[] = {{2, 3}, {1, 2}, {1, 1}};
  for (int j = 0; j < 3; ++j) {
    const v1::Stage& stage = written->replicas(0).stages(j);
    CHECK(stage.workers_size() == widths_and_layers[j].first);
    const v1::Range& layers = stage.workers(0).share().layers();
    CHECK(layers.end() - layers.begin() == widths_and_layers[j].second);
  }
}

TEST_CASE("several models have a workload and a rate each, one for all, or none") {
  PlanFlags flags = Flags("deploy/clusters/one_gpu.yaml");
  const std::vector<std::string> models = {"Qwen2.5-7B", "Llama-3-8B"};
  const std::string chat = flags.workload;
  auto questions = ReadSharedQuestions(flags, models, {chat}, {2, 3});
  REQUIRE(questions.status().message() == "");
  REQUIRE(questions->size() == 2);
  CHECK((*questions)[1].input.model.name() == "Llama-3-8B");
  CHECK((*questions)[0].input.workload.requests_per_second() == 2);
  CHECK((*questions)[1].input.workload.requests_per_second() == 3);
  const auto refusal = [&](const std::vector<std::string>& workloads,
                           const std::vector<double>& rates) {
    return std::string(ReadSharedQuestions(flags, models, workloads, rates).status().message());
  };
  CHECK_THAT(refusal({chat, chat, chat}, {}), Catch::Contains("--workload: 3 for 2 models"));
  CHECK_THAT(refusal({}, {1, 2, 3}), Catch::Contains("--rate: 3 for 2 models"));
  flags.running = "plan.json";
  CHECK_THAT(refusal({}, {}), Catch::Contains("--from: is for one model"));
}

TEST_CASE("what a move starts from, and how fast weights are read, are flags") {
  PlanFlags flags = Flags("deploy/clusters/one_gpu.yaml");
  const auto first = PlanFromFiles(flags);
  REQUIRE(first.ok());
  flags.running = Scratch("running.json", *PlanJson(*first));
  flags.weight_read = "500 MB/s";
  const auto plan = PlanFromFiles(flags);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->move().stay_size() == plan->replicas_size());
  CHECK(plan->move().load_seconds() == Approx(4 * first->move().load_seconds()));
  flags.weight_read = "fast";
  CHECK_THAT(std::string(PlanFromFiles(flags).status().message()),
             Catch::Contains("--weight-read: "));
  flags.weight_read = "1 GB/s";
  flags.weight_network = "10";
  CHECK_THAT(std::string(PlanFromFiles(flags).status().message()),
             Catch::Contains("--weight-network: "));
  flags.weight_network = "";
  flags.running = "nowhere.json";
  CHECK_THAT(std::string(PlanFromFiles(flags).status().message()), Catch::Contains("--from: "));
}

TEST_CASE("the plan that runs is of the devices that are there, others may be gone") {
  PlanFlags flags = Flags("deploy/clusters/workstations.yaml");
  const auto first = PlanFromFiles(flags);
  REQUIRE(first.status().message() == "");
  REQUIRE(first->replicas_size() > 1);
  v1::DeploymentPlan running = *first;
  running.mutable_replicas(0)->mutable_stages(0)->mutable_workers(0)->set_kind("H100-SXM");
  flags.running = Scratch("relabelled.json", *PlanJson(running));
  CHECK_THAT(std::string(PlanFromFiles(flags).status().message()),
             Catch::StartsWith("--from: ") && Catch::Contains("relabelled.json: replica r0: ") &&
                 Catch::Contains("the plan says H100-SXM; deploy/clusters/workstations.yaml must"));
  // A machine less than the running plan has.
  flags.running = Scratch("running.json", *PlanJson(*first));
  flags.cluster =
      Scratch("less.yaml", "machines:\n- {name: a, devices: [{kind: A6000, count: 4}]}");
  const auto left = PlanFromFiles(flags);
  REQUIRE(left.status().message() == "");
  CHECK(left->move().seconds() >= 0);
}

TEST_CASE("a plan that somebody broke is refused") {
  const auto plan = PlanFromFiles(Flags("deploy/clusters/one_gpu.yaml"));
  REQUIRE(plan.ok());
  v1::DeploymentPlan broken = *plan;
  broken.mutable_replicas(0)
      ->mutable_stages(0)
      ->mutable_workers(0)
      ->mutable_share()
      ->mutable_layers()
      ->set_end(3);
  const std::string path = Scratch("broken.json", *PlanJson(broken));
  CHECK_THAT(std::string(ReadPlanFile(path).status().message()),
             Catch::Contains("broken.json: replica r0"));
  CHECK_THAT(std::string(ReadPlanFile(Scratch("text.json", "hello")).status().message()),
             Catch::Contains("is no plan"));
}

TEST_CASE("a GGUF file is planned for by its name, and one that is not there is called so") {
  const auto model = ReadPlannedModel("tests/golden/models/gguf_llama_q8_0/model.gguf");
  REQUIRE(model.status().message() == "");
  CHECK(model->architecture() == "LlamaForCausalLM");
  CHECK(model->quantization().code_bytes() == 1.125);
  CHECK(model->quantization().decoded_part() == 0);
  CHECK_THAT(std::string(ReadPlannedModel("none.gguf").status().message()),
             Catch::Contains("'none.gguf' is no file"));
}

TEST_CASE("a published config.json and a trace do as well as names") {
  PlanFlags flags = Flags("deploy/clusters/one_gpu.yaml");
  flags.model =
      Scratch("config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "torch_dtype": "float16", "tie_word_embeddings": false})");
  flags.workload = Scratch("trace.csv",
                           "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,374,44\n"
                           "2023-11-16 18:15:47.5,396,109\n");
  const auto plan = PlanFromFiles(flags);
  REQUIRE(plan.status().message() == "");
  CHECK(LayerCount(plan->model()) == 32);
}

TEST_CASE("a folder without a slash is a folder: what is wrong with it is told") {
  const std::filesystem::path folder = std::filesystem::path(Scratch("unused", "")).parent_path();
  std::filesystem::create_directory(folder / "hollow");
  std::ofstream(folder / "hollow" / "config.json") << "{}";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  const auto model = ReadPlannedModel("hollow");
  const auto none = ReadPlannedModel("hollow-too");
  std::filesystem::current_path(before);
  CHECK_THAT(std::string(model.status().message()), Catch::Contains("architectures"));
  CHECK_THAT(std::string(none.status().message()), Catch::Contains("no built-in model is called"));
}

TEST_CASE("latency limits by flag beat the workload's, and a class may name a trace beside it") {
  Scratch("code.csv",
          "TIMESTAMP,ContextTokens,GeneratedTokens\n"
          "2023-11-16 18:15:46.68,800,10\n");
  PlanFlags flags = Flags("deploy/clusters/one_gpu.yaml");
  flags.workload = Scratch("mixed.yaml", R"(
objectives: {time_to_first_token: 9 s, end_to_end: 30 s}
classes:
- {name: chat, share: 0.5, lengths: [{prompt_tokens: 400, output_tokens: 90}]}
- {name: code, share: 0.5, trace: code.csv}
)");
  flags.goal = "goodput";
  flags.max_ttft = "700 ms";
  flags.attainment = 0.8;
  flags.arrival_variation = 1.5;
  const auto plan = PlanFromFiles(flags);
  REQUIRE(plan.status().message() == "");
  CHECK(plan->basis().goodput());
  CHECK(plan->basis().arrival_variation() == 1.5);
  REQUIRE(plan->prediction().classes_size() == 2);
  const v1::ClassPrediction& code = plan->prediction().classes(1);
  CHECK(code.objectives().time_to_first_token_seconds() == Approx(0.7));
  CHECK(code.objectives().end_to_end_seconds() == 30);
  CHECK(code.objectives().attainment() == 0.8);
  CHECK(code.lengths(0).prompt_tokens() == 800);
  CHECK(plan->prediction().attainment() >= 0.8 - 1e-6);
  flags.max_ttft = "700";
  CHECK_THAT(std::string(PlanFromFiles(flags).status().message()),
             Catch::StartsWith("--max-ttft: "));
  flags.max_ttft = "0";
  const auto unlimited = PlanFromFiles(flags);
  REQUIRE(unlimited.status().message() == "");
  CHECK(unlimited->prediction().classes(1).objectives().time_to_first_token_seconds() == 0);
  CHECK(unlimited->prediction().classes(1).objectives().end_to_end_seconds() == 30);
}

TEST_CASE("faults name the file or flag") {
  const auto error = [](const PlanFlags& flags) {
    return std::string(PlanFromFiles(flags).status().message());
  };
  CHECK_THAT(error(Flags("nowhere.yaml")), Catch::Contains("nowhere.yaml"));
  PlanFlags flags = Flags("deploy/clusters/one_gpu.yaml");
  flags.model = "Llama-9";
  CHECK_THAT(error(flags), Catch::Contains("no built-in model is called Llama-9"));
  flags = Flags("deploy/clusters/one_gpu.yaml");
  flags.max_tpot = "150";
  CHECK_THAT(error(flags), Catch::Contains("--max-tpot") && Catch::Contains("has no unit"));
  flags.max_tpot = "";
  flags.goal = "best";
  CHECK_THAT(error(flags), Catch::Contains("--objective"));
  flags.goal = "throughput";
  flags.weight_dtype = "fp6";
  CHECK_THAT(error(flags), Catch::Contains("--dtype"));
  flags.weight_dtype = "";
  flags.model = "Llama-2-70B";
  CHECK_THAT(error(flags), Catch::Contains("GiB are missing"));
}

}  // namespace
}  // namespace tessera::deploy
