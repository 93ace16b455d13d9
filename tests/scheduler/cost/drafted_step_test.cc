// Steps that try drafts, against sums made by hand.
#include "scheduler/cost/drafted_step.h"

#include <catch2/catch.hpp>
#include <memory>

#include "scheduler/cost/replica_cost.h"
#include "scheduler/cost/step_budget.h"
#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the models and devices of this folder's tests

constexpr double kLayer = 218103808.0;       // parameters of one of Llama-3-8B's
constexpr double kTable = 128256 * 4096.0;   // of its head
constexpr double kBoth = 2 * 4096 * 4096.0;  // of what joins a head's inputs
constexpr double kBandwidth = 1e12;          // bytes per second of Reader()
const double kInfinity = std::numeric_limits<double>::infinity();

// Compute is free.
DeviceSpec Reader() { return Device("reader", 80, 1e12, 1000); }

StageSpec Whole(const DeviceSpec* device, int layers) {
  StageSpec stage;
  stage.ranks = {device};
  stage.layers = layers;
  stage.holds_embedding = stage.holds_head = true;
  return stage;
}

ModelShape Drafted(ModelShape shape, DraftOrigin origin, int most, double acceptance) {
  shape.drafts = {origin, most, acceptance, kInfinity, kInfinity};
  return shape;
}

ReplicaSpec Alone(const DeviceSpec* device, int layers) {
  ReplicaSpec replica;
  replica.role = Role::kDecode;
  replica.stages = {Whole(device, layers)};
  return replica;
}

LengthMoments Lengths(double prompt, double output) {
  const RequestLengths one = {prompt, output, 1};
  return MomentsOf({&one, 1});
}

}  // namespace

TEST_CASE("a step with k drafts gives 1 + a + ... + a^k tokens") {
  CHECK(TokensWithDrafts(0.5, 0) == 1);
  CHECK(TokensWithDrafts(0.5, 1) == 1.5);
  CHECK(TokensWithDrafts(0.5, 3) == 1.875);
  CHECK(TokensWithDrafts(1, 6) == 7);
  CHECK(TokensWithDrafts(0, 6) == 1);
}

TEST_CASE("drafts are rows with logits, and those that stood are computed again beside states") {
  ModelShape model = Drafted(Llama3_8B(), DraftOrigin::kText, 6, 0.5);
  const StepWork plain = DecodeWork(10, 700) + PrefillWork(100, 50);
  const StepWork work = WithDrafts(model, plain, 3);
  CHECK(work.draft_rows == 30);
  CHECK(work.draft_passes == 3);
  CHECK(work.decode_rows == 10);
  CHECK(work.decode_context_tokens == 7000);
  CHECK(work.sampled_rows == 10 * 4 + 1 * 1.875);
  CHECK(work.prefill_tokens == 187.5);  // prompts keep up
  CHECK(work.rows() == 10 + 30 + 187.5);
  model.kinds[0].key_groups = 4;
  CHECK(WithDrafts(model, plain, 3).draft_rows == 10 * (3 + 0.875));
}

TEST_CASE("rows of drafts are multiplied and attend, but read weights and KV no more") {
  const ModelShape model = Llama2_70B();
  const DeviceSpec device = Device("x", 80, 100, 1000);
  StageSpec stage = Whole(&device, 4);
  stage.first_layer = 20;
  stage.holds_embedding = stage.holds_head = false;
  // Per layer, 10 sequences of 1,000 tokens with 3 drafts: 1711276032 B and 10000 * 4096 B of KV
  // at 1 TB/s; 2 * 855638016 * 40 and 4 * 40000 * 64 * 128 operations at 100 TFLOP/s.
  const double bytes = (1711276032 + 10000 * 4096.0) / 1e12;
  const double flops = (2 * 855638016.0 * 40 + 4 * 40000.0 * 8192) / 100e12;
  const StepWork work = WithDrafts(model, DecodeWork(10, 1000), 3);
  CHECK(StageSeconds(model, stage, work) == Approx(4 * (bytes + flops)));
}

TEST_CASE(
    "the head for further tokens passes over all rows, and once more for each further draft") {
  const DeviceSpec device = Reader();
  ModelShape model = Drafted(Llama3_8B(), DraftOrigin::kHead, 3, 0.7);
  model.draft_kind = 0;
  const StageSpec stage = Whole(&device, 32);
  const StepWork one = DecodeWork(1, 0), prompt = PrefillWork(500, 0);
  const double step = (32 * kLayer + kTable) * 2 / kBandwidth;
  const double pass = (kLayer + kBoth + kTable) * 2 / kBandwidth;
  CHECK(StageSeconds(model, stage, one) == Approx(step).epsilon(1e-5));
  for (const int drafts : {1, 2, 3}) {
    INFO(drafts << " drafts");
    CHECK(StageSeconds(model, stage, WithDrafts(model, one, drafts)) ==
          Approx(step + drafts * pass).epsilon(1e-5));
  }
  // Keys and values of prompts are kept up, without logits.
  const double kept_up = ((kLayer + kBoth) * 2 + 500 * 4096) / kBandwidth;
  const ModelShape without = Llama3_8B();
  CHECK(StageSeconds(model, stage, prompt) - StageSeconds(without, stage, prompt) ==
        Approx(kept_up).epsilon(1e-5));
  // Only where the head is.
  StageSpec first = stage;
  first.holds_head = false;
  CHECK(StageSeconds(model, first, WithDrafts(model, one, 3)) ==
        Approx(32 * kLayer * 2 / kBandwidth).epsilon(1e-5));
}

TEST_CASE("a draft model is read whole by the first rank of the last stage, once for each draft") {
  const DeviceSpec device = Reader();
  ModelShape model = Drafted(Llama2_70B(), DraftOrigin::kModel, 6, 0.6);
  model.draft_model = std::make_shared<const ModelShape>(Llama3_8B());
  const double draft = (32 * kLayer + kTable) * 2 / kBandwidth;
  const StepWork one = DecodeWork(1, 0);
  const StageSpec whole = Whole(&device, 80);
  const double alone = StageSeconds(model, whole, one);
  CHECK(StageSeconds(model, whole, WithDrafts(model, one, 4)) ==
        Approx(alone + 4 * draft).epsilon(1e-4));
  // Ranks wait for it.
  StageSpec two = whole;
  two.ranks = {&device, &device};
  two.communicator = {{2, {}, false}};
  two.communicator[0].link.bytes_per_second = 1e15;
  CHECK(StageSeconds(model, two, WithDrafts(model, one, 4)) - StageSeconds(model, two, one) ==
        Approx(4 * draft).epsilon(1e-3));
}

TEST_CASE("as many drafts are tried as give most tokens a second, none for less than 5 %") {
  const DeviceSpec reader = Reader(), computer = Device("computer", 80, 100, 1e6);
  const StepWork one = DecodeWork(1, 0);
  const auto drafts = [&](const ModelShape& model, const DeviceSpec& device, const StepWork& work) {
    return DraftedStepOf(model, Alone(&device, 32), work, 1).drafts;
  };
  // Rows that hide behind reading weights cost nothing; others cost what they give and more.
  const ModelShape text = Drafted(Llama3_8B(), DraftOrigin::kText, 6, 0.6);
  CHECK(drafts(text, reader, one) == 6);
  CHECK(drafts(text, computer, one) == 0);
  CHECK(drafts(Drafted(Llama3_8B(), DraftOrigin::kText, 4, 0.6), reader, one) == 4);
  CHECK(drafts(Drafted(Llama3_8B(), DraftOrigin::kText, 6, 0.04), reader, one) == 0);
  CHECK(drafts(Drafted(Llama3_8B(), DraftOrigin::kText, 6, 0.06), reader, one) > 0);
  // What is behind a prompt that fills its step is not counted.
  StepWork once = one;
  once.may_draft = false;
  CHECK(drafts(text, reader, once) == 0);
  CHECK(drafts(text, reader, PrefillWork(100, 0)) == 0);
  // A head costs 0.104 of a step for each draft: E(k) / (1 + 0.104 k) is largest for 3 of 1.7,
  // 2.19 and 2.533 at 0.7, and for 1 of 1.2, 1.24 and 1.248 at 0.2.
  ModelShape head = Drafted(Llama3_8B(), DraftOrigin::kHead, 3, 0.7);
  head.draft_kind = 0;
  CHECK(drafts(head, reader, one) == 3);
  head.drafts.acceptance = 0.2;
  CHECK(drafts(head, reader, one) == 1);
  head.drafts.acceptance = 0.1;  // 1.1 / 1.104
  CHECK(drafts(head, reader, one) == 0);
  // Rows and rows with logits are limited.
  ModelShape limited = text;
  limited.drafts.max_logit_rows = 4;
  CHECK(drafts(limited, reader, one) == 3);
  limited.drafts.max_logit_rows = kInfinity;
  limited.drafts.max_rows = 3;
  CHECK(drafts(limited, reader, one) == 2);
}

TEST_CASE("seconds of steps with drafts are those of one token, and end with the load") {
  // 100 TFLOP/s and 1 TB/s: 100 rows take as long as reading.
  const DeviceSpec device = Device("x", 800, 100, 1000);
  const ModelShape plain = Llama3_8B();
  const ModelShape drafted = Drafted(plain, DraftOrigin::kText, 3, 0.5);
  const ReplicaSpec replica = Alone(&device, 32);
  const auto seconds = [&](const ModelShape& model, double rows) {
    return PeriodOf(model, replica, DecodeWork(rows, 100), 1).seconds;
  };
  const StepWork work = WithDrafts(drafted, DecodeWork(2, 100), 3);
  const double step = StageSeconds(plain, replica.stages[0], work);
  CHECK(seconds(drafted, 2) == Approx(step / 1.875));
  CHECK(seconds(drafted, 2) < 0.6 * seconds(plain, 2));
  CHECK(seconds(drafted, 400) == seconds(plain, 400));
  // Never longer than without, and longer with every row.
  double before = 0;
  for (double rows = 1; rows < 500; rows *= 1.3) {
    INFO(rows << " rows");
    CHECK(seconds(drafted, rows) <= seconds(plain, rows));
    CHECK(seconds(drafted, rows) >= before);
    before = seconds(drafted, rows);
  }
  const std::vector<double> busy = BusyShares(drafted, replica, DecodeWork(2, 100), 1);
  CHECK(busy == std::vector<double>{1});
}

TEST_CASE("a replica serves as many more requests as its steps give more tokens") {
  const DeviceSpec device = Reader();
  const ModelShape plain = Llama3_8B();
  const ModelShape drafted = Drafted(plain, DraftOrigin::kText, 3, 0.5);
  const ReplicaSpec replica = Alone(&device, 32);
  ReplicaOptions options;
  options.kv_headroom = 0;
  const LengthMoments lengths = Lengths(100, 11);
  const auto capacity = [&](const ModelShape& model, double kv_tokens) {
    return CapacityWithKv(model, replica, lengths, options, kv_tokens);
  };
  const ReplicaRate without = capacity(plain, 4200), with = capacity(drafted, 4200);
  CHECK(with.decode_rows == without.decode_rows);
  CHECK(with.drafts == 3);
  CHECK(without.drafts == 0);
  CHECK(with.requests_per_second == Approx(1.875 * without.requests_per_second).epsilon(1e-3));
  CHECK(with.tpot_seconds == Approx(without.tpot_seconds / 1.875).epsilon(1e-3));
  // Its worker has rows with logits for them: 1.25 * 40 * (1 + 3) + 1.
  CHECK(SequenceBudget(lengths, options, replica, without) == 51);
  CHECK(SequenceBudget(lengths, options, replica, with) == 201);
  CHECK(StepBudget(drafted, replica, lengths, options, with) >= 160);
}

TEST_CASE("at a load that fills its steps a replica is what it is without drafts") {
  const DeviceSpec device = Device("x", 80, 10, 1000);
  const ModelShape plain = Llama3_8B();
  const ModelShape drafted = Drafted(plain, DraftOrigin::kText, 6, 0.7);
  ReplicaSpec replica = Alone(&device, 32);
  replica.role = Role::kBoth;
  const LengthMoments lengths = Lengths(300, 200);
  const ReplicaRate without = CapacityOf(plain, replica, lengths, {});
  const ReplicaRate with = CapacityOf(drafted, replica, lengths, {});
  REQUIRE(without.requests_per_second > 0);
  CHECK(with.drafts == 0);
  CHECK(with.requests_per_second == without.requests_per_second);
  CHECK(with.tpot_seconds == without.tpot_seconds);
  CHECK(StepBudget(drafted, replica, lengths, {}, with) ==
        StepBudget(plain, replica, lengths, {}, without));
}

}  // namespace tessera::scheduler
