// Requests, tokens and blocks that do not add up are told, whoever is to blame. A replica is told
// things here that the simulator never tells it, and steps never end.
#include <catch2/catch.hpp>
#include <limits>

#include "tests/scheduler/simulator/tables.h"

namespace tessera::tests {
namespace {

using scheduler::SimulatedReplica;
using scheduler::SimulatedSequence;

class Nobody : public scheduler::ReplicaListener {
 public:
  void OnStarted(int, const SimulatedSequence&, double, double) override {}
  void OnFirstToken(int, const SimulatedSequence&, double) override {}
  void OnFinished(int, const SimulatedSequence&, double) override {}
  void OnPreempted(int, const SimulatedSequence&, double) override {}
  void OnNeverFits(int, const SimulatedSequence&, double) override {}
};

// Blocks of 16 tokens.
struct Alone {
  Nobody nobody;
  SimulatedReplica replica;

  explicit Alone(int64_t blocks = 100) : replica(0, Setup(blocks), {}, &nobody) {}

  static scheduler::ReplicaSetup Setup(int64_t blocks) {
    PlainFigures figures;
    figures.base = 0.010;
    scheduler::ReplicaSetup setup = PlainReplica("r", figures);
    setup.limits.total_blocks = blocks;
    return setup;
  }

  std::string Broken() const { return std::string(replica.CheckInvariants().message()); }
};

SimulatedSequence Sequence(int64_t known, int64_t computed, int64_t left) {
  SimulatedSequence sequence;
  sequence.known_tokens = sequence.prompt_tokens = known;
  sequence.computed_tokens = computed;
  sequence.left_tokens = left;
  return sequence;
}

TEST_CASE("blocks add up while they are reserved, taken over and given back") {
  Alone alone;
  REQUIRE(alone.replica.Reserve(10, 0));
  CHECK(alone.Broken() == "");
  alone.replica.Join(Sequence(161, 160, 3), 10, 0);
  CHECK(alone.Broken() == "");
  alone.replica.Start(0);
  CHECK(alone.Broken() == "");
  while (alone.replica.next_end_seconds() < std::numeric_limits<double>::infinity()) {
    const double now = alone.replica.next_end_seconds();
    alone.replica.EndSteps();
    alone.replica.Start(now);
    CHECK(alone.Broken() == "");
  }
  CHECK(alone.replica.counters().output_tokens == 3);
  CHECK(alone.replica.free_blocks() == 100);
}

TEST_CASE("blocks that are given back twice, or taken over unreserved, are told") {
  Alone twice;
  REQUIRE(twice.replica.Reserve(10, 0));
  twice.replica.Release(10, 0);
  CHECK(twice.Broken() == "");
  twice.replica.Release(10, 0);
  CHECK(twice.Broken() == "r: 0 blocks held, -10 kept, 110 free of 100");
  Alone unreserved;
  unreserved.replica.Join(Sequence(161, 160, 3), 10, 0);
  CHECK(unreserved.Broken() == "r: 10 blocks held, -10 kept, 100 free of 100");
  Alone small(5);
  small.replica.Join(Sequence(161, 160, 3), 0, 0);
  CHECK(small.Broken() == "r: 10 blocks held, 0 kept, -5 free of 5");
}

TEST_CASE("a sequence with more tokens than it can have is told") {
  const char* const told = "r: a sequence has computed more than it knows, or emitted too much";
  Alone computed;
  REQUIRE(computed.replica.Reserve(10, 0));
  computed.replica.Join(Sequence(160, 161, 3), 10, 0);
  CHECK(computed.Broken() == told);
  Alone emitted;
  REQUIRE(emitted.replica.Reserve(10, 0));
  emitted.replica.Join(Sequence(161, 160, -1), 10, 0);
  CHECK(emitted.Broken() == told);
}

TEST_CASE("a request that nobody ends is not forgotten") {
  PlainFigures figures;
  figures.base = std::numeric_limits<double>::infinity();
  scheduler::SimulationSetup setup;
  setup.replicas = {PlainReplica("r", figures)};
  setup.requests.resize(1);
  setup.requests[0].prompt_tokens = 100;
  setup.requests[0].output_tokens = 3;
  auto dispatcher = scheduler::MakeRouterDispatcher();
  const auto result = Simulate(setup, dispatcher.get());
  CHECK(result.status().code() == absl::StatusCode::kInternal);
  CHECK_THAT(std::string(result.status().message()),
             Catch::StartsWith("request 0 is unaccounted for: 0 of 3 tokens"));
}

}  // namespace
}  // namespace tessera::tests
