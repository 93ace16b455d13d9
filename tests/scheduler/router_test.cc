#include "scheduler/router.h"

#include <catch2/catch.hpp>
#include <vector>

namespace tessera::scheduler {
namespace {

ReplicaLoad Replica(double speed) {
  ReplicaLoad replica;
  replica.ready = true;
  replica.prefill_tokens_per_second = 1000 * speed;
  replica.decode_tokens_per_second = 50 * speed;
  replica.max_sequences = 16;
  return replica;
}

}  // namespace

TEST_CASE("nobody ready, no route") {
  std::vector<ReplicaLoad> replicas(2);
  CHECK(ChooseReplica(replicas, {100, 10}).prefill_replica == -1);
  CHECK(ChooseReplica({}, {100, 10}).decode_replica == -1);
  CHECK(Explain(Route(), replicas) == "no route: 0 of 2 replicas are ready");
}

TEST_CASE("equal replicas share by what is outstanding, ties go to the first") {
  std::vector<ReplicaLoad> replicas = {Replica(1), Replica(1)};
  CHECK(ChooseReplica(replicas, {100, 10}).prefill_replica == 0);
  replicas[0].running_sequences = 1;
  replicas[0].outstanding_output_tokens = 10;
  CHECK(ChooseReplica(replicas, {100, 10}).prefill_replica == 1);
}

TEST_CASE("a fast replica takes more than its count of requests would say") {
  std::vector<ReplicaLoad> replicas = {Replica(1), Replica(4)};
  int taken[2] = {0, 0};
  for (int i = 0; i < 50; ++i) {
    const Route route = ChooseReplica(replicas, {400, 100});
    REQUIRE(route.prefill_replica == route.decode_replica);
    ++taken[route.prefill_replica];
    replicas[route.prefill_replica].queued_prompt_tokens += 400;
    replicas[route.prefill_replica].running_sequences += 1;
    replicas[route.prefill_replica].outstanding_output_tokens += 100;
  }
  CHECK(taken[1] > 3 * taken[0]);
  CHECK(taken[0] > 0);
}

TEST_CASE("a replica that was never measured gets its share beside one that was") {
  std::vector<ReplicaLoad> replicas(2);
  for (ReplicaLoad& r : replicas) {
    r.ready = true;
    r.max_sequences = 64;
  }
  replicas[0].prefill_tokens_per_second = 90000;
  replicas[0].decode_tokens_per_second = 3000;
  int taken[2] = {0, 0};
  for (int i = 0; i < 40; ++i) {
    const Route route = ChooseReplica(replicas, {10, 1500});
    ReplicaLoad& r = replicas[route.decode_replica];
    ++r.running_sequences;
    r.queued_prompt_tokens += 10;
    r.outstanding_output_tokens += 1500;
    ++taken[route.decode_replica];
  }
  CHECK(taken[0] == 20);
  CHECK(taken[1] == 20);
}

TEST_CASE("a pair takes what a replica that does both would do later") {
  std::vector<ReplicaLoad> replicas = {Replica(1), Replica(1), Replica(1), Replica(4)};
  replicas[1].can_decode = false;
  replicas[2].can_prefill = false;
  replicas[3].can_prefill = false;
  Route route = ChooseReplica(replicas, {1000, 100});
  CHECK(route.prefill_replica == 1);
  CHECK(route.decode_replica == 3);  // the fastest of those that decode
  replicas[3].ready = false;
  route = ChooseReplica(replicas, {1000, 100});
  CHECK(route.prefill_replica == 0);  // nothing gained by a hand-over
  CHECK(route.decode_replica == 0);
  replicas[1].ready = false;
  replicas[0].queued_prompt_tokens = 1'000'000;
  CHECK(ChooseReplica(replicas, {1000, 100}).decode_replica == 0);  // nobody prefills for 2
}

TEST_CASE("a replica without a limit of sequences is not charged as one that takes one at a time") {
  std::vector<ReplicaLoad> replicas = {Replica(1), Replica(1)};
  replicas[0].max_sequences = 0;
  replicas[0].running_sequences = 3;
  replicas[0].outstanding_output_tokens = 300;
  replicas[1].running_sequences = 8;
  replicas[1].outstanding_output_tokens = 800;
  CHECK(ChooseReplica(replicas, {100, 100}).decode_replica == 0);
}

TEST_CASE("a cached prefix outweighs a small queue") {
  std::vector<ReplicaLoad> replicas = {Replica(1), Replica(1)};
  replicas[1].queued_prompt_tokens = 200;
  replicas[1].cached_prefix_tokens = 900;
  CHECK(ChooseReplica(replicas, {1000, 10}).prefill_replica == 1);
}

TEST_CASE("a snapshot follows what is submitted, computed and emitted") {
  ReplicaLoad load;
  NoteSubmitted(1000, 2, 300, &load);
  CHECK(load.queued_prompt_tokens == 1000);
  CHECK(load.running_sequences == 2);
  CHECK(load.outstanding_output_tokens == 300);
  NotePromptComputed(1000, 800, 2, &load);
  CHECK(load.queued_prompt_tokens == 0);
  CHECK(load.prefill_tokens_per_second == Approx(400));
  NoteTokenGap(1, 0.1, &load);  // the first is taken as it is
  CHECK(load.decode_tokens_per_second == Approx(10));
  ReplicaLoad one_by_one = load;
  NoteTokenGap(7, 0.05, &load);
  for (int i = 0; i < 7; ++i) {
    one_by_one.decode_tokens_per_second = 0.8 * one_by_one.decode_tokens_per_second + 0.2 * 20;
  }
  CHECK(load.decode_tokens_per_second == Approx(one_by_one.decode_tokens_per_second));
  NotePromptComputed(500, 0, 1, &load);  // all of it was cached: nothing was measured
  CHECK(load.prefill_tokens_per_second == Approx(400));
}

TEST_CASE("prefill replicas hand over to decode replicas only") {
  std::vector<ReplicaLoad> replicas = {Replica(1), Replica(1), Replica(1)};
  replicas[0].can_decode = false;
  replicas[1].can_prefill = false;
  replicas[2].ready = false;
  const Route route = ChooseReplica(replicas, {1000, 10});
  CHECK(route.prefill_replica == 0);
  CHECK(route.decode_replica == 1);
}

}  // namespace tessera::scheduler
