// What the members of a replica say of their time: only what they compute counts.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

// A stage that has handed its rows on may count a moment more; waits would count 1.3 or more.
constexpr double kOverlap = 1.1;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double BusySeconds(const PlannedReplica& replica) {
  double sum = 0;
  for (int member = 0; member < replica.members(); ++member) sum += replica.busy_seconds(member);
  return sum;
}

void RunPrompts(PlannedReplica* replica) {
  for (uint64_t id = 0; id < 4; ++id) {
    v1::Submit submit = MakeSubmit(id, Prompt(60, static_cast<int>(id), 90), 40);
    submit.set_ignore_eos(true);
    replica->Submit(std::move(submit));
  }
  replica->WaitAll();
}

}  // namespace

TEST_CASE("stages that take turns are busy for no longer together than all of it takes") {
  ReplicaOptions options;
  options.stages = {{1, 1}, {1, 1}, {1, 1}};
  options.micro_batches = 1;  // one step in flight: one stage computes at a time
  PlannedReplica replica(GoldenFolder("llama_bf16").string(), options);
  const double busy_before = BusySeconds(replica), began = Seconds();
  RunPrompts(&replica);
  const double took = Seconds() - began, busy = BusySeconds(replica) - busy_before;
  for (int member = 0; member < replica.members(); ++member)
    CHECK(replica.busy_seconds(member) > 0);
  CHECK(busy > 0);
  CHECK(busy < kOverlap * took);
}

TEST_CASE("a rank that waits for its stage's first rank is not busy") {
  ReplicaOptions options;
  options.stages = {{2, 1}, {1, 2}};
  options.micro_batches = 1;
  PlannedReplica replica(GoldenFolder("llama_bf16").string(), options);
  // Member 2 gets its rows from member 1, which waits for member 0.
  const auto both = [&] { return replica.busy_seconds(0) + replica.busy_seconds(2); };
  const double busy_before = both(), began = Seconds();
  RunPrompts(&replica);
  const double took = Seconds() - began, busy = both() - busy_before;
  CHECK(busy > 0);
  CHECK(busy < kOverlap * took);
  // Ranks that do not sample may still be at the last step.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double idle_from = BusySeconds(replica);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(BusySeconds(replica) == idle_from);
}

TEST_CASE("a worker alone counts too") {
  PlannedReplica replica(GoldenFolder("llama_bf16").string(), {});
  const double before = replica.busy_seconds(0);
  RunPrompts(&replica);
  CHECK(replica.busy_seconds(0) > before);
}

}  // namespace tessera::worker
