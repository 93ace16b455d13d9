// Roles, transfers, losses, stragglers, re-planning, and what is reported of them.
#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/pictures.h"
#include "scheduler/simulator/report.h"
#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::ReplicaSetup;
using scheduler::Role;
using scheduler::ScheduledChange;
using scheduler::SimulatedRequest;
using scheduler::SimulationResult;
using scheduler::SimulationSetup;

// 10 ms per step, 0.1 ms per prompt token, 1 ms per decoding sequence.
ReplicaSetup Replica(const std::string& name, Role role = Role::kBoth) {
  PlainFigures figures;
  figures.base = 0.010;
  figures.per_prefill_token = 0.0001;
  figures.per_row = 0.001;
  ReplicaSetup setup = PlainReplica(name, figures);
  setup.role = role;
  return setup;
}

SimulatedRequest Request(double arrival, int64_t prompt, int64_t output) {
  SimulatedRequest request;
  request.arrival_seconds = arrival;
  request.prompt_tokens = prompt;
  request.output_tokens = output;
  return request;
}

SimulationResult Run(SimulationSetup setup) {
  setup.check_invariants = true;
  auto dispatcher = scheduler::MakeRouterDispatcher();
  auto result = Simulate(setup, dispatcher.get());
  INFO(result.status());
  REQUIRE(result.ok());
  return *std::move(result);
}

ScheduledChange Change(double at, ScheduledChange::Kind kind, int replica) {
  ScheduledChange change;
  change.at_seconds = at;
  change.kind = kind;
  change.replica = replica;
  return change;
}

// Prefill and decode on two replicas, over one link of 1e6 bytes/s.
SimulationSetup Split(int layers, double bytes_per_token) {
  SimulationSetup setup;
  setup.replicas = {Replica("p", Role::kPrefill), Replica("d", Role::kDecode)};
  setup.transfers.links = {{"p>d", 1e6}};
  setup.transfers.routes.resize(4);
  setup.transfers.routes[1] = {{bytes_per_token, 0.0005, {0}}};
  setup.transfers.layers = layers;
  return setup;
}

}  // namespace

// The second request leaves the first replica idle, and the run goes on long after both have come.
TEST_CASE("devices are busy for a part of the time in which requests came, not of what follows") {
  for (const bool leaps : {true, false}) {
    SimulationSetup setup;
    setup.leaps = leaps;
    setup.replicas = {Replica("a")};
    // Prompts take 20 ms, further tokens 11 ms: busy from 1 to 1.569 s and from 2 s to the end.
    setup.requests = {Request(1, 100, 50), Request(2, 100, 500)};
    const SimulationResult result = Run(setup);
    CHECK(result.end_seconds > 7);
    CHECK(result.coming_until_seconds == 2);
    const scheduler::SimulationReport report = ReportOf(result);
    CHECK(report.busy_seconds == Approx(1));
    CHECK(report.devices.at(0).busy == Approx(0.020 + 49 * 0.011).epsilon(1e-6));
    CHECK_THAT(ReportTable(report),
               Catch::Contains("\nbusy, of the 1.0 s in which requests came:"));

    // Within a leap: half of what it takes is late.
    setup.requests = {Request(0, 100, 101), Request(0.57, 100, 101)};
    setup.replicas.push_back(Replica("b"));
    const scheduler::SimulationReport cut = ReportOf(Run(setup));
    CHECK(cut.devices.at(0).busy == Approx(1).epsilon(1e-6));
    CHECK(cut.devices.at(1).busy == 0);

    setup.requests = {Request(3, 100, 50)};  // no time in which they came
    const scheduler::SimulationReport once = ReportOf(Run(setup));
    CHECK(once.busy_seconds == once.seconds);
    CHECK(once.devices.at(0).busy + once.devices.at(1).busy == Approx(1).epsilon(1e-6));
    CHECK_THAT(ReportTable(once), Catch::Contains("\nbusy:\n"));
  }
}

TEST_CASE(
    "micro-batches share the queue: a step takes the prompts that its rows and places allow") {
  // Steps of 10 ms and 0.1 ms per prompt token; the second stage takes 1.3 times as long.
  PlainFigures figures;
  figures.base = 0.010;
  figures.per_prefill_token = 0.0001;
  figures.stages = 2;
  SimulationSetup setup;
  setup.replicas = {PlainReplica("r", figures)};
  setup.replicas[0].micro_batches = 2;
  setup.replicas[0].limits.max_batched_tokens = 250;
  setup.requests = {Request(0, 100, 1), Request(0, 100, 1), Request(0, 100, 1)};
  SimulationResult result = Run(setup);
  // 250 rows: two prompts and half of the third, whose rest comes when the step has passed both
  // stages. The other micro-batch had nobody left to take.
  CHECK(result.outcomes[0].first_token_seconds == Approx(0.035 + 1.3 * 0.035));
  CHECK(result.outcomes[1].first_token_seconds == result.outcomes[0].first_token_seconds);
  CHECK(result.outcomes[2].first_token_seconds ==
        Approx(result.outcomes[0].first_token_seconds + 2.3 * 0.015));
  // Two places each: the third runs in the other, behind the first two in each stage.
  setup.replicas[0].limits.max_sequences = 4;
  result = Run(setup);
  CHECK(result.outcomes[1].first_token_seconds == Approx(2.3 * 0.030));
  CHECK(result.outcomes[2].first_token_seconds == Approx(2.3 * 0.030 + 1.3 * 0.020));
}

TEST_CASE("as many requests come as the rate says, where the draw is to be exact") {
  const std::vector<scheduler::RequestLengths> lengths = {{100, 10}};
  const auto drawn = scheduler::RequestsFromProcess({5, 2, 100, 1}, lengths);
  const auto exact = scheduler::RequestsFromProcess({5, 2, 100, 1, true}, lengths);
  CHECK(drawn.back().arrival_seconds != Approx(20).epsilon(0.001));
  CHECK(exact.back().arrival_seconds == Approx(20));
  CHECK(exact[7].arrival_seconds / exact[70].arrival_seconds ==
        Approx(drawn[7].arrival_seconds / drawn[70].arrival_seconds));
}

// Gaps of such a variation are too small to write but for one in millions.
TEST_CASE("a draw in which all requests come at once stays one: no rate makes it longer") {
  const std::vector<scheduler::RequestLengths> lengths = {{100, 10}};
  for (const bool exact : {false, true}) {
    const auto drawn = scheduler::RequestsFromProcess({5, 1e5, 20, 1, exact}, lengths);
    REQUIRE(drawn.size() == 20);
    for (const SimulatedRequest& request : drawn) CHECK(request.arrival_seconds == 0);
  }
}

TEST_CASE("a split request: prefill, push of its KV, decode") {
  // 400 tokens: 50 ms of prefill, 80,000 bytes: X = 80 ms.
  for (const int layers : {1, 4}) {
    SimulationSetup setup = Split(layers, 200);
    setup.requests = {Request(0, 400, 3)};
    const SimulationResult result = Run(setup);
    const auto& o = result.outcomes[0];
    CHECK(o.prefill_replica == 0);
    CHECK(o.decode_replica == 1);
    CHECK(o.first_token_seconds == Approx(0.050));
    const double x = 0.080, t = 0.050, l = layers;
    const double unhidden = std::max(x / l, x - (1 - 1 / l) * t);
    CHECK(o.finished_seconds == Approx(0.050 + unhidden + 0.0005 + 2 * 0.011));
    CHECK(result.link_bytes[0] == Approx(80'000));
  }
}

TEST_CASE("a short transfer hides behind the prefill but for its last layer") {
  SimulationSetup setup = Split(4, 50);  // X = 20 ms
  setup.requests = {Request(0, 400, 2)};
  CHECK(Run(setup).outcomes[0].finished_seconds == Approx(0.050 + 0.005 + 0.0005 + 0.011));
}

TEST_CASE("two senders into one receiver share its link") {
  SimulationSetup setup = Split(1, 200);
  setup.replicas = {Replica("p", Role::kPrefill), Replica("q", Role::kPrefill),
                    Replica("d", Role::kDecode)};
  setup.transfers.routes.assign(9, {});
  setup.transfers.routes[2] = setup.transfers.routes[5] = {{200, 0, {0}}};
  setup.requests = {Request(0, 400, 2), Request(0, 400, 2)};
  const SimulationResult result = Run(setup);
  CHECK(result.outcomes[0].prefill_replica != result.outcomes[1].prefill_replica);
  for (const auto& o : result.outcomes) {
    CHECK(o.finished_seconds == Approx(0.050 + 0.160 + 0.012));
  }
}

TEST_CASE("a request waits for room at its decode replica before its prefill starts") {
  SimulationSetup setup = Split(1, 0);
  setup.replicas[1].limits.total_blocks = 30;  // 480 tokens
  setup.requests = {Request(0, 400, 3), Request(0.001, 400, 3)};
  const SimulationResult result = Run(setup);
  CHECK(result.outcomes[0].finished_seconds == Approx(0.050 + 0.0005 + 0.022));
  CHECK(result.outcomes[1].started_seconds == Approx(result.outcomes[0].finished_seconds));
}

TEST_CASE("states follow a prompt's last layer, and nothing hides them") {
  SimulationSetup setup = Split(4, 50);
  setup.requests = {Request(0, 400, 2)};
  const double without = Run(setup).outcomes[0].finished_seconds;
  setup.transfers.routes[1][0].bytes_per_prompt = 30000;  // 30 ms of the link
  CHECK(Run(setup).outcomes[0].finished_seconds == Approx(without + 0.030));
}

TEST_CASE("no more sequences decode at once than have seats for their states") {
  SimulationSetup setup = Split(1, 0);
  for (int i = 0; i < 6; ++i) setup.requests.push_back(Request(0, 10, 40));
  const auto last = [&] {
    double end = 0;
    for (const auto& outcome : Run(setup).outcomes) end = std::max(end, outcome.finished_seconds);
    return end;
  };
  const double together = last();  // steps of 10 ms and one more for each of six
  setup.replicas[1].seats = setup.replicas[1].exchanges = 2;
  const double by_twos = last();  // three times as many steps, of 12 ms
  CHECK(together < 0.75);
  CHECK(by_twos > 39 * 3 * 0.012);
  CHECK(by_twos < 39 * 3 * 0.012 + 0.2);
}

TEST_CASE("a prompt is computed when its states have a place where it will be answered") {
  SimulationSetup setup = Split(1, 0);
  setup.transfers.routes[1][0].bytes_per_prompt = 100000;  // 100 ms
  setup.replicas[1].seats = 8;
  setup.requests = {Request(0, 400, 3), Request(0.001, 400, 3)};
  CHECK(Run(setup).outcomes[1].started_seconds < 0.1);
  setup.replicas[1].exchanges = 1;
  const SimulationResult one = Run(setup);
  CHECK(one.outcomes[1].started_seconds >= 0.050 + 0.1);
  CHECK(one.outcomes[1].started_seconds < one.outcomes[0].finished_seconds);
}

TEST_CASE("a lost replica's requests go on elsewhere with what they have") {
  SimulationSetup setup;
  setup.replicas = {Replica("a"), Replica("b")};
  setup.requests = {Request(0, 100, 50)};
  setup.changes = {Change(0.1, ScheduledChange::Kind::kLose, 0)};
  const SimulationResult result = Run(setup);
  const auto& o = result.outcomes[0];
  CHECK(o.fate == scheduler::Fate::kFinished);
  CHECK(o.attempts == 2);
  CHECK(o.prefill_replica == 1);
  CHECK(o.first_token_seconds == Approx(0.020));
  // 8 tokens were there after 20 + 7 * 11 = 97 ms; 108 tokens are computed again, 41 follow.
  CHECK(result.counters[1].prompt_tokens == 108);
  CHECK(o.finished_seconds == Approx(0.1 + 0.010 + 0.0108 + 41 * 0.011));
}

TEST_CASE("a lost replica shows no KV in use") {
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  setup.requests = {Request(0, 100, 50)};
  setup.changes = {Change(0.1, ScheduledChange::Kind::kLose, 0),
                   Change(0.3, ScheduledChange::Kind::kRecover, 0)};
  setup.sample_seconds = 0.05;
  int before = 0, lost = 0, after = 0;
  for (const scheduler::LoadSample& sample : Run(setup).samples) {
    if (sample.seconds > 0.01 && sample.seconds < 0.09) before += sample.kv_used > 0 ? 1 : 0;
    if (sample.seconds > 0.11 && sample.seconds < 0.29) lost += sample.kv_used == 0 ? 1 : 0;
    if (sample.seconds > 0.31 && sample.seconds < 0.5) after += sample.kv_used > 0 ? 1 : 0;
  }
  CHECK(before == 1);
  CHECK(lost == 3);
  CHECK(after > 0);
}

TEST_CASE("a rate says of which time it is") {
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  for (int i = 0; i < 11; ++i) setup.requests.push_back(Request(10 + i, 100, 2));
  CHECK(
      scheduler::ReportTable(ReportOf(Run(setup)))
          .find(
              "throughput in the second half of the time in which requests came (15.0 to 20.0 s): "
              "1.000 requests/s, ") != std::string::npos);
}

TEST_CASE("without a replica requests wait for one, not for ever") {
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  setup.requests = {Request(0, 100, 50), Request(1, 100, 1)};
  setup.changes = {Change(0.1, ScheduledChange::Kind::kLose, 0)};
  SimulationResult result = Run(setup);
  CHECK(result.outcomes[0].fate == scheduler::Fate::kFailed);
  CHECK(result.outcomes[0].finished_seconds == Approx(30.1));
  CHECK(result.outcomes[1].fate == scheduler::Fate::kFailed);  // the coordinator refuses it at once
  CHECK(result.outcomes[1].finished_seconds == Approx(1));
  setup.changes.push_back(Change(5, ScheduledChange::Kind::kRecover, 0));
  result = Run(setup);
  CHECK(result.outcomes[0].fate == scheduler::Fate::kFinished);
  CHECK(result.outcomes[0].attempts == 2);
}

TEST_CASE("re-planning may bring a replica in place of a lost one") {
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  setup.requests = {Request(0, 100, 50)};
  setup.changes = {Change(0.1, ScheduledChange::Kind::kLose, 0)};
  int asked = 0;
  setup.replan = [&](double now, std::span<const scheduler::ReplicaLoad> loads) {
    std::vector<ScheduledChange> changes;
    if (++asked > 1) return changes;
    CHECK(!loads[0].ready);
    changes.push_back(Change(now + 2, ScheduledChange::Kind::kAdd, 0));
    changes[0].added = Replica("spare");
    return changes;
  };
  const SimulationResult result = Run(setup);
  CHECK(asked == 2);
  CHECK(result.replicas[1].name == "spare");
  CHECK(result.outcomes[0].finished_seconds == Approx(2.1 + 0.010 + 0.0108 + 41 * 0.011));
}

TEST_CASE("a straggler's steps take longer from the next one on") {
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  setup.requests = {Request(0, 100, 3)};
  ScheduledChange slow = Change(0.025, ScheduledChange::Kind::kSlow, 0);
  slow.factor = 3;
  setup.changes = {slow};
  CHECK(Run(setup).outcomes[0].finished_seconds == Approx(0.020 + 0.011 + 0.033));
}

TEST_CASE("setups that cannot be are refused") {
  auto dispatcher = scheduler::MakeRouterDispatcher();
  SimulationSetup setup;
  CHECK(Simulate(setup, dispatcher.get()).status().message() == "there is no replica to simulate");
  setup.replicas = {Replica("a")};
  setup.replicas[0].limits.total_blocks = 0;
  CHECK(!Simulate(setup, dispatcher.get()).ok());
  setup.replicas = {Replica("a")};
  setup.requests = {Request(1, 1, 1), Request(0, 1, 1)};
  CHECK(!Simulate(setup, dispatcher.get()).ok());
  // A request that no pool holds fails, and only that one.
  setup.replicas[0].limits.total_blocks = 4;
  setup.requests = {Request(0, 1000, 1), Request(0, 10, 1)};
  const auto result = Simulate(setup, dispatcher.get());
  REQUIRE(result.ok());
  CHECK(result->outcomes[0].fate == scheduler::Fate::kFailed);
  CHECK(result->outcomes[1].fate == scheduler::Fate::kFinished);
}

TEST_CASE("the error of a mean comes of batches: what hangs together says less") {
  CHECK(std::isinf(scheduler::ErrorOfMean({})));
  CHECK(scheduler::ErrorOfMean(std::vector<double>(50, 3.0)) == Approx(0).margin(1e-12));
  // 0 and 1 in turn: all batches have the same mean. Ten batches of 0 to 9: sd 3.0277, by root 10.
  std::vector<double> in_turn, stairs;
  for (int i = 0; i < 100; ++i) {
    in_turn.push_back(i % 2);
    stairs.push_back(i / 10);
  }
  CHECK(scheduler::ErrorOfMean(in_turn) == Approx(0).margin(1e-12));
  CHECK(scheduler::ErrorOfMean(stairs) == Approx(0.957427).epsilon(1e-5));
}

TEST_CASE("the report: percentiles, attainment, use") {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const scheduler::Percentiles p = scheduler::PercentilesOf(&values);
  CHECK(p.mean == Approx(50.5));
  CHECK(p.p50 == 50);
  CHECK(p.p99 == 99);
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  setup.requests = {Request(0, 100, 2), Request(1, 900, 2)};  // 20 + 11 ms, 100 + 11 ms
  setup.sample_seconds = 0.1;
  const SimulationResult result = Run(setup);
  scheduler::RequestClass one;
  one.limits.ttft_seconds = 0.05;
  const scheduler::SimulationReport report = ReportOf(result, {{one}}, 36);
  CHECK(report.attainment == 0.5);
  CHECK(report.finished == 2);
  CHECK(report.ttft.p99 == Approx(0.1));
  CHECK(report.tpot.p50 == Approx(0.011));
  CHECK(report.seconds == Approx(1.111).epsilon(0.1));
  CHECK(report.devices[0].busy == Approx(0.031));  // in the second until the last came
  CHECK(report.usd_per_million_output_tokens == Approx(0.01 * report.seconds / 4 * 1e6));
  CHECK(scheduler::ReportTable(report).find(
            "objectives met by 50.00 % of the requests (asked: 99 %): first token within 0.05 s") !=
        std::string::npos);
  const std::string svg = scheduler::TimelineSvg(
      result, "simulated; ESTIMATED, not measured: " + std::string(200, 'x') + " <H20>");
  CHECK(svg.find("polyline") != std::string::npos);
  CHECK(svg.find(">simulated; ESTIMATED, not measured:</text>") != std::string::npos);
  CHECK(svg.find(" &lt;H20&gt;</text>") != std::string::npos);
}

TEST_CASE("times that nothing has are not said to be zero") {
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  setup.requests = {Request(0, 100, 1)};  // nothing comes after its first token
  const scheduler::SimulationReport one = ReportOf(Run(setup));
  CHECK(one.ttft.values == 1);
  CHECK(one.tpot.values == 0);
  const auto line = [](const scheduler::SimulationReport& report, const std::string& name) {
    const std::string table = scheduler::ReportTable(report);
    const size_t at = table.find("  " + name);
    return table.substr(at, table.find('\n', at) - at);
  };
  const std::string none = "         -         -         -         -         -  ";
  CHECK(line(one, "time per output token").ends_with(none + "ms"));
  CHECK(line(one, "time to first token").find("0.020") != std::string::npos);
  SimulationResult failed = Run(setup);
  failed.outcomes[0].fate = scheduler::Fate::kFailed;
  const scheduler::SimulationReport nobody = ReportOf(failed);
  for (const char* name : {"time to first token", "  of it, queueing", "end to end"})
    CHECK(line(nobody, name).ends_with(none + "s"));
  const std::string csv = scheduler::RatesCsv({{{0.5, nobody}}}, "simulated");
  CHECK(csv.starts_with("# simulated\nrequests_per_second,"));
  CHECK(csv.ends_with("\n0.5,0,0,0,,,,,,\n"));
  scheduler::SimulationReport drains = nobody;
  drains.requests_per_second = 0.2;  // until the last was answered, long after they came
  drains.steady_requests_per_second = 0.4;
  CHECK(scheduler::RatesCsv({{{0.5, drains}}}, "").ends_with("\n0.5,0.4,0,0,,,,,,\n"));
}

TEST_CASE("every class has its own limits") {
  SimulationSetup setup;
  setup.replicas = {Replica("a")};
  setup.requests = {Request(0, 100, 2), Request(1, 900, 2), Request(2, 100, 2)};
  setup.requests[0].request_class = setup.requests[1].request_class = 1;
  const SimulationResult result = Run(setup);
  std::vector<scheduler::RequestClass> classes(2);
  classes[0].name = "free";
  classes[1].name = "tight";
  classes[1].limits.ttft_seconds = 0.05;
  classes[1].required_attainment = 0.9;
  const scheduler::SimulationReport report = ReportOf(result, classes);
  CHECK(report.attainment == Approx(2.0 / 3));
  CHECK(report.classes[0].attainment == 1);
  CHECK(report.classes[1].attainment == 0.5);
  const std::string table = scheduler::ReportTable(report);
  CHECK(table.find("  free: 100.00 % of 1 (asked: 99 %): no limit\n") != std::string::npos);
  CHECK(table.find("  tight: 50.00 % of 2 (asked: 90 %): first token within 0.05 s\n") !=
        std::string::npos);
  CHECK(ReportOf(result).attainment == 1);
}

TEST_CASE("a plan's shares are kept") {
  auto shares = scheduler::MakeSharesDispatcher({{0, 0, 0.5}, {1, 1, 0.25}, {2, 2, 0.25}});
  std::vector<scheduler::ReplicaLoad> loads(3);
  for (auto& load : loads) load.ready = true;
  int counts[3] = {};
  for (int i = 0; i < 400; ++i) ++counts[shares->Choose(loads, {}, 0).prefill_replica];
  CHECK(counts[0] == 200);
  CHECK(counts[1] == 100);
  loads[0].ready = false;
  CHECK(shares->Choose(loads, {}, 0).prefill_replica > 0);
}

}  // namespace tessera::tests
