#include "deploy/plan_cli.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "deploy/up_flags.h"

namespace tessera::deploy {
namespace {

using Catch::Contains;

struct Ran {
  int code = 0;
  std::string out, err;
};

// `tessera plan ...`, with what it prints.
Ran RunAsGiven(std::vector<std::string> arguments) {
  Program program("", "tessera");
  PlanCli plan(program);
  arguments.insert(arguments.begin(), "plan");
  REQUIRE(program.Parse(arguments).ok());
  std::ostringstream out, err;
  std::streambuf* const out_before = std::cout.rdbuf(out.rdbuf());
  std::streambuf* const err_before = std::cerr.rdbuf(err.rdbuf());
  Ran ran;
  ran.code = plan.Run();
  std::cout.rdbuf(out_before);
  std::cerr.rdbuf(err_before);
  ran.out = out.str();
  ran.err = err.str();
  return ran;
}

// The same, with everything that is known of a plan, and no long simulations.
Ran Run(std::vector<std::string> arguments) {
  const std::string& first = arguments.front();
  if (first != "check" && first != "diff" && first != "init") {
    arguments.push_back("--explain");
    arguments.push_back("--quick");
  }
  return RunAsGiven(std::move(arguments));
}

std::string Scratch(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::vector<std::string> With(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"deploy/clusters/one_gpu.yaml", "--model", "Qwen2.5-7B"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("how long --sensitivity takes depends on the cluster, and its help says so") {
  Program program("", "tessera");
  const PlanCli plan(program);
  const std::string help = program.FindSubcommand("plan")->FindFlag("--sensitivity")->help();
  CHECK_THAT(help, Contains("; takes seconds to minutes, by the number of devices"));
}

// What both have goes by the name that serving programs give it; plan's first names are aliases.
TEST_CASE("plan and up call one thing by one name") {
  Program program("", "tessera");
  const PlanCli plan(program);
  UpFlags up_flags;
  const Command up = AddUp(program, up_flags);
  const Command planned = *program.FindSubcommand("plan");
  const std::pair<const char*, const char*> names[] = {
      {"kv-cache-dtype", "kv-dtype"},
      {"gpu-memory-utilization", "utilisation"},
      {"max-num-batched-tokens", "max-batched-tokens"},
      {"max-num-seqs", "max-sequences"},
      {"max-model-len", "context"},
  };
  for (const auto& [name, before] : names) {
    INFO(name);
    const auto flag = planned.FindFlag(std::string("--") + name);
    REQUIRE(flag.has_value());
    CHECK(flag->long_names() == std::vector<std::string>{name, before});
    CHECK(up.FindFlag(std::string("--") + name).has_value());
  }
  for (const char* name :
       {"--dtype", "--speculate", "--speculate-tokens", "--workload", "--prefer", "--split"}) {
    INFO(name);
    CHECK(planned.FindFlag(name).has_value());
    CHECK(up.FindFlag(name).has_value());
  }
}

TEST_CASE("the files and the sensitivity of --what-if are those of the changed plan") {
  const std::string out = Scratch("then.json"), picture = Scratch("then.svg");
  const Ran ran = Run(With(
      {"--what-if", "+1 RTX4090 on desk", "--out", out, "--picture", picture, "--sensitivity"}));
  REQUIRE(ran.err == "");
  REQUIRE(ran.code == 0);
  CHECK_THAT(ran.out, Contains("what if: +1 RTX4090 on desk") &&
                          Contains("the plan after the change:") &&
                          Contains("if the assumptions are off:") &&
                          Contains("wrote the plan after the change to " + out));
  const auto plan = ReadPlanFile(out);
  REQUIRE(plan.status().message() == "");
  int devices = 0;
  for (const v1::Replica& replica : plan->replicas()) {
    for (const v1::Stage& stage : replica.stages()) devices += stage.workers_size();
  }
  CHECK(devices == 2);
  CHECK(std::filesystem::file_size(picture) > 1000);
}

TEST_CASE("a --what-if that cannot be planned is refused under its name") {
  CHECK_THAT(Run(With({"--what-if", "-1 T4"})).err,
             Contains("tessera: --what-if: \"-1 T4\": the cluster has only 0 T4"));
  CHECK_THAT(Run(With({"--what-if", "+2 L40X"})).err,
             Contains("tessera: --what-if: \"+2 L40X\": ") && Contains("is no known device"));
  const Ran large = Run({"deploy/clusters/workstations.yaml", "--model", "Llama-2-70B",
                         "--no-simulate", "--what-if", "-a, -1 A4000 on c"});
  CHECK_THAT(large.err, Contains("--what-if: \"-a, -1 A4000 on c\": Llama-2-70B does not fit"));
}

TEST_CASE("init says where it wrote, and leaves a file alone that is there") {
  const std::string file = Scratch("cluster.yaml");
  const Ran first = Run({"init", "--out", file});
  CHECK_THAT(first.err, Contains("GPUs are left out: tessera-worker is not beside this program"));
  CHECK(first.code == 0);
  CHECK_THAT(first.out, Contains("described in " + file));
  std::ofstream(file) << "edited";
  const Ran second = Run({"init", "--out", file});
  CHECK(second.code != 0);
  CHECK_THAT(second.err, Contains(file + " exists"));
  std::string kept;
  std::ifstream(file) >> kept;
  CHECK(kept == "edited");
}

TEST_CASE("a file that cannot be written is told before anything is planned") {
  for (const char* flag : {"--out", "--picture"}) {
    INFO(flag);
    // A cluster that is not there would be told of, if it were read.
    const Ran ran = Run({"gone.yaml", "--model", "Qwen2.5-7B", flag, Scratch("gone/plan")});
    CHECK(ran.code == 2);
    CHECK_THAT(ran.err, Contains(std::string(flag) + ": cannot write ") &&
                            Contains("there is no folder " + Scratch("gone")));
    CHECK_THAT(Run(With({flag, Scratch("")})).err, Contains("it is a folder"));
  }
  CHECK_FALSE(std::filesystem::exists(Scratch("gone")));
}

TEST_CASE("a picture is told of, and is not the plan's own file") {
  const std::string picture = Scratch("one.svg");
  const Ran ran = Run(With({"--picture", picture}));
  REQUIRE(ran.err == "");
  CHECK_THAT(ran.out, Contains("\ndrawn in " + picture + "\n"));
  const Ran same = Run(With({"--out", Scratch("one.json"), "--picture", Scratch("./one.json")}));
  CHECK(same.code != 0);
  CHECK_THAT(same.err, Contains("--picture: ") && Contains("is the file of --out too"));
  CHECK_FALSE(std::filesystem::exists(Scratch("one.json")));
}

TEST_CASE("a plan.json with escape sequences is refused by its key, and not printed") {
  const std::string file = Scratch("coloured.json");
  std::ofstream(file) << R"({"model": {"name": "\u001b[31mred"}, "replicas": [{"name": "r0"}]})";
  const Ran ran = Run({"check", file});
  CHECK(ran.code == 1);
  CHECK_THAT(ran.err, Contains("coloured.json: model.name: must be of one line"));
  CHECK(ran.err.find('\x1b') == std::string::npos);
  std::ofstream(file) << R"({"replicas": [{"name": "r0"}, {"name": "r\n1"}]})";
  CHECK_THAT(Run({"check", file}).err, Contains("coloured.json: replicas[1].name: must be of one"));
}

TEST_CASE("requests that are cut stand beside the headline") {
  const std::string file = Scratch("long.yaml");
  std::ofstream(file)
      << "classes: [{lengths: [{prompt_tokens: 4000, output_tokens: 500, weight: 1}, "
         "{prompt_tokens: 90, output_tokens: 200, weight: 3}]}]\n";
  const Ran some = Run(With({"--workload", file, "--context", "4096"}));
  REQUIRE(some.code == 0);
  const std::string warning =
      "warning: 25 % of the requests are longer than the longest sequence (4096 tokens)";
  CHECK(some.out.find(warning) < some.out.find("\nr0: "));
  const Ran brief = RunAsGiven(With({"--quick", "--workload", file, "--context", "4096"}));
  CHECK(brief.out.find(warning) < brief.out.find("\n  r0: "));
  const Ran none = Run(With({"--prompt", "3000", "--output", "500", "--context", "4096"}));
  CHECK_THAT(none.out, !Contains("warning"));
}

TEST_CASE("the words of a plan are explained, and a market's plan says what to rent") {
  const Ran one = Run(With({}));
  CHECK_THAT(one.out, Contains("TTFT: time to the first token") && !Contains("rent ") &&
                          Contains("links 30 % slower: ") && !Contains("0.0 %)"));
  const Ran market = Run(
      {"deploy/clusters/rental_market.yaml", "--model", "Llama-2-70B", "--objective", "budget"});
  REQUIRE(market.err.find("tessera:") == std::string::npos);
  CHECK_THAT(market.out, Contains("rent 2 of the 4 h100x2") && Contains(": 12.00 USD/h"));
}

TEST_CASE("machines are paid whole: the least price and the budget hold for what is rented") {
  std::ostringstream text;
  text << std::ifstream("deploy/clusters/rental_market.yaml").rdbuf();
  std::string market = text.str();
  const std::vector<std::string> cheap = {
      "--model", "Llama-2-70B", "--objective", "price",
      "--rate",  "3",           "--workload",  "deploy/workloads/azure_conversation.yaml"};
  std::vector<std::string> arguments = cheap;
  arguments.insert(arguments.begin(), "deploy/clusters/rental_market.yaml");
  // Devices for 3.95 USD/h would do, of machines for 5.80.
  CHECK_THAT(Run(arguments).out, Contains("it costs 4.00 USD/h to rent") &&
                                     Contains("rent 2 of the 6 a6000x4: 4.00 USD/h") &&
                                     Contains("of the whole machine, paid once any of"));
  // Nor is the budget spent on parts: it was on devices for 4.60 of machines for 6.00.
  market.replace(market.find("12 USD/h"), 8, "4.6 USD/h");
  const std::string file = Scratch("market.yaml");
  std::ofstream(file) << market;
  CHECK_THAT(Run({file, "--model", "Llama-2-70B", "--objective", "budget"}).out,
             Contains(": 4.00 USD/h") && !Contains("warning: the"));
}

TEST_CASE("shares of classes that do not quite sum to 1 are told") {
  const std::string file = Scratch("shares.yaml");
  const auto written = [&](const char* share) {
    std::ofstream(file) << "classes:\n- {name: a, share: 0.5, lengths: [{prompt_tokens: 100, "
                           "output_tokens: 10, weight: 1}]}\n- {name: b, share: "
                        << share
                        << ", lengths: [{prompt_tokens: 50, output_tokens: 10, weight: 1}]}\n";
    return Run({"deploy/clusters/one_gpu.yaml", "--model", "Llama-3-8B", "--workload", file}).out;
  };
  CHECK_THAT(written("0.495"), Contains("shares of the classes sum to 0.995"));
  CHECK_THAT(written("0.5"), Contains("assumptions") && !Contains("shares of the classes"));
}

TEST_CASE("a context beyond the model's is told") {
  CHECK_THAT(Run(With({"--context", "1000000"})).out,
             Contains("longest sequence = 1000000 tokens (option), BEYOND the 32768 of the model"));
  CHECK_THAT(Run(With({"--context", "4096"})).out,
             Contains("longest sequence = 4096 tokens (option)") && !Contains("BEYOND"));
}

TEST_CASE("the rate of the KV codec is an option") {
  CHECK_THAT(Run(With({"--kv-codec-rate", "7 GB/s"})).out,
             Contains("decoding run at 7 GB/s of KV each (option)"));
  CHECK_THAT(Run(With({"--kv-codec-rate", "0 GB/s"})).err,
             Contains("--kv-codec-rate: must be above 0"));
}

TEST_CASE("lengths beside a workload, which has its own, are refused") {
  const std::string workload = "deploy/workloads/azure_conversation.yaml";
  const Ran prompt = Run(With({"--prompt", "500", "--workload", workload}));
  CHECK(prompt.code == 2);
  CHECK(prompt.err == "tessera: --prompt: beside --workload " + workload +
                          ", which has its own lengths: leave out --prompt or --workload\n");
  CHECK_THAT(Run(With({"--workload", workload, "--output", "50"})).err,
             Contains("tessera: --output: beside --workload "));
  CHECK_THAT(Run(With({"--output", "50", "--prompt", "500", "--workload", workload})).err,
             Contains("leave out --prompt, --output or --workload"));
  // One of them alone leaves the other at its default.
  CHECK_THAT(Run(With({"--output", "50"})).out,
             Contains("prompts = 1155 tokens and answers = 50 on average"));
}

namespace {

std::vector<std::string> TwoModels(const std::vector<std::string>& more) {
  const std::string cluster = Scratch("two.yaml");
  std::ofstream(cluster) << "machines:\n- {name: a, devices: [{kind: A40, count: 2}]}\n"
                            "- {name: b, devices: [{kind: L4}]}\n"
                            "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n";
  std::vector<std::string> all = {cluster,   "--model",    "Qwen2.5-7B",
                                  "--model", "Llama-3-8B", "--no-simulate"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("several models: what stands beside the deal is told once, in every plan.json as well") {
  const std::string out = Scratch("beside.json");
  const Ran ran = Run(TwoModels({"--out", out}));
  REQUIRE(ran.err == "");
  for (const char* heading :
       {"\nother choices:\n  ", "\nif the assumptions are off:\n  ",
        "\nwhat one more device would bring:\n  ", "\nwhat more bandwidth would bring:\n  "}) {
    INFO(heading);
    const size_t once = ran.out.find(heading);
    CHECK(once != std::string::npos);
    CHECK(ran.out.find(heading, once + 1) == std::string::npos);
    for (const std::string model : {"Qwen2.5-7B", "Llama-3-8B"}) {
      const Ran checked = Run({"check", Scratch("beside." + model + ".json"), "--cluster",
                               Scratch("two.yaml"), "--model", model});
      CHECK(checked.err == "");
      CHECK_THAT(checked.out, Contains(heading) && Contains("the plan is sound"));
    }
  }
  CHECK_THAT(ran.out, Contains("each model in turn with the whole cluster, ") &&
                          Contains("one more A40 brings ") && !Contains("not used: ") &&
                          Contains("is unknown: --sensitivity deals again"));
  const Ran again = Run(TwoModels({"--sensitivity"}));
  REQUIRE(again.err == "");
  CHECK_THAT(again.out,
             Contains("; the deal stays\n") && !Contains("another deal would be chosen then"));
}

TEST_CASE("several models: one picture of the cluster with the replicas of all") {
  const std::string picture = Scratch("two.svg");
  const Ran ran = Run(TwoModels({"--picture", picture}));
  REQUIRE(ran.err == "");
  CHECK_THAT(ran.out, Contains("drawn in " + picture));
  std::ostringstream drawn;
  drawn << std::ifstream(picture).rdbuf();
  CHECK_THAT(drawn.str(), Contains("A: Qwen2.5-7B, B: Llama-3-8B: up to ") &&
                              Contains(">A.r0 s0<") && Contains(">B.r0 s0<") &&
                              Contains("A.r0: prefill and decode, 1 stage"));
}

TEST_CASE("several models: --what-if deals the devices anew, and writes the plans then") {
  const std::string out = Scratch("two.json");
  const Ran ran = Run(TwoModels({"--what-if", "+1 A40 on a", "--out", out}));
  REQUIRE(ran.err == "");
  CHECK_THAT(ran.out, Contains("what if: +1 A40 on a\n\nnow: 2 models share the cluster") &&
                          Contains("\nthen: 2 models share the cluster") &&
                          Contains("\nQwen2.5-7B:\n") && Contains("\nLlama-3-8B:\n") &&
                          Contains("devices in use") &&
                          Contains("written to " + Scratch("two.Llama-3-8B.json")));
  CHECK(std::filesystem::exists(Scratch("two.Qwen2.5-7B.json")));
  CHECK_THAT(Run(TwoModels({"--what-if", "+1 A40 on z"})).err,
             Contains("--what-if: \"+1 A40 on z\": there is no machine called z"));
}

TEST_CASE("a plan is 17 lines, one for each replica, and rows of choices, of a hundred columns") {
  constexpr int kChoiceRows = 6;
  struct Asked {
    std::vector<std::string> arguments;
    int replicas;  // at most
  };
  for (const Asked& asked :
       {Asked{With({}), 1},
        Asked{{"deploy/clusters/workstations.yaml", "--model", "Llama-2-70B"}, 3},
        Asked{{"deploy/clusters/three_sites_24.yaml", "--model", "Llama-2-70B", "--quick"}, 12},
        Asked{{"deploy/clusters/mixed_cloud_32.yaml", "--model", "Llama-3-8B", "--quick"}, 32}}) {
    const Ran ran = RunAsGiven(asked.arguments);
    INFO(ran.out << ran.err);
    REQUIRE(ran.code == 0);
    std::istringstream lines(ran.out);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) CHECK(line.size() <= 100);
    CHECK(count <= 17 + kChoiceRows + asked.replicas);
    CHECK_THAT(ran.out, Contains("what runs where") && Contains("  r0") &&
                            Contains("what to expect:\n  TTFT ") && Contains("how sure:") &&
                            Contains("next: ") && Contains("--plan plan.json") &&
                            Contains("--explain shows"));
  }
}

// With every line break as a blank.
std::string OneLine(std::string text) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n')) {
    const size_t next = std::min(text.find_first_not_of(" \n", at), text.size());
    text.replace(at, next - at, " ");
  }
  return text;
}

TEST_CASE("who reads a plan can start it") {
  CHECK_THAT(RunAsGiven(With({"--quick"})).out,
             Contains("\n  r0: desk/0 (RTX4090)\n") &&
                 Contains("then tessera up MODEL_FOLDER --plan plan.json\n"));
  const Ran folder =
      RunAsGiven({"deploy/clusters/four_unlike_workers.yaml", "--model",
                  "deploy/demo_model/tessera-demo", "--max-batched-tokens", "512", "--quick"});
  CHECK_THAT(folder.out,
             Contains("then tessera up deploy/demo_model/tessera-demo --plan plan.json\n"));
  const std::string many =
      RunAsGiven({"deploy/clusters/mixed_cloud_32.yaml", "--model", "Llama-3-8B", "--quick"}).out;
  INFO(many);
  // Alike replicas of a machine have one line, and a warning is not cut.
  CHECK_THAT(many, Contains("  r0..r3: a100-1/0 | a100-1/1 | a100-1/2 | a100-1/3 (A100-40)\n"));
  CHECK_THAT(OneLine(many),
             Contains("then tessera-coordinator MODEL_FOLDER --plan plan.json --host HOST "
                      "--cluster-token-file TOKEN (the same secret on every machine), and on "
                      "machine M, per device M/N: tessera-worker --coordinator HOST:8001 --listen "
                      "M:0 --cluster-token-file TOKEN --name M/N --device cuda:N "));
  CHECK_THAT(OneLine(many), Contains("warning: 4 V100-32 left out: no worker runs on such devices; "
                                     "with them ") &&
                                Contains("; --include-unsupported plans for them "));
  const std::string all = RunAsGiven({"deploy/clusters/mixed_cloud_32.yaml", "--model",
                                      "Llama-3-8B", "--quick", "--include-unsupported"})
                              .out;
  CHECK_THAT(OneLine(all), Contains("take this plan as an estimate "));
}

TEST_CASE("plan and up call one thing by one name, and the names before still do") {
  const auto planned = [](const char* sequences, const char* rows, const char* length,
                          const char* memory) {
    const Ran ran = RunAsGiven(
        With({"--quick", "--explain", sequences, "7", rows, "300", length, "3000", memory, "0.8"}));
    CHECK(ran.code == 0);
    return ran.out;
  };
  const std::string now = planned("--max-num-seqs", "--max-num-batched-tokens", "--max-model-len",
                                  "--gpu-memory-utilization");
  CHECK(now == planned("--max-sequences", "--max-batched-tokens", "--context", "--utilisation"));
  CHECK(now != RunAsGiven(With({"--quick", "--explain"})).out);
}

TEST_CASE("the headline is what simulation attains, and --quick says that it is predicted") {
  CHECK_THAT(RunAsGiven(With({})).out, Contains(" requests/s (simulated, 3 x 7426; predicted "));
  CHECK_THAT(RunAsGiven(With({"--quick"})).out, Contains(" requests/s (predicted)"));
}

TEST_CASE(
    "where no plan keeps a limit the nearest is printed, written, and has its own exit code") {
  const std::string out = Scratch("nearest.json");
  const Ran kept = RunAsGiven(With({"--quick", "--max-tpot", "500 ms"}));
  CHECK(kept.code == 0);
  const Ran missed = RunAsGiven(With({"--quick", "--max-tpot", "1 ms", "--out", out}));
  CHECK(missed.err == "");
  CHECK(missed.code == 3);
  CHECK(missed.out.starts_with("warning: no plan keeps TPOT <= 1 ms (here "));
  CHECK(Run(With({"--max-tpot", "1 ms"})).code == 3);
  const auto plan = ReadPlanFile(out);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->missed_limits_size() == 1);
  CHECK(plan->missed_limits(0).limit() == v1::LATENCY_LIMIT_TPOT);
  CHECK(plan->missed_limits(0).limit_seconds() == 0.001);
  CHECK(plan->missed_limits(0).seconds() > 0.001);
}

TEST_CASE("--objective throughput ignores latencies, which the default weighs") {
  const auto plan = [](const std::vector<std::string>& more) {
    const std::string out = Scratch("objective.json");
    std::vector<std::string> all = {
        "deploy/clusters/workstations.yaml", "--model", "Llama-2-70B", "--quick", "--out", out};
    all.insert(all.end(), more.begin(), more.end());
    REQUIRE(RunAsGiven(all).code == 0);
    return *ReadPlanFile(out);
  };
  const auto usual = plan({}), most = plan({"--objective", "throughput"}),
             any = plan({"--max-tpot", "0", "--max-ttft", "0"});
  CHECK(most.prediction().requests_per_second() == any.prediction().requests_per_second());
  CHECK(most.prediction().time_per_output_token_seconds() > 0.3);
  CHECK(usual.prediction().time_per_output_token_seconds() < 0.2);
  CHECK(usual.prediction().requests_per_second() < most.prediction().requests_per_second());
}

TEST_CASE("a prompt that no sequence holds is refused before planning") {
  CHECK_THAT(RunAsGiven(With({"--prompt", "40000"})).err,
             Contains("--prompt: 40000 tokens leave no room for an answer: the longest sequence "
                      "has 32768 tokens (Qwen2.5-7B); ask with at most 32767"));
  CHECK_THAT(RunAsGiven(With({"--prompt", "4000", "--output", "30000"})).err,
             Contains("--output: 30000 tokens after a prompt of 4000 tokens: the longest sequence "
                      "has 32768 tokens (Qwen2.5-7B); ask with at most 28768"));
  CHECK_THAT(RunAsGiven(With({"--output", "900", "--context", "900"})).err,
             Contains("900 tokens (--context); ask with at most 899"));
}

TEST_CASE("an int4 checkpoint is planned with its bytes, and is not quantised again") {
  // Qwen2.5-14B on a card of 24 GB.
  const std::string shape =
      R"("architectures": ["Qwen2ForCausalLM"], "hidden_size": 5120, "num_hidden_layers": 48,
         "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 13824,
         "vocab_size": 152064, "torch_dtype": "float16")";
  const std::string whole = Scratch("whole.json"), awq = Scratch("awq.json");
  std::ofstream(whole) << "{" << shape << "}";
  std::ofstream(awq) << "{" << shape << R"(, "quantization_config":
      {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}})";
  const std::vector<std::string> asked = {"deploy/clusters/one_gpu.yaml", "--model", awq};
  const Ran planned = Run(asked);
  CHECK(planned.err == "");
  CHECK_THAT(planned.out, Contains("weights = 4 bits (as stored)"));
  CHECK_THAT(Run({asked[0], "--model", whole}).err, Contains("does not fit"));
  CHECK_THAT(Run({asked[0], "--model", awq, "--dtype", "int8"}).err,
             Contains(awq + ": its weights are quantised already"));
}

TEST_CASE("a layout is simulated unless somebody says otherwise") {
  const std::string file = Scratch("layout.yaml");
  std::ofstream(file) << "replicas: [{stages: [{devices: [desk/0], layers: 28}]}]\n";
  CHECK_THAT(Run(With({"--layout", file})).out, Contains("simulated ("));
  CHECK_THAT(Run(With({"--layout", file, "--no-simulate"})).out, !Contains("simulated ("));
}

TEST_CASE("a little missing memory: what needs less of it is named with what it gives") {
  const std::string file = Scratch("small.yaml");
  std::ofstream(file) << "machines: [{name: a, devices: [{kind: RTX3090}]}]\n";
  CHECK_THAT(
      Run({file, "--model", "Llama-2-13B"}).err,
      Contains("GiB are missing; with --dtype int8 the model fits and these devices serve "));
}

}  // namespace tessera::deploy
