#include "scheduler/planner/request/plan_request.h"

#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/report/outlook_text.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

absl::StatusOr<v1::PlanReply> Answer(const std::string& body) {
  v1::PlanRequest request;
  if (absl::Status s = ReadDocument(body, "request", &request); !s.ok()) return s;
  return AnswerPlanRequest(request, *BuiltInModel("Qwen2.5-0.5B"), {});
}

std::string Refusal(const std::string& body) {
  const auto reply = Answer(body);
  CHECK(absl::IsInvalidArgument(reply.status()));
  return std::string(reply.status().message());
}

const std::string kCluster = "cluster: {machines: [{name: a, devices: [{kind: L4}]}]}\n";
const std::string kLengths = "classes: [{lengths: [{prompt_tokens: 800, output_tokens: 100}]}]";

TEST_CASE("devices that no worker runs on are planned for where that is asked for") {
  const std::string both =
      "cluster: {machines: [{name: a, devices: [{kind: V100-16}, {kind: L4}]}]}\nworkload: {" +
      kLengths + "}\n";
  const auto without = Answer(both), with = Answer(both + "options: {include_unsupported: true}");
  REQUIRE(without.status().message() == "");
  REQUIRE(with.status().message() == "");
  CHECK_THAT(without->text(), Contains("1 V100-16 left out") && !Contains("a/0"));
  CHECK_THAT(with->text(), Contains("no worker runs on V100-16") && Contains("a/0"));
  CHECK_THAT(Refusal("cluster: {machines: [{name: a, devices: [{kind: V100-16}]}]}\nworkload: {" +
                     kLengths + "}"),
             Contains("options.include_unsupported plans for them all the same"));
}

TEST_CASE("goodput is planned for, and what is attained comes with the plan") {
  const auto reply =
      Answer(kCluster +
             "objective: goodput\n"
             "workload: {objectives: {time_to_first_token: 400 ms, attainment: 0.9}, " +
             kLengths + "}");
  REQUIRE(reply.status().message() == "");
  const v1::DeploymentPlan& plan = reply->plan();
  CHECK(CheckPlan(plan).message() == "");
  CHECK(plan.basis().goodput());
  REQUIRE(plan.prediction().classes_size() == 1);
  CHECK(plan.prediction().classes(0).attainment() >= 0.9 - 1e-6);
  CHECK(plan.prediction().attainment() == Approx(plan.prediction().classes(0).attainment()));
  CHECK_THAT(reply->text(), Contains("predicted within their limits at") &&
                                Contains("asked: 90 %") && Contains("TTFT <= 400 ms"));
  const auto faster = Answer(kCluster + "workload: {" + kLengths + "}");
  REQUIRE(faster.ok());
  CHECK(faster->plan().prediction().requests_per_second() >
        plan.prediction().requests_per_second());
  CHECK(faster->plan().prediction().classes().empty());
  CHECK_THAT(Refusal(kCluster + "objective: goodput\nworkload: {" + kLengths + "}"),
             Contains("request: workload: objectives: goodput counts requests within limits"));
  // There are no flags here.
  CHECK_THAT(
      Refusal(kCluster + "objective: price\nworkload: {" + kLengths + "}"),
      Contains("request: workload: requests_per_second: a plan for a price needs the rate to "
               "serve; give it, such as 2.5"));
  CHECK_THAT(
      std::string(Answer(kCluster + "objective: price\nworkload: {requests_per_second: 1e6, " +
                         kLengths + "}")
                      .status()
                      .message()),
      Contains("request: workload: requests_per_second: 1e+06 requests/s are asked"));
}

TEST_CASE("a request prefers latency or throughput, not beside another objective") {
  const std::string options = "options: {prefer: latency}\n", work = "workload: {" + kLengths + "}";
  const auto usual = Answer(kCluster + work), latency = Answer(kCluster + options + work);
  REQUIRE(latency.status().message() == "");
  REQUIRE(latency->plan().choices_size() == 3);
  CHECK(latency->plan().choices(0).taken());
  CHECK(usual->plan().choices(1).taken());
  CHECK_THAT(latency->text(), Contains("\n* latency, for one user "));
  for (const std::string& other : std::vector<std::string>{
           "objective: goodput", "objective: throughput", "survive_machine_loss: true",
           "spot_share: 0.5", "models: [{model: {name: Llama-2-70B}, " + work + "}]"}) {
    CHECK_THAT(
        Refusal(kCluster + options + other + "\n" + (other.starts_with("models") ? "" : work)),
        Contains("request: options.prefer: not together with " + other.substr(0, other.find(':'))));
  }
}

TEST_CASE("without an objective rates are weighed by latency, as by the command") {
  const std::string two =
      "model: {name: Llama-2-70B}\ncluster: {machines: [{name: a, devices: [{kind: A6000, count: "
      "4}]}, {name: b, devices: [{kind: A5000, count: 2}]}], "
      "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}}\n";
  const auto usual = Answer(two + "workload: {" + kLengths + "}");
  const auto most = Answer(two + "objective: throughput\nworkload: {" + kLengths + "}");
  const auto any = Answer(two + "options: {no_usual_limits: true}\nworkload: {" + kLengths + "}");
  REQUIRE(usual.status().message() == "");
  REQUIRE(most.status().message() == "");
  CHECK(any->plan().prediction().requests_per_second() ==
        most->plan().prediction().requests_per_second());
  CHECK(usual->plan().prediction().time_per_output_token_seconds() <
        0.8 * most->plan().prediction().time_per_output_token_seconds());
  CHECK_THAT(usual->text(), Contains("counting rates less for TPOT > 100 ms, TTFT > 5 s costs "));
  CHECK_THAT(most->text(), !Contains("counting rates less"));
  const auto missed =
      Answer(two + "workload: {objectives: {time_per_output_token: 5 ms}, " + kLengths + "}");
  REQUIRE(missed.status().message() == "");
  CHECK(missed->plan().missed_limits_size() == 1);
  CHECK(missed->text().starts_with("warning: no plan keeps TPOT <= 5 ms (here "));
}

TEST_CASE("a trace comes as text, of the workload or of a class; files are not read") {
  const std::string rows =
      "      TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "      2023-11-16 18:15:46.68,300,44\n"
      "      2023-11-16 18:15:47.68,500,66\n";
  const auto whole = Answer(kCluster + "workload:\n  trace_text: |\n" + rows);
  REQUIRE(whole.status().message() == "");
  CHECK(whole->plan().basis().prompt_tokens() == 400);
  CHECK(whole->plan().basis().output_tokens() == 55);
  const auto of_class = Answer(kCluster + "workload:\n  classes:\n  - trace_text: |\n" + rows);
  REQUIRE(of_class.status().message() == "");
  CHECK(of_class->plan().basis().prompt_tokens() == 400);
  CHECK_THAT(Refusal(kCluster + "workload: {trace: /etc/passwd}"),
             Contains("request: workload.trace: files are not read"));
  CHECK_THAT(Refusal(kCluster + "workload: {classes: [{trace: /etc/passwd}]}"),
             Contains("classes[0].trace: files are not read"));
  CHECK_THAT(Refusal(kCluster + "workload: {trace_text: \"a,b\"}"),
             Contains("request: workload.trace_text:1: the header"));
}

TEST_CASE("names that would garble the answer are refused, whoever wrote the message") {
  v1::PlanRequest request;
  REQUIRE(ReadDocument(kCluster + "workload: {" + kLengths + "}", "r", &request).message() == "");
  request.mutable_cluster()->mutable_machines(0)->set_site("\x1b[31m");
  const auto reply = AnswerPlanRequest(request, *BuiltInModel("Qwen2.5-0.5B"), {});
  CHECK(absl::IsInvalidArgument(reply.status()));
  CHECK_THAT(std::string(reply.status().message()),
             Contains("request: cluster.machines[0].site: must be of one line"));
}

TEST_CASE("data types, the seed and options are those of the command") {
  const std::string asked = kCluster + "workload: {" + kLengths + "}\n";
  const auto plain = Answer(asked);
  const auto small = Answer(asked + "weight_dtype: int8\nkv_dtype: int8\n");
  REQUIRE(small.status().message() == "");
  const auto weights = [](const auto& reply) {
    return reply->plan().replicas(0).stages(0).workers(0).weight_bytes();
  };
  CHECK(weights(small) * 2 == Approx(weights(plain)).epsilon(1e-3));
  CHECK(small->plan().weight_dtype() == v1::DATA_TYPE_INT8);
  CHECK(small->plan().kv_dtype() == v1::DATA_TYPE_INT8);
  const auto options =
      Answer(asked +
             "options: {memory_utilisation: 0.5, runtime_reserve: 2 GiB, "
             "kv_headroom: 0.2, max_step_tokens: 512, max_sequences: 8, "
             "context_tokens: 4096, no_split: true, kv_codec: 5 GB/s}\nseed: 7\nsearch: hexgen\n"
             "search_options: [hexgen.patience=9]\n");
  REQUIRE(options.status().message() == "");
  const v1::PlanBasis& basis = options->plan().basis();
  CHECK(basis.memory_utilisation() == 0.5);
  CHECK(basis.runtime_reserve_bytes() == 2.0 * (1 << 30));
  CHECK(basis.kv_headroom() == 0.2);
  CHECK(basis.max_step_tokens() == 512);
  CHECK_THAT(options->text(), Contains("longest sequence = 4096 tokens (option)") &&
                                  Contains("decode = not allowed (option)") &&
                                  Contains("hexgen.patience = 9 (option; ours") &&
                                  Contains("hexgen.population = 16 (default; ours") &&
                                  Contains("seed = 7") &&
                                  Contains("decoding run at 5 GB/s of KV each (option)"));
  CHECK_THAT(Refusal(asked + "search_options: [hexgen.patience=9]"),
             Contains("the search best has no such option"));
  CHECK_THAT(plain->text(), Contains("decoding run at 20 GB/s of KV each (default)"));
  CHECK_THAT(Refusal(asked + "options: {kv_codec: 0 GB/s}"),
             Contains("request: options: kv_codec: must be above 0"));
  CHECK_THAT(Refusal(asked + "options: {memory_utilisation: 1.5}"),
             Contains("request: options: memory_utilisation: must be from 0.01 to 1"));
  CHECK_THAT(Refusal(asked + "options: {kv_headroom: 1}"), Contains("options: kv_headroom"));
  CHECK_THAT(Refusal(asked + "options: {max_sequences: 0}"), Contains("options: max_sequences"));
  CHECK_THAT(Refusal(asked + "options: {speed: 1}"), Contains("speed"));
}

TEST_CASE("a request counts on drafts, and is refused those that its model has none of") {
  const std::string asked = kCluster + "workload: {" + kLengths + "}\n";
  const auto off = Answer(asked);
  const auto ngram =
      Answer(asked + "options: {speculate: ngram, draft_tokens: 4, draft_acceptance: 0.8}");
  REQUIRE(off.status().message() == "");
  REQUIRE(ngram.status().message() == "");
  CHECK(CheckPlan(ngram->plan()).message() == "");
  CHECK_FALSE(off->plan().assumptions().planning().has_drafts());
  const v1::DraftTerms& terms = ngram->plan().assumptions().planning().drafts();
  CHECK(terms.source() == "ngram");
  CHECK(terms.draft_tokens() == 4);
  CHECK(terms.acceptance() == 0.8);
  CHECK(ngram->plan().choices(0).alone_seconds() < 0.7 * off->plan().choices(0).alone_seconds());
  const auto refusal = [&](const std::string& options) {
    return Refusal(asked + "options: {" + options + "}");
  };
  CHECK_THAT(refusal("speculate: mtp"), Contains("request: options: --speculate is mtp") &&
                                            Contains("no head for further tokens"));
  CHECK_THAT(refusal("speculate: \"draft:small\""), Contains("without a draft_model"));
  CHECK_THAT(refusal("draft_tokens: 2"), Contains("give --speculate"));
  CHECK_THAT(refusal("speculate: ngram, draft_acceptance: 2"), Contains("from 0 to 1"));
  CHECK_THAT(Refusal(kCluster + "models: [{model: {name: Llama-3-8B}, workload: {" + kLengths +
                     "}}]\noptions: {speculate: ngram}"),
             Contains("options.speculate: is for one model"));
}

TEST_CASE("sensitivity is answered where it is asked for") {
  const std::string asked = kCluster + "workload: {" + kLengths + "}\n";
  CHECK(Answer(asked)->plan().sensitivity().empty());
  const auto reply = Answer(asked + "options: {sensitivity: true}");
  REQUIRE(reply.status().message() == "");
  CHECK(reply->plan().sensitivity_size() == 6);
  CHECK_THAT(reply->text(), Contains("if the assumptions are off"));
  // As the command does unasked: the plan's own layout, what links bring, and of few devices
  // whether another layout would be chosen, but not what other choices lost.
  const auto quick = Answer(asked + "options: {quick_sensitivity: true}");
  REQUIRE(quick.status().message() == "");
  REQUIRE(quick->plan().sensitivity_size() == 6);
  CHECK_THAT(SensitivityLines(quick->plan())[0],
             Contains("; the choice stays") || Contains("; another layout would be chosen"));
  CHECK(quick->plan().alternatives_size() <= reply->plan().alternatives_size());
  CHECK(!quick->plan().link_prices().empty());
  CHECK_THAT(quick->text(), Contains("what more bandwidth would bring"));
  // With both the search goes again.
  const auto both = Answer(asked + "options: {quick_sensitivity: true, sensitivity: true}");
  CHECK(both->plan().sensitivity_size() == 6);
}

}  // namespace
}  // namespace tessera::scheduler
