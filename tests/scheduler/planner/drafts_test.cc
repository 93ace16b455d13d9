// Plans that count on drafts: what a plan says of them, whom they help, and that nothing changes
// under load.
#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "proto/layers/layers.h"
#include "scheduler/input/draft_choice.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/written_layout.h"
#include "tests/scheduler/planner/one_machine.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;

v1::Model WithHead(v1::Model model) {
  SetDraftHead(model.kinds(0), &model);
  return model;
}

// Planned with what `request` says; fails the test where that is refused.
v1::DeploymentPlan Planned(PlannerInput input, const DraftRequest& request,
                           PlannerOptions options = tests::Unsimulated()) {
  const auto drafts = ChooseDrafts(request, options.weight_dtype, options.kv_dtype, &input.model);
  REQUIRE(drafts.status().message() == "");
  options.drafts = *drafts;
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  return *std::move(plan);
}

PlannerInput OneCard() {
  return tests::WrittenInput("machines: [{name: a, devices: [{kind: L40S, count: 1}]}]",
                             "Llama-3-8B");
}

std::string Refusal(const DraftRequest& request, v1::Model model) {
  return std::string(
      ChooseDrafts(request, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED, &model)
          .status()
          .message());
}

std::string Assumed(const v1::DeploymentPlan& plan) {
  std::string text;
  for (const std::string& line : AssumptionLines(plan.assumptions())) text += line + "\n";
  return text;
}

double AloneSeconds(const v1::DeploymentPlan& plan) {
  for (const v1::PlanChoice& choice : plan.choices()) {
    if (choice.preference() == v1::PLAN_PREFERENCE_LATENCY) return choice.alone_seconds();
  }
  return 0;
}

int64_t WeightBytes(const v1::DeploymentPlan& plan) {
  return plan.replicas(0).stages(0).workers(0).weight_bytes();
}

}  // namespace

TEST_CASE("--speculate is refused where the model lacks what it names, or numbers mean nothing") {
  const v1::Model model = OneCard().model;
  CHECK_THAT(Refusal({"mtp"}, model), Contains("has no head for further tokens") &&
                                          Contains("use --speculate ngram, or off"));
  CHECK_THAT(Refusal({"draft:small"}, model), Contains("without a draft_model"));
  CHECK_THAT(Refusal({"eagle"}, model), Contains("must be off, auto, ngram, mtp, or draft:PATH"));
  CHECK_THAT(Refusal({"ngram", 7}, model), Contains("it must be 1 to 6"));
  CHECK_THAT(Refusal({"ngram", 0, 1.5}, model), Contains("--draft-acceptance must be from 0 to 1"));
  CHECK_THAT(Refusal({"off", 3}, model), Contains("give --speculate"));
  CHECK(Refusal({"mtp"}, WithHead(model)) == "");
}

TEST_CASE("auto takes drafts where no token can move, and says why it takes none") {
  v1::Model model = OneCard().model;
  const auto none =
      ChooseDrafts({"auto"}, v1::DATA_TYPE_UNSPECIFIED, v1::DATA_TYPE_UNSPECIFIED, &model);
  REQUIRE(none.ok());
  CHECK(none->source() == "auto");
  CHECK(none->draft_tokens() == 0);
  const auto ngram =
      ChooseDrafts({"auto"}, v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_UNSPECIFIED, &model);
  REQUIRE(ngram.ok());
  CHECK(ngram->source() == "ngram");
  v1::Model with = WithHead(model);
  const auto head = ChooseDrafts({"auto"}, v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_UNSPECIFIED, &with);
  REQUIRE(head.ok());
  CHECK(head->source() == "mtp");
  CHECK(with.draft_head().used());
  CHECK_THAT(Assumed(Planned(OneCard(), {"auto"})),
             Contains("drafts = none (--speculate auto: the model computes in fewer than 32 bits"));
}

TEST_CASE(
    "a head takes memory, makes one user's answer sooner, and the plan says by how many drafts") {
  PlannerInput input = OneCard();
  input.model = WithHead(input.model);
  const v1::DeploymentPlan off = Planned(input, {"off"});
  const v1::DeploymentPlan mtp = Planned(input, {"mtp"});
  CHECK(WeightBytes(mtp) > WeightBytes(off));
  CHECK(mtp.replicas(0).prediction().kv_capacity_tokens() <
        off.replicas(0).prediction().kv_capacity_tokens());
  REQUIRE(AloneSeconds(off) > 0);
  CHECK(AloneSeconds(mtp) < 0.7 * AloneSeconds(off));
  const std::string text = Assumed(mtp);
  CHECK_THAT(text,
             Contains("drafts = mtp, up to 3 of a sequence in a step, of which 70 % are accepted"));
  CHECK_THAT(text, Contains("drafts of one user alone = 3 "));
  CHECK_THAT(text, Contains("drafts at the promised rate = 0 "));
  CHECK_THAT(PlanTable(mtp),
             Contains("(--speculate mtp: drafts of a step that this plan counts on: 3 of one user "
                      "alone, 0 at the promised rate)"));
  CHECK_THAT(Assumed(off), !Contains("drafts"));
  CHECK(mtp.assumptions().planning().drafts().acceptance() == 0.7);
  // Searches bound steps without drafts.
  CHECK(mtp.certificate().upper_bound() == 0);
  CHECK_FALSE(mtp.certificate().proved());
}

TEST_CASE("a draft model stands on the worker that draws") {
  PlannerInput input = OneCard();
  const v1::DeploymentPlan off = Planned(input, {"off"});
  v1::Model small = input.model;
  small.clear_layers();
  AppendLayers(v1::LayerKind(small.kinds(0)), 2, &small);
  *input.model.mutable_draft_model()->mutable_model() = small;
  const v1::DeploymentPlan drafted = Planned(input, {"draft:small", 4, 0.8});
  CHECK(WeightBytes(drafted) > WeightBytes(off));
  CHECK(AloneSeconds(drafted) < AloneSeconds(off));
  CHECK_THAT(Assumed(drafted), Contains("drafts = draft:small, up to 4 of a sequence in a step, of "
                                        "which 80 % are accepted where those before them are "
                                        "(--draft-acceptance)"));
}

TEST_CASE("a hybrid on two unlike cards: what its head costs, and how many long sequences fit") {
  PlannerInput input = tests::WrittenInput(
      "machines: [{name: a, devices: [{kind: RTX5090, count: 1}, {kind: RTX3090, count: 1}]}]",
      "Qwen3.6-27B");
  input.model.set_max_positions(131072);
  input.model.mutable_quantization()->set_group_size(128);
  const v1::DeploymentPlan off = Planned(input, {"off"});
  const v1::DeploymentPlan mtp = Planned(input, {"mtp"});
  for (const v1::DeploymentPlan& plan : {off, mtp}) {
    CHECK_THAT(PlanTable(plan), Contains("sequences of 131072 tokens fit at once: room for"));
    CHECK(CheckPlan(plan).message() == "");
  }
  CHECK(AloneSeconds(mtp) < 0.75 * AloneSeconds(off));
  CHECK_THAT(Assumed(mtp), Contains("drafts of one user alone = "));
}

TEST_CASE("n-grams count for nothing where nobody says how often the text repeats itself") {
  const v1::DeploymentPlan off = Planned(OneCard(), {"off"});
  const v1::DeploymentPlan ngram = Planned(OneCard(), {"ngram"});
  CHECK(AloneSeconds(ngram) == AloneSeconds(off));
  CHECK(ngram.prediction().requests_per_second() == off.prediction().requests_per_second());
  CHECK(ngram.certificate().upper_bound() == off.certificate().upper_bound());
  CHECK_THAT(Assumed(ngram), Contains("drafts = ngram, counted for nothing"));
}

TEST_CASE("a plan for a load that fills its steps is that without drafts") {
  PlannerOptions options = tests::Unsimulated();
  options.preference = {};  // the most
  const v1::DeploymentPlan off = Planned(OneCard(), {"off"}, options);
  const v1::DeploymentPlan ngram = Planned(OneCard(), {"ngram", 6, 0.7}, options);
  REQUIRE(off.replicas_size() == ngram.replicas_size());
  for (int i = 0; i < off.replicas_size(); ++i) {
    CHECK(off.replicas(i).stages_size() == ngram.replicas(i).stages_size());
    CHECK(off.replicas(i).max_sequences() == ngram.replicas(i).max_sequences());
    CHECK(off.replicas(i).max_batched_tokens() == ngram.replicas(i).max_batched_tokens());
    CHECK(WeightBytes(off) == WeightBytes(ngram));
  }
  CHECK(off.certificate().value() == ngram.certificate().value());
  CHECK_THAT(Assumed(ngram), Contains("drafts at the promised rate = 0 "));
}

TEST_CASE("a plan that counts on drafts is simulated with them") {
  PlannerOptions options = tests::Unsimulated();
  options.simulate = true;
  PlannerInput input = OneCard();
  input.workload.set_requests_per_second(0.05);  // one at a time
  const v1::DeploymentPlan off = Planned(input, {"off"}, options);
  const v1::DeploymentPlan ngram = Planned(input, {"ngram", 6, 0.8}, options);
  REQUIRE(off.simulated().time_per_output_token_mean_seconds() > 0);
  CHECK(ngram.simulated().time_per_output_token_mean_seconds() <
        0.6 * off.simulated().time_per_output_token_mean_seconds());
  CHECK(ngram.simulated().time_per_output_token_mean_seconds() ==
        Approx(ngram.prediction().time_per_output_token_seconds()).epsilon(0.1));
}

TEST_CASE("steps with drafts are predicted as long as they are simulated, on one card and on two") {
  struct Rig {
    const char* devices;
    const char* stages;
  };
  const Rig rig = GENERATE(Rig{"{kind: RTX5090, count: 1}", "{devices: [a/0], layers: 64}"},
                           Rig{"{kind: RTX3090, count: 2}", "{devices: [a/0, a/1], layers: 64}"},
                           Rig{"{kind: RTX5090, count: 1}, {kind: RTX3090, count: 1}",
                               "{devices: [a/0], layers: 40}, {devices: [a/1], layers: 24}"});
  const double asked = GENERATE(0.05, 0.3, 0);  // 0: as many as can be served, and 0.8 of it
  INFO(rig.stages << " at " << asked << " requests/s");
  PlannerInput input = tests::WrittenInput(
      std::string("machines: [{name: a, devices: [") + rig.devices + "]}]", "Qwen3.6-27B",
      "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]");
  input.model.mutable_quantization()->set_group_size(128);
  input.workload.set_requests_per_second(asked);
  v1::WrittenLayout layout;
  REQUIRE(ReadDocument(std::string("replicas: [{stages: [") + rig.stages + "]}]", "l.yaml", &layout)
              .ok());
  PlannerOptions options = tests::Unsimulated();
  options.simulate = true;
  options.given_search = GivenLayout(layout, "l.yaml");
  const v1::DeploymentPlan plan = Planned(input, {"mtp"}, options);
  const double simulated = plan.simulated().time_per_output_token_mean_seconds();
  REQUIRE(simulated > 0);
  CHECK(plan.prediction().time_per_output_token_seconds() == Approx(simulated).epsilon(0.25));
}

}  // namespace tessera::scheduler
