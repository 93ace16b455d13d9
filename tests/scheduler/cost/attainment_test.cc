#include "scheduler/cost/attainment.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the models and devices of this folder's tests

// KV of a token: 4 bytes.
ModelShape Tiny() { return DenseShape("tiny", 1, 1, 1, 1, 1, 1); }

RequestClass Class(std::vector<RequestLengths> samples, LatencyLimits limits, double attainment) {
  RequestClass one;
  one.name = "one";
  one.samples = std::move(samples);
  one.limits = limits;
  one.required_attainment = attainment;
  return one;
}

// 0.1 s in the queue's server, 0.2 s from the first chunk to the first token.
PrefillSpeed Fixed(size_t classes = 1) {
  PrefillSpeed speed;
  speed.service = {0.1, 0.01};
  speed.latency_seconds.assign(classes, {0.2});
  return speed;
}

// Part of those at Fixed() that wait longer. Two micro-batches, of which rate * 0.2 s are busy, are
// as many as keep the server busy; who finds both so shares a step, half of 0.2 s later.
double Late(double seconds, double rate) {
  const double busy = 0.2 * rate, rho = 0.1 * rate;
  const double both = busy * busy / (2 + busy);  // Erlang C
  const double mean = rate * 0.01 / (2 * (1 - rho)) + both * 0.1;
  return rho * std::exp(-seconds * rho / mean);
}

double AttainedBy(LatencyLimits limits, double rate, double tpot, const KvPath* path = nullptr) {
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  const std::vector<RequestClass> classes = {Class({{100, 11, 1}}, limits, 0.9)};
  return AttainmentModel(model, classes, options, 1).At(Fixed(), rate, {{tpot}, {}}, path).all;
}

// One stage whose step takes 1 ms whatever runs in it.
struct ClockReplica {
  ClockReplica() {
    device = Device("clock", 8, 1e9, 1e15);
    device.layer_overhead_seconds = 1e-3;
    StageSpec stage;
    stage.ranks = {&device};
    stage.communicator = {{1, {}, false}};
    stage.layers = 1;
    stage.holds_embedding = stage.holds_head = true;
    spec.stages = {stage};
  }
  DeviceSpec device;
  ReplicaSpec spec;
};

TEST_CASE("attainment by hand: what is left to wait, and the tail of the wait") {
  // rho = 5/s * 0.1 s = 0.5; E[W] = 5 * 0.01 / (2 * 0.5) = 0.05 s, and 0.1 s / 3 for shared steps.
  CHECK(Late(0, 5) == 0.5);
  CHECK(Late(0.25 / 3, 5) == Approx(0.5 * std::exp(-0.5)));
  LatencyLimits limits;
  CHECK_FALSE(limits.any());
  CHECK(AttainedBy(limits, 5, 0.01) == 1);
  limits.ttft_seconds = 0.3;  // 0.1 s may be waited
  CHECK(limits.any());
  CHECK(AttainedBy(limits, 5, 0.01) == Approx(1 - Late(0.1, 5)));
  limits.end_to_end_seconds = 0.35;  // 0.2 s prefill, 10 steps of 0.01 s: 0.05 s may be waited
  CHECK(AttainedBy(limits, 5, 0.01) == Approx(1 - Late(0.05, 5)));
  CHECK(AttainedBy(limits, 5, 0.016) == 0);  // prefill and decoding alone take 0.36 s
  limits = {};
  limits.tpot_seconds = 0.01;
  CHECK(AttainedBy(limits, 5, 0.01) == 1);
  CHECK(AttainedBy(limits, 5, 0.0101) == 0);
  limits = {0.19};  // less than the prefill
  CHECK(AttainedBy(limits, 0.001, 0.01) == 0);
  limits = {0.3};
  CHECK(AttainedBy(limits, 10, 0.01) == 0);  // saturated
}

TEST_CASE("KV on its way delays the second token: end to end and TPOT, not the first") {
  KvPath path;
  path.link.bytes_per_second = 4000;  // 400 bytes: 0.1 s
  LatencyLimits limits;
  limits.ttft_seconds = 0.3;
  CHECK(AttainedBy(limits, 5, 0.01, &path) == Approx(1 - Late(0.1, 5)));
  limits.end_to_end_seconds = 0.45;  // 0.2 + 0.1 + 0.1: 0.05 s may be waited
  CHECK(AttainedBy(limits, 5, 0.01, &path) == Approx(1 - Late(0.05, 5)));
  limits.tpot_seconds = 0.02;  // 0.01 + 0.1 / 10
  CHECK(AttainedBy(limits, 5, 0.01, &path) == Approx(1 - Late(0.05, 5)));
  limits.tpot_seconds = 0.0199;
  CHECK(AttainedBy(limits, 5, 0.01, &path) == 0);
}

TEST_CASE("where only prompts are computed a short one comes behind a long one before it") {
  // Of two lengths, 0.1 and 0.4 s in the stages after the first: long ones come 0.5 times a second,
  // so a short one finds none in the last 0.3 s with exp(-0.15).
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  const std::vector<RequestClass> classes = {Class({{100, 1, 0.5}, {400, 1, 0.5}}, {}, 0.9)};
  const AttainmentModel judged(model, classes, options, 1);
  PrefillSpeed speed;
  speed.service = {1e-6, 1e-12};
  speed.latency_seconds = {{0.1, 0.4}};
  const double later = judged.At(speed, 1, {}).ttft_seconds[0] - 0.25;
  const double shorts = 0.3 - (1 - std::exp(-0.5 * 0.3)) / 0.5;
  CHECK(later == Approx(shorts / 2).margin(2e-3));
  speed.latency_seconds = {{0.4, 0.4}};  // all alike: none is overtaken
  CHECK(judged.At(speed, 1, {}).ttft_seconds[0] == Approx(0.4).margin(1e-3));
}

TEST_CASE("the rate within limits is where attainment meets what is asked for") {
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  LatencyLimits limits;
  limits.ttft_seconds = 0.3;
  const std::vector<RequestClass> classes = {Class({{100, 11, 1}}, limits, 0.9)};
  const AttainmentModel attainment(model, classes, options, 1);
  const auto at = [&](double rate) { return attainment.At(Fixed(), rate, {{0.01}, {}}); };
  const double rate = attainment.LargestWithinLimits(9, at);
  // rho * exp(-2 (1 - rho) * 0.1 s / 0.1 s) = 0.1
  CHECK(Late(0.1, rate) == Approx(0.1).epsilon(1e-5));
  CHECK(at(rate).all == Approx(0.9).epsilon(1e-5));
  CHECK(attainment.LargestWithinLimits(2, at) == 2);  // its capacity
}

TEST_CASE("classes with objectives of their own attain alone, the others together") {
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  std::vector<RequestClass> classes(2, Class({{100, 11, 1}}, {}, 0.9));
  classes[0].share = 0.8;
  classes[1].share = 0.2;
  const AttainmentModel attainment(model, classes, options, 1);
  CHECK(EnoughAttained(classes, {1, 0.5}));  // 0.9 of all
  CHECK_FALSE(EnoughAttained(classes, {1, 0.49}));
  classes[1].judged_with = 1;
  CHECK_FALSE(EnoughAttained(classes, {1, 0.5}));
  CHECK(EnoughAttained(classes, {0.9, 0.9}));
}

TEST_CASE("the largest useful TPOT leaves out no more requests than may miss") {
  LatencyLimits limits;
  limits.end_to_end_seconds = 10;
  // Ten steps may take 1 s each, a hundred 0.1 s.
  std::vector<RequestClass> classes = {Class({{9, 11, 0.9}, {9, 101, 0.1}}, limits, 0.9)};
  CHECK(LargestUsefulTpot(classes) == Approx(1));
  classes[0].required_attainment = 0.95;
  CHECK(LargestUsefulTpot(classes) == Approx(0.1));
  classes[0].limits.tpot_seconds = 0.05;
  CHECK(LargestUsefulTpot(classes) == 0.05);
  classes[0].limits = {1.0};
  CHECK(LargestUsefulTpot(classes) > 1e300);
}

TEST_CASE("goodput of a replica falls as limits tighten, arrivals bunch and more must attain") {
  const ClockReplica replica;
  const ModelShape model = Tiny();
  ReplicaOptions options;
  options.max_sequences = 1000;
  const auto goodput = [&](double ttft, double attainment, double variation) {
    LatencyLimits limits;
    limits.ttft_seconds = ttft;
    const std::vector<RequestClass> classes = {
        Class({{1000, 21, 0.5}, {4000, 11, 0.5}}, limits, attainment)};
    const AttainmentModel judged(model, classes, options, variation);
    const ReplicaRate capacity = CapacityOf(model, replica.spec, judged.lengths(), options);
    const ReplicaRate rate = judged.WithinLimits(replica.spec, capacity);
    CHECK(rate.requests_per_second <= capacity.requests_per_second);
    CHECK(rate.decode_rows <= capacity.decode_rows);
    if (rate.requests_per_second < capacity.requests_per_second) {
      CHECK(rate.limit == Limit::kObjectives);
    }
    return rate.requests_per_second;
  };
  // A prompt of 4000 takes two steps at least, or three: 2048 rows less those that decode.
  CHECK(goodput(1.9e-3, 0.9, 1) == 0);
  CHECK(goodput(1.9e-3, 0.4, 1) > 0);  // the short half is within the limit
  double before = 0;
  for (const double ttft : {3e-3, 4e-3, 6e-3, 12e-3, 100e-3}) {
    const double now = goodput(ttft, 0.9, 1);
    CHECK(now >= before);
    CHECK(goodput(ttft, 0.99, 1) <= now);
    CHECK(goodput(ttft, 0.9, 2) <= now);
    before = now;
  }
  CHECK(before > 0);
  CHECK(goodput(3e-3, 0.9, 1) < 0.9 * before);
}

TEST_CASE("who asks for more than a rate that is known hears the same rate, or that it is not") {
  const ModelShape model = Llama3_8B();
  const DeviceSpec device = Device("card", 80, 2e12, 3e14);
  ReplicaSpec replica = ClockReplica().spec;
  replica.stages[0].ranks = {&device};
  replica.stages[0].layers = model.layers;
  const ReplicaOptions options;
  const auto check = [&](double ttft, double tpot) {
    LatencyLimits limits;
    limits.ttft_seconds = ttft;
    limits.tpot_seconds = tpot;
    const std::vector<RequestClass> classes = {
        Class({{1000, 21, 0.5}, {4000, 11, 0.5}}, limits, 0.9)};
    const AttainmentModel judged(model, classes, options, 1);
    const ReplicaRate capacity = CapacityOf(model, replica, judged.lengths(), options);
    const double rate = judged.WithinLimits(replica, capacity).requests_per_second;
    REQUIRE(rate > 0);
    REQUIRE(rate < 0.99 * capacity.requests_per_second);
    for (const double part : {0.5, 0.9, 0.99}) {
      CHECK(judged.WithinLimits(replica, capacity, part * rate).requests_per_second ==
            Approx(rate).epsilon(1e-5));
    }
    CHECK(judged.WithinLimits(replica, capacity, 1.01 * rate).requests_per_second == 0);
  };
  check(0.8, 10);    // prompts are what keeps requests out
  check(60, 0.025);  // decoding is
}

TEST_CASE("where limits leave room and KV does not, KV is what limits a goodput") {
  const ClockReplica replica;
  const ModelShape model = Tiny();
  ReplicaOptions options;
  options.max_sequences = 1000;
  const auto within = [&](double ttft, double kv_tokens) {
    LatencyLimits limits;
    limits.ttft_seconds = ttft;
    const std::vector<RequestClass> classes = {Class({{1000, 21, 1}}, limits, 0.9)};
    const AttainmentModel judged(model, classes, options, 1);
    ReplicaRate capacity = CapacityOf(model, replica.spec, judged.lengths(), options);
    capacity.kv_capacity_tokens = kv_tokens;
    const ReplicaRate rate = judged.WithinLimits(replica.spec, capacity);
    REQUIRE(rate.requests_per_second > 0);
    REQUIRE(rate.requests_per_second < capacity.requests_per_second);
    // What decodes on average leaves the headroom free, and little more where KV limits.
    const double held =
        rate.requests_per_second * rate.tpot_seconds * judged.lengths().decode_context_sum;
    CHECK(held <= (1 - options.kv_headroom) * kv_tokens * (1 + 1e-3));
    if (rate.limit == Limit::kKv)
      CHECK(held == Approx((1 - options.kv_headroom) * kv_tokens).epsilon(0.06));
    return rate.limit;
  };
  CHECK(within(1000, 10'000) == Limit::kKv);
  CHECK(within(3e-3, 1e6) == Limit::kObjectives);
}

TEST_CASE("steps with a chunk take longer than those without, and so does the mean of both") {
  // Ten requests a second bring 10,000 prompt tokens; a step of 2048 has room for 2038 beside ten.
  const ClockReplica replica;
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  const std::vector<RequestClass> classes = {Class({{1000, 11, 1}}, {}, 0.9)};
  const AttainmentModel judged(model, classes, options, 1);
  const ReplicaCurve curve = judged.CurveOf(replica.spec, 1, 1e6, 100, 2048);
  CHECK(judged.MostDecoding(curve, 0) == Approx(100));
  // KV for 20 sequences of 1005 tokens on average and half a prompt; then a prompt is computed
  // during two steps of 1 ms at most, a hundred times a second.
  const ReplicaCurve short_of_kv = judged.CurveOf(replica.spec, 1, 20'600, 100, 2048);
  CHECK(judged.MostDecoding(short_of_kv, 0) == Approx(20).epsilon(1e-3));
  CHECK(judged.MostDecoding(short_of_kv, 100) < 20 - 0.09);
  CHECK(judged.MostDecoding(short_of_kv, 100) > 20 - 0.21);
  const ReplicaPace pace = judged.PaceAt(curve, 10, 10);
  CHECK(pace.tpot_seconds == Approx(1e-3).epsilon(1e-2));  // this clock's steps are alike
  CHECK(pace.chunk_part == Approx(10 * 1000 * 1e-3 / 2038).epsilon(1e-2));
  CHECK(judged.PaceAt(curve, 10, 1e4).chunk_part == 1);  // does not keep up
  ClockReplica slow;
  slow.device.flops_per_second = 1e8;  // now a prompt token takes time
  const ReplicaCurve slower = judged.CurveOf(slow.spec, 1, 1e6, 100, 2048);
  double before = 0, spread = 0;
  for (const double rate : {0.0, 1.0, 5.0, 20.0}) {
    const ReplicaPace at = judged.PaceAt(slower, 10, rate);
    CHECK(at.tpot_seconds > before);
    CHECK(at.chunk_part < 1);
    CHECK((rate == 0 ? at.spread_seconds == 0 : at.spread_seconds > spread));
    before = at.tpot_seconds;
    spread = at.spread_seconds;
  }
}

TEST_CASE("with several micro-batches an answer takes what its tokens take on average") {
  ClockReplica slow;
  slow.device.flops_per_second = 1e8;
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  const std::vector<RequestClass> classes = {Class({{1000, 11, 1}}, {}, 0.9)};
  const AttainmentModel judged(model, classes, options, 1);
  const Attained mean = judged.At(judged.CurveOf(slow.spec, 2, 1e6, 100, 2048), 5);
  CHECK(mean.end_to_end_seconds[0] == Approx(mean.ttft_seconds[0] + 10 * mean.tpot_seconds));
}

TEST_CASE("limits of TPOT are kept by the slow tenth of the requests, not by the mean") {
  ClockReplica slow;
  slow.device.flops_per_second = 1e8;
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  LatencyLimits limits;
  std::vector<RequestClass> classes = {Class({{1000, 11, 1}}, limits, 0.9)};
  const AttainmentModel judged(model, classes, options, 1);
  const ReplicaCurve curve = judged.CurveOf(slow.spec, 1, 1e6, 100, 2048);
  const Attained mean = judged.At(curve, 10);
  CHECK(mean.all == 1);
  CHECK(mean.ttft_seconds[0] > 0);
  classes[0].limits.tpot_seconds = mean.tpot_seconds;
  const double within = judged.At(curve, 10).all;
  CHECK(within > 0.2);
  CHECK(within < 0.8);
  const AttainmentModel uneven(model, classes, options, 3);  // arrivals in bursts
  classes[0].limits.tpot_seconds = 1.5 * mean.tpot_seconds;
  CHECK(judged.At(curve, 10).all > within);
  CHECK(uneven.At(curve, 10).all < judged.At(curve, 10).all);
  CHECK(judged.At(curve, 1e4).all == 0);  // saturated
}

TEST_CASE(
    "who decodes elsewhere waits for room there, which prompts on their way keep from others") {
  // Ten steps of 1 ms: a decoding replica with room for n completes 100 n requests per second.
  const ClockReplica replica;
  const ModelShape model = Tiny();
  const ReplicaOptions options;
  LatencyLimits limits;
  limits.ttft_seconds = 0.3;  // 0.1 s may be waited
  const std::vector<RequestClass> classes = {Class({{100, 11, 1}}, limits, 0.9)};
  const AttainmentModel judged(model, classes, options, 1);
  // KV for 20 sequences of 105 tokens on average and half a prompt.
  const ReplicaCurve curve = judged.DecodeCurveOf(replica.spec, 1, 2150, 256);
  const DecodeLoad idle = judged.LoadOf(curve, 1, 0);
  CHECK(idle.room.probability < 1e-9);
  CHECK(idle.mean_tpot_seconds() == Approx(1e-3).epsilon(1e-3));
  const DecodeLoad busy = judged.LoadOf(curve, 1800, 0);
  CHECK(busy.room.probability > 0.1);
  CHECK(busy.room.mean_seconds > 0);
  CHECK(judged.LoadOf(curve, 1800, 100).room.mean() > 1.5 * busy.room.mean());
  CHECK(std::isinf(judged.LoadOf(curve, 1990, 0).room.mean()));  // beyond what completes
  CHECK(std::isinf(judged.LoadOf(curve, 1, 2050).room.mean()));  // no room for one
  // A prompt's 100 tokens are kept for 0.2 s of computing, 0.05 s in the queue at rho 0.5, 0.1 s /
  // 3 for shared steps, and 0.1 s on the link.
  KvPath path;
  path.link.bytes_per_second = 4000;
  CHECK(judged.KeptBefore(Fixed(), 5, path) == Approx(100 * (0.35 + 0.1 / 3)));
  CHECK(std::isinf(judged.KeptBefore(Fixed(), 9.9, path)));
  // Nobody waits for room, or everybody does.
  DecodeLoad load = {{1e-3}, {}};
  CHECK(judged.At(Fixed(), 5, load).all == Approx(1 - Late(0.1, 5)));
  load.room = {1, 0.05};
  const Attained waits = judged.At(Fixed(), 5, load);
  CHECK(waits.all < 1 - Late(0.1, 5));
  CHECK(waits.ttft_seconds[0] == Approx(0.2 + 0.05 + 0.1 / 3 + 0.05));
}

TEST_CASE("many prompt lengths are interpolated closely") {
  const ClockReplica replica;
  const ModelShape model = Tiny();
  ReplicaOptions options;
  options.memory.max_step_tokens = 64;
  std::vector<RequestLengths> samples;
  for (int i = 1; i <= 200; ++i) samples.push_back({64.0 * i, 2, 1.0 / 200});
  const std::vector<RequestClass> classes = {Class(samples, {}, 0.9)};
  const AttainmentModel judged(model, classes, options, 1);
  const PrefillSpeed speed = judged.PrefillBeside(replica.spec, 1, 0, 64);
  // Prompt i takes i full steps of 1 ms.
  for (size_t i = 0; i < samples.size(); ++i)
    CHECK(speed.latency_seconds[0][i] == Approx(1e-3 * static_cast<double>(i + 1)).margin(1e-3));
  CHECK(speed.service.mean == Approx(0.1005).epsilon(0.01));
}

}  // namespace
}  // namespace tessera::scheduler
