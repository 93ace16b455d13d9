#include "scheduler/cost/replica_cost.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the models and devices of this folder's tests

LinkSpec Link(double bytes_per_second, double latency_seconds) {
  LinkSpec link;
  link.bytes_per_second = bytes_per_second;
  link.latency_seconds = latency_seconds;
  return link;
}

// One layer, one head: decode of a row takes 1 ms of weights, whatever the context; KV is 4 bytes
// per token.
ModelShape Tiny(int layers) {
  ModelShape shape = DenseShape("tiny", layers, 1, 1, 1, 1, 1);
  return shape;
}

// A device whose step takes `seconds` per layer, nothing else.
DeviceSpec Clock(double seconds, double gib = 1) {
  DeviceSpec device = Device("clock", gib, 1e9, 1e15);
  device.layer_overhead_seconds = seconds;
  return device;
}

ReplicaSpec Pipeline(const std::vector<const DeviceSpec*>& devices, double hop_seconds) {
  ReplicaSpec replica;
  for (size_t i = 0; i < devices.size(); ++i) {
    StageSpec stage;
    stage.ranks = {devices[i]};
    stage.communicator = {{1, {}, false}};
    stage.first_layer = static_cast<int>(i);
    stage.layers = 1;
    stage.holds_embedding = i == 0;
    stage.holds_head = i + 1 == devices.size();
    replica.stages.push_back(stage);
    if (devices.size() > 1) replica.hops.push_back(Link(1e18, hop_seconds));
  }
  return replica;
}

LengthMoments Lengths(double prompt, double output) {
  const RequestLengths one = {prompt, output, 1};
  return MomentsOf({&one, 1});
}

TEST_CASE("moments: steps are output minus one, contexts grow from the prompt") {
  const RequestLengths samples[] = {{100, 11, 1, 0.5}, {300, 31, 3, 0.5}};
  const LengthMoments m = MomentsOf(samples);
  CHECK(m.prompt_tokens == 250);
  CHECK(m.uncached_prompt_tokens == 125);
  CHECK(m.decode_steps == 25);
  // (100*10 + 50)/4 + 3*(300*30 + 450)/4
  CHECK(m.decode_context_sum == Approx(1050.0 / 4 + 3 * 9450.0 / 4));
  CHECK(m.max_sequence_tokens == 331);
  // q = c = 50: 50*50 + 1250; q = c = 150: 22500 + 11250.
  CHECK(m.prefill_pairs == Approx(3750.0 / 4 + 3 * 33750.0 / 4));
}

TEST_CASE(
    "the period is the slowest stage, the slowest hop, or the round trip over the micro-batches") {
  const DeviceSpec fast = Clock(1e-3), slow = Clock(3e-3);
  const ModelShape model = Tiny(2);
  const StepWork work = DecodeWork(1, 10);
  CHECK(PeriodOf(model, Pipeline({&fast, &slow}, 0), work, 2).seconds == Approx(3e-3));
  CHECK(PeriodOf(model, Pipeline({&fast, &slow}, 0), work, 1).seconds == Approx(4e-3));
  const Period hops = PeriodOf(model, Pipeline({&fast, &slow}, 5e-3), work, 2);
  CHECK(hops.latency_seconds == Approx(14e-3));  // both ways
  CHECK(hops.seconds == Approx(7e-3));
  CHECK(hops.hop_bound);
  CHECK(PeriodOf(model, Pipeline({&fast, &slow}, 5e-3), work, 4).seconds == Approx(5e-3));
}

TEST_CASE("decode capacity: rows that KV holds, one token each per round trip") {
  const DeviceSpec device = Clock(1e-3);
  const ModelShape model = Tiny(2);
  ReplicaSpec replica = Pipeline({&device, &device}, 0);
  replica.role = Role::kDecode;
  // Context 100*10 + 50 over 10 steps: 105. K = 4200, no headroom: 40 rows, 20 per micro-batch.
  ReplicaOptions options;
  options.kv_headroom = 0;
  const ReplicaRate rate = CapacityWithKv(model, replica, Lengths(100, 11), options, 4200);
  CHECK(rate.decode_rows == Approx(20));
  CHECK(rate.tpot_seconds == Approx(2e-3));
  CHECK(rate.requests_per_second == Approx(20 / 1e-3 / 10));
  CHECK(rate.limit == Limit::kKv);
  options.kv_headroom = 0.1;
  CHECK(CapacityWithKv(model, replica, Lengths(100, 11), options, 4200).decode_rows == Approx(18));
}

TEST_CASE("a step passes stages that are alike and unlike ones in what each takes by itself") {
  const ModelShape model = Llama2_70B();
  const DeviceSpec fast = A6000(), slow = A4000();
  struct Made {
    decltype(StageSpec::ranks) ranks;
    double bytes_per_second;
    int layers;
  };
  const Made stages[] = {{{&fast, &fast}, 16e9, 20}, {{&fast, &fast}, 16e9, 21},
                         {{&fast, &fast}, 4e9, 9},   {{&slow, &fast}, 4e9, 9},
                         {{&slow, &slow}, 4e9, 9},   {{&slow}, 4e9, 6},
                         {{&slow}, 4e9, 6}};
  ReplicaSpec replica;
  int first_layer = 0;
  for (const Made& made : stages) {
    StageSpec& stage = replica.stages.emplace_back();
    stage.ranks = made.ranks;
    stage.communicator = {{stage.width(), Link(made.bytes_per_second, 1e-5), false}};
    stage.first_layer = std::exchange(first_layer, first_layer + made.layers);
    stage.layers = made.layers;
    // The first three hops are alike but for where they lead.
    replica.hops.push_back(Link(replica.hops.size() < 3 ? 1e9 : 2e9, 1e-4));
  }
  replica.stages.back().holds_head = true;
  const StepWork work = DecodeWork(30, 700) + PrefillWork(400, 100);
  double seconds = 0;
  for (size_t j = 0; j < replica.stages.size(); ++j) {
    seconds += StageSeconds(model, replica.stages[j], work);
    seconds +=
        j + 1 < replica.stages.size()
            ? HopSeconds(model, replica.hops[j], replica.stages[j + 1].communicator, work.rows())
            : TransferSeconds(replica.hops[j], kTokenIdBytes * work.sampled_rows);
  }
  CHECK(PeriodOf(model, replica, work, 7).latency_seconds == Approx(seconds).epsilon(1e-12));
  // With one step in flight a stage is busy while the step is in it, with many the slowest always.
  for (const int micro_batches : {1, 100}) {
    const Period period = PeriodOf(model, replica, work, micro_batches);
    const std::vector<double> busy = BusyShares(model, replica, work, micro_batches);
    REQUIRE(busy.size() == replica.stages.size());
    for (size_t j = 0; j < busy.size(); ++j) {
      const double stage = StageSeconds(model, replica.stages[j], work);
      CHECK(busy[j] == Approx(stage / period.seconds).epsilon(1e-12));
    }
    const double most = *std::max_element(busy.begin(), busy.end());
    CHECK(most == (micro_batches == 1 ? Approx(busy[period.slowest_stage]) : Approx(1)));
  }
}

TEST_CASE("where KV holds fewer sequences than stages, fewer micro-batches run") {
  const DeviceSpec device = Clock(1e-3);
  const ModelShape model = Tiny(4);
  ReplicaSpec replica = Pipeline({&device, &device, &device, &device}, 0);
  replica.role = Role::kDecode;
  ReplicaOptions options;
  options.kv_headroom = 0;
  const ReplicaRate rate = CapacityWithKv(model, replica, Lengths(100, 11), options, 2 * 105 + 1);
  CHECK(rate.micro_batches == 2);
  CHECK(rate.decode_rows == Approx(1).epsilon(0.01));
  CHECK(rate.period_seconds == Approx(2e-3));
}

TEST_CASE("room for less than the longest sequence is no room") {
  const DeviceSpec device = Clock(1e-3);
  const ReplicaSpec replica = Pipeline({&device}, 0);
  CHECK(CapacityWithKv(Tiny(1), replica, Lengths(100, 11), {}, 110).requests_per_second == 0);
  CHECK(CapacityWithKv(Tiny(1), replica, Lengths(100, 11), {}, 130).requests_per_second > 0);
}

TEST_CASE("role both computes the prompts beside the decodes") {
  // Compute costs 1 us per row (2*P*rows / flops with P = 7 parameters), nothing else.
  DeviceSpec device = Device("x", 1, 1, 1e12);
  device.flops_per_second = 14e6;
  ModelShape model = Tiny(1);
  model.hidden = 1;
  ReplicaSpec replica = Pipeline({&device}, 0);
  replica.stages[0].holds_head = false;
  ReplicaOptions options;
  options.kv_headroom = 0;
  options.max_sequences = 10;
  const LengthMoments lengths = Lengths(30, 11);  // 3 prompt tokens per decode step
  const ReplicaRate rate = CapacityWithKv(model, replica, lengths, options, 1e9);
  CHECK(rate.decode_rows == Approx(10));
  CHECK(rate.prefill_tokens == Approx(30));
  CHECK(rate.limit == Limit::kSequences);
  // Rows: 40 * 1 us; attention 4 FLOPs per pair: decode 10 * 35 contexts, prefill one prompt of 450
  // pairs.
  CHECK(rate.period_seconds == Approx(40e-6 + 4 * (350 + 450) / 14e6).epsilon(1e-3));
  CHECK(rate.requests_per_second == Approx(1 / rate.period_seconds));
}

TEST_CASE("role prefill serves a prompt as its slowest stage does, and answers after all stages") {
  const ModelShape model = DenseShape("two layers", 2, 1024, 8, 8, 4096, 1000);
  DeviceSpec fast = Device("fast", 80, 100, 1000), slow = Device("slow", 80, 40, 1000);
  for (DeviceSpec* device : {&fast, &slow}) {
    device->compute_efficiency = 0.5;
    device->memory_efficiency = 0.8;
  }
  fast.layer_overhead_seconds = 20e-6;
  slow.layer_overhead_seconds = 30e-6;
  ReplicaSpec replica = Pipeline({&fast, &slow}, 0);
  replica.role = Role::kPrefill;
  for (LinkSpec& hop : replica.hops) hop = Link(10e9, 50e-6);
  ReplicaOptions options;
  options.max_sequences = 2;  // one in each of two steps: a step is one prompt
  // A prompt of 512 tokens: 2*P*T + 2*T^2*n*h_d FLOPs of a layer; the last stage reads the head's
  // 1,000 rows of 1,024 for one row. Then 512 rows of 1,024 in two bytes, and a token id back.
  const double parameters = 4.0 * 1024 * 1024 + 3.0 * 1024 * 4096;
  const double flops = 2 * parameters * 512 + 2.0 * 512 * 512 * 1024;
  const double tau0 = flops / 50e12 + 20e-6;
  const double tau1 = flops / 20e12 + 30e-6 + 1000 * 1024 * 2 / 800e9 + 2 * 1000 * 1024 / 20e12;
  const double h0 = 50e-6 + 512 * 1024 * 2 / 10e9, h1 = 50e-6 + kTokenIdBytes / 10e9;
  const double all = tau0 + h0 + tau1 + h1;
  REQUIRE(tau1 > all / 2);  // two in flight keep the slowest stage busy
  const ReplicaRate rate = CapacityOf(model, replica, Lengths(512, 100), options);
  CHECK(rate.prefill_tokens == 512);
  CHECK(rate.requests_per_second == Approx(1 / tau1).epsilon(1e-12));
  CHECK(rate.slowest_stage == 1);
  const PrefillCost cost = PrefillCostOf(model, replica, {512, 100, 1}, options, 2, 0, 0);
  CHECK(cost.service_seconds == Approx(tau1).epsilon(1e-12));
  CHECK(cost.latency_seconds == Approx(all).epsilon(1e-12));
}

TEST_CASE("a limit on TPOT ends the growth of rows, or makes a replica useless") {
  const ModelShape model = Llama2_70B();
  const DeviceSpec device = Device("big", 200, 1000, 3000);
  StageSpec stage;
  stage.ranks = {&device};
  stage.communicator = {{1, {}, false}};
  stage.layers = 80;
  stage.holds_embedding = stage.holds_head = true;
  ReplicaSpec replica;
  replica.stages = {stage};
  ReplicaOptions options;
  const LengthMoments lengths = Lengths(1000, 200);
  const ReplicaRate free = CapacityOf(model, replica, lengths, options);
  CHECK(free.limit == Limit::kKv);
  options.max_tpot_seconds = 0.06;
  const ReplicaRate bound = CapacityOf(model, replica, lengths, options);
  CHECK(bound.limit == Limit::kTpot);
  for (double limit = 0.052; limit < free.tpot_seconds; limit *= 1.003) {
    INFO(limit);
    options.max_tpot_seconds = limit;
    const double tpot = CapacityOf(model, replica, lengths, options).tpot_seconds;
    CHECK(tpot <= limit);
    CHECK(tpot == Approx(limit).epsilon(1e-8));
  }
  CHECK(bound.requests_per_second < free.requests_per_second);
  options.max_tpot_seconds = 0.04;  // the weights alone take 46 ms
  CHECK(CapacityOf(model, replica, lengths, options).requests_per_second == 0);
}

TEST_CASE(
    "below capacity, rows are the smallest fixed point, and a prompt takes its part of steps") {
  const DeviceSpec device = Clock(1e-3);
  ReplicaSpec replica = Pipeline({&device}, 0);
  const RequestLengths one = {2048, 11, 1};
  const ReplicaOptions options;
  const double rows = DecodeRowsAt(Tiny(1), replica, MomentsOf({&one, 1}), options, 1, 100);
  CHECK(rows == Approx(1).epsilon(1e-2));  // 100/s * 10 steps * 1 ms
  // The step has 2048 rows of which one decodes: a prompt takes 2048/2047 steps.
  const PrefillCost cost = PrefillCostOf(Tiny(1), replica, one, options, 1, rows, 2048);
  CHECK(cost.service_seconds == Approx(1e-3).epsilon(1e-2));
}

TEST_CASE("prompts that share their full chunks take as long as alone") {
  const ModelShape model = Llama3_8B();
  const DeviceSpec device = Device("card", 80, 2e12, 3e14);
  const ReplicaSpec replica = Pipeline({&device, &device}, 1e-3);
  ReplicaOptions options;
  options.memory.max_step_tokens = 100;
  std::vector<double> chunks;
  for (const double prompt : {950.0, 30.0, 400.0, 1720.0}) {
    INFO("prompt of " << prompt << " tokens");
    const double alone = PrefillLatencySeconds(model, replica, prompt, 0, options, 20, 500);
    CHECK(PrefillLatencySeconds(model, replica, prompt, 0, options, 20, 500, &chunks) == alone);
  }
  CHECK(chunks.size() == 21);  // of 80 rows each, and 40 in the last
}

TEST_CASE("queue: M/D/1 is the special case, bursts wait longer, saturation for ever") {
  const ServiceMoments fixed = {0.1, 0.01};
  CHECK(MeanWaitSeconds(5, fixed) == Approx(0.5 * 0.1 / (2 * 0.5)));
  CHECK(MeanWaitSeconds(5, fixed, 3) == Approx(5 * MeanWaitSeconds(5, fixed)));
  CHECK(MeanWaitSeconds(10, fixed) > 1e300);
  CHECK(WaitExceedsProbability(0, QueueWait(5, fixed), {}) == Approx(0.5));
  CHECK(WaitExceedsProbability(0.1, QueueWait(5, fixed), {}) ==
        Approx(0.5 * std::exp(-0.5 * 0.1 / 0.05)));
  CHECK(WaitExceedsProbability(1, QueueWait(10, fixed), {}) == 1);
}

}  // namespace
}  // namespace tessera::scheduler
