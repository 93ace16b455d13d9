// SequenceTable alone: which moves are legal, and what each does to blocks, queue and submissions.
#include "worker/engine/sequence_table.h"

#include <catch2/catch.hpp>
#include <set>
#include <utility>
#include <vector>

#include "tests/worker/engine/submits.h"

namespace tessera::worker {
namespace {

using enum SequenceState;

struct Table {
  explicit Table(int lanes = 1) : table(lanes) {}

  std::shared_ptr<Submission> Open(uint64_t id, int32_t choices = 1, int32_t priority = 0) {
    v1::Submit submit = MakeSubmit(id, Prompt(10, id), 5);
    submit.set_choice_count(choices);
    submit.set_priority(priority);
    return table.Open(std::move(submit), SmallOptions(), now, {&pool});
  }
  // Of a new submission: its only sequence, brought to `state` the shortest way.
  Sequence* In(SequenceState state, uint64_t id = 1) {
    Sequence* sequence = Open(id)->held.back().get();
    if (state == kArriving || state == kJoining) table.Move(sequence, kArriving);
    if (state == kJoining) table.Move(sequence, kJoining);
    if (state == kWaiting || state == kRunning || state == kSent) table.Move(sequence, kWaiting);
    if (state == kRunning || state == kSent) table.Move(sequence, kRunning, 0);
    if (state == kSent) table.Move(sequence, kSent);
    return sequence;
  }

  double now = 0;
  kvcache::BlockPool pool{64, 4};
  SequenceTable table;
};

TEST_CASE("sequence table: exactly the named moves are legal") {
  const std::set<std::pair<SequenceState, SequenceState>> legal = {
      {kHeld, kWaiting},    {kHeld, kArriving},    {kHeld, kEnded},       {kWaiting, kRunning},
      {kWaiting, kEnded},   {kArriving, kJoining}, {kArriving, kWaiting}, {kArriving, kEnded},
      {kJoining, kRunning}, {kJoining, kEnded},    {kRunning, kWaiting},  {kRunning, kSent},
      {kRunning, kEnded},   {kSent, kEnded}};
  const SequenceState all[] = {kHeld, kWaiting, kArriving, kJoining, kRunning, kSent, kEnded};
  for (const SequenceState from : all) {
    for (const SequenceState to : all) {
      CAPTURE(static_cast<int>(from), static_cast<int>(to));
      CHECK(IsLegalMove(from, to) == legal.contains({from, to}));
    }
  }
}

TEST_CASE(
    "sequence table: a sequence may end in every state; its blocks return and its listener hears "
    "why") {
  for (const SequenceState state : {kHeld, kWaiting, kArriving, kJoining, kRunning, kSent}) {
    CAPTURE(static_cast<int>(state));
    Table t;
    Sequence* sequence = t.In(state);
    REQUIRE(sequence->state == state);
    REQUIRE(sequence->blocks.Grow(10));
    t.table.set_changed(false);
    TokenEvents events;
    t.table.End(sequence, absl::InternalError("broken"), &events);
    CHECK(t.pool.free_blocks() == 64);
    CHECK(t.table.Any() == nullptr);
    CHECK(t.table.queued_submissions() == 0);
    CHECK_FALSE(t.table.HasWork());
    CHECK(t.table.changed());
    REQUIRE(events.size() == 1);
    CHECK(events[0].finish() == v1::FINISH_REASON_ERROR);
    CHECK(events[0].error() == "broken");
  }
}

TEST_CASE("sequence table: preempted, a sequence gives up its KV and waits in its old rank") {
  Table t;
  Sequence* first = t.In(kRunning, 1);
  Sequence* second = t.In(kWaiting, 2);
  REQUIRE(first->blocks.Grow(10));
  first->computed_tokens = 8;
  first->indexed_blocks = 2;
  first->node = 7;
  t.table.Move(first, kWaiting);
  CHECK(t.pool.free_blocks() == 64);
  CHECK(first->computed_tokens == 0);
  CHECK(first->indexed_blocks == 0);
  CHECK(first->node == 0);
  CHECK(t.table.running(0).empty());
  std::vector<Sequence*> queue;
  for (const auto& [rank, sequence] : t.table.waiting()) queue.push_back(sequence.get());
  CHECK(queue == std::vector<Sequence*>{first, second});
}

TEST_CASE("sequence table: one that ends in flight keeps its blocks until its steps are back") {
  Table t(2);
  Sequence* sequence = t.In(kWaiting);
  t.table.Move(sequence, kRunning, 1);
  REQUIRE(sequence->blocks.Grow(10));
  sequence->steps_in_flight = 2;
  TokenEvents events;
  t.table.End(sequence, absl::CancelledError(""), &events);
  CHECK(sequence->state == kEnded);
  CHECK(events.at(0).finish() == v1::FINISH_REASON_CANCELLED);
  CHECK(t.table.Any() == nullptr);  // nobody waits for it any more
  CHECK(t.pool.free_blocks() == 61);
  t.table.DestroyEnded(0);
  sequence->steps_in_flight = 1;
  t.table.DestroyEnded(1);
  CHECK(t.pool.free_blocks() == 61);
  sequence->steps_in_flight = 0;
  t.table.DestroyEnded(1);
  CHECK(t.pool.free_blocks() == 64);
}

TEST_CASE("sequence table: lanes are ranked, and merged into the first by rank") {
  Table t(2);
  std::vector<Sequence*> sequences;
  for (const uint64_t id : {1, 2, 3, 4}) sequences.push_back(t.In(kWaiting, id));
  t.table.Move(sequences[3], kRunning, 0);
  t.table.Move(sequences[1], kRunning, 0);
  t.table.Move(sequences[2], kRunning, 1);
  t.table.Move(sequences[0], kRunning, 1);
  CHECK(t.table.running_count() == 4);
  REQUIRE(t.table.running(0).size() == 2);
  CHECK(t.table.running(0)[0].get() == sequences[1]);
  CHECK(t.table.Runs(0, sequences[1]));
  CHECK_FALSE(t.table.Runs(1, sequences[1]));
  t.table.MergeLanes();
  REQUIRE(t.table.running(0).size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(t.table.running(0)[i].get() == sequences[i]);
    CHECK(sequences[i]->lane == 0);
  }
  CHECK(t.table.running(1).empty());
}

TEST_CASE("sequence table: choices are held until the prompt is computed, or its choice ends") {
  Table t;
  const auto submission = t.Open(1, 3);
  CHECK(t.table.open_choices() == 3);
  Sequence* first = submission->held.back().get();
  t.table.Move(first, kWaiting);
  CHECK(t.table.waiting().size() == 1);
  CHECK(submission->held.size() == 2);
  TokenEvents events;
  t.table.End(first, absl::CancelledError(""), &events);
  REQUIRE(t.table.waiting().size() == 1);  // the next one computes the prompt
  Sequence* second = t.table.waiting().begin()->second.get();
  CHECK(second->rank.choice == 1);
  CHECK(t.table.queued_submissions() == 1);
  t.table.Start(submission.get());
  CHECK(t.table.queued_submissions() == 0);
  t.table.Move(second, kRunning, 0);
  t.table.ReleaseHeld(submission.get());
  CHECK(submission->held.empty());
  REQUIRE(t.table.waiting().size() == 1);
  const std::vector<Sequence*> of = t.table.Of(*submission);
  CHECK(of == std::vector<Sequence*>{t.table.waiting().begin()->second.get(), second});
  CHECK(t.table.Find(*submission, second->rank) == second);
  for (Sequence* sequence : of) t.table.Move(sequence, kEnded);
  CHECK(t.table.Find(uint64_t{1}) == nullptr);
  CHECK(t.table.queued_submissions() == 0);
}

TEST_CASE("sequence table: the queue is by priority, then arrival; overdue ones are named") {
  Table t;
  const auto late = t.Open(1, 1, 5);
  const auto early = t.Open(2, 1, 0);
  for (const auto& submission : {late, early}) {
    t.table.Move(submission->held.back().get(), kWaiting);
  }
  CHECK(t.table.waiting().begin()->second->submission == early);
  CHECK(t.table.Overdue(1e9).empty());  // neither has a deadline

  v1::Submit timed = MakeSubmit(3, Prompt(10, 3), 5);
  timed.set_queue_timeout_seconds(2);
  const auto submission = t.table.Open(timed, SmallOptions(), 1, {&t.pool});
  CHECK(t.table.Overdue(2.9).empty());
  CHECK(t.table.Overdue(3.1) == std::vector{submission});
  CHECK(t.table.Find(KvKey{3, 1}) == submission);
  CHECK(t.table.Find(KvKey{3, 2}) == nullptr);
}

}  // namespace
}  // namespace tessera::worker
