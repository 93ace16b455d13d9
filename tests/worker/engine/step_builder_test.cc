// StepBuilder alone: plans and the arrays of a step, without an engine or a model.
#include "worker/engine/step_builder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "proto/layers/kv_sizes.h"
#include "tests/worker/engine/submits.h"

namespace tessera::worker {
namespace {

using enum SequenceState;

// 4 tokens a block, 32 rows and 8 sequences a step.
struct Builder {
  explicit Builder(int64_t blocks = 64, const WindowLimits& window = {}, int64_t rows = 32)
      : options(OptionsOf(blocks, window, rows)) {}

  static EngineOptions OptionsOf(int64_t blocks, const WindowLimits& window, int64_t rows) {
    EngineOptions options = SmallOptions();
    options.limits.max_batched_tokens = rows;
    options.limits.total_blocks = blocks;
    options.window = window;
    return options;
  }

  Sequence* Queue(v1::Submit submit) {
    const auto submission = table.Open(std::move(submit), options, now, memory.pools());
    Sequence* sequence = submission->held.back().get();
    table.Move(sequence, kWaiting);
    return sequence;
  }
  EngineStep& Next() {
    REQUIRE(builder.Plan(0).MakesProgress());
    builder.Schedule(0, now, &step, &events);
    builder.Fill(&step);
    step.arrays.Seal();
    return step;
  }
  // As if the step's rows were computed and each draw gave token 1.
  void End() {
    for (const auto& s : step.scheduled) {
      s.sequence->computed_tokens += s.rows;
      memory.Index(s.sequence);
      memory.FreeBehindWindow(s.sequence);
    }
    for (const auto& draw : step.draws) draw.sequence->tokens.push_back(1);
  }

  double now = 3;
  const EngineOptions options;
  KvMemory memory{options.limits, options.window};
  SequenceTable table{1};
  v1::EngineLoad load;
  StepBuilder builder{options, &table, &memory, &load};
  EngineStep step{StepLimits{.max_tokens = 32,
                             .max_sequences = 8,
                             .max_logit_rows = 8,
                             .max_blocks_per_sequence = 50,
                             .windows_apart = true}};
  TokenEvents events;
};

std::vector<int32_t> Ints(std::span<const int32_t> values) {
  return {values.begin(), values.end()};
}

TEST_CASE("step builder: a prompt is admitted, cut into chunks, and draws behind its last one") {
  Builder b;
  Sequence* sequence = b.Queue(MakeSubmit(1, Prompt(40, 1), 5));
  CHECK(b.table.queued_submissions() == 1);
  EngineStep& step = b.Next();
  CHECK(sequence->state == kRunning);
  CHECK(sequence->started_seconds == 3);
  CHECK(b.table.queued_submissions() == 0);
  REQUIRE(step.scheduled.size() == 1);
  CHECK(step.scheduled[0].rows == 32);
  CHECK(step.draws.empty());
  CHECK(step.arrays.rows() == 32);
  CHECK(Ints(step.arrays.token_ids()) ==
        std::vector(sequence->tokens.begin(), sequence->tokens.begin() + 32));
  CHECK(sequence->blocks.blocks().size() == 8);
  b.End();

  b.Next();
  CHECK(step.scheduled[0].rows == 8);
  REQUIRE(step.draws.size() == 1);
  CHECK(step.draws[0].row == 7);
  CHECK(Ints(step.arrays.logit_rows()) == std::vector{7});
  CHECK(step.arrays.context_lengths()[0] == 40);
  REQUIRE(step.sample_requests.size() == 1);
  CHECK(step.sample_requests[0].position == 40);
  b.End();

  b.Next();
  CHECK(step.scheduled[0].rows == 1);
  CHECK(Ints(step.arrays.token_ids()) == std::vector{1});
  CHECK(Ints(step.arrays.positions()) == std::vector{40});
  CHECK(Ints(step.arrays.slots()) == std::vector{sequence->blocks.Slot(40)});
}

TEST_CASE("step builder: rows of decodes come before those of prompts") {
  Builder b;
  Sequence* decoding = b.Queue(MakeSubmit(1, Prompt(6, 1), 5));
  b.Next();
  b.End();
  Sequence* prompt = b.Queue(MakeSubmit(2, Prompt(9, 2), 5, /*priority=*/-1));
  EngineStep& step = b.Next();
  REQUIRE(step.scheduled.size() == 2);
  CHECK(b.table.running(0)[0].get() == prompt);  // the better rank
  CHECK(step.scheduled[0].sequence == decoding);
  CHECK(step.scheduled[1].sequence == prompt);
  CHECK(Ints(step.arrays.query_starts()) == std::vector{0, 1, 10});
}

TEST_CASE(
    "step builder: logit rows stand in the order of the sampler: drawn, with logprobs, scored") {
  Builder b;
  v1::Submit scored = MakeSubmit(1, Prompt(5, 1), 5);
  scored.set_prompt_logprobs(2);
  b.Queue(scored);
  v1::Submit listed = MakeSubmit(2, Prompt(3, 2), 5);
  listed.set_top_logprobs(1);
  listed.add_logprob_ids(7);
  b.Queue(listed);
  b.Queue(MakeSubmit(3, Prompt(3, 3), 5));
  EngineStep& step = b.Next();
  REQUIRE(step.scheduled.size() == 3);
  // Rows: 0-4 of the first, 5-7 of the second, 8-10 of the third. The scored prompt and the third
  // draw without logprobs, the second with; the scored rows predict tokens 1 to 4.
  CHECK(Ints(step.arrays.logit_rows()) == std::vector{4, 10, 7, 0, 1, 2, 3});
  CHECK(step.sample_requests[0].top_logprobs == -1);
  CHECK(step.sample_requests[2].top_logprobs == 1);
  REQUIRE(step.sample_requests[2].logprob_ids.size() == 1);
  CHECK(step.sample_requests[2].logprob_ids[0] == 7);
  REQUIRE(step.score_requests.size() == 4);
  CHECK(step.score_rows[0].position == 1);
  CHECK(step.score_rows[3].position == 4);
}

TEST_CASE("step builder: behind a step in flight, a row is fed by the draw that gives its token") {
  Builder b;
  Sequence* sequence = b.Queue(MakeSubmit(1, Prompt(6, 1), 5));
  b.Next();
  sequence->steps_in_flight = 1;
  sequence->rows_in_flight = 6;
  sequence->draws_in_flight = 1;
  sequence->last_draw = 0;
  EngineStep& step = b.Next();
  CHECK(step.arrays.fed_rows() == 1);
  CHECK(Ints(step.arrays.positions()) == std::vector{6});
  CHECK(step.sample_requests.at(0).position == 7);
  // With the last token that it may have in flight, it gets no row.
  sequence->draws_in_flight = 5;
  CHECK_FALSE(b.builder.Plan(0).MakesProgress());
  sequence->steps_in_flight = 0;
}

TEST_CASE("step builder: blocks found in the index are taken, and counted as hits") {
  Builder b;
  const std::vector<int32_t> prompt = Prompt(10, 1);
  Sequence* first = b.Queue(MakeSubmit(1, prompt, 5));
  b.Next();
  b.End();
  Sequence* second = b.Queue(MakeSubmit(2, prompt, 5));
  b.Next();
  CHECK(second->computed_tokens == 8);
  CHECK(second->blocks.blocks()[1] == first->blocks.blocks()[1]);
  CHECK(second->blocks.blocks()[2] != first->blocks.blocks()[2]);
  CHECK(second->submission->cached_tokens == 8);
  CHECK(b.load.prefix_queries_tokens() == 20);
  CHECK(b.load.prefix_hits_tokens() == 8);
}

TEST_CASE("step builder: a pool that runs out preempts the last-ranked, which then waits") {
  Builder b(/*blocks=*/6);
  Sequence* first = b.Queue(MakeSubmit(1, Prompt(8, 1), 8));
  Sequence* second = b.Queue(MakeSubmit(2, Prompt(7, 2), 8));
  for (int i = 0; i < 100; ++i) b.builder.NoteAnswer(1);  // so it expects these to be short
  b.Next();
  b.End();
  REQUIRE(second->state == kRunning);
  for (int64_t steps = 0; second->state == kRunning; ++steps) {
    REQUIRE(steps < 20);
    b.Next();
    b.End();
  }
  CHECK(first->state == kRunning);
  CHECK(b.load.preemptions() == 1);
  CHECK(second->blocks.blocks().empty());
  CHECK(second->computed_tokens == 0);
  CHECK(b.memory.free_blocks() == 6 - static_cast<int64_t>(first->blocks.blocks().size()));
  CHECK(b.events.empty());
}

TEST_CASE("step builder: one that has outgrown the pool ends, with the reason") {
  Builder b(/*blocks=*/2);
  Sequence* sequence = b.Queue(MakeSubmit(1, Prompt(8, 1), 1));
  sequence->tokens.push_back(1);
  REQUIRE(b.builder.Plan(0).MakesProgress());
  b.builder.Schedule(0, b.now, &b.step, &b.events);
  CHECK(b.step.scheduled.empty());
  REQUIRE(b.events.size() == 1);
  CHECK(b.events[0].error() == "the sequence has outgrown the KV pool");
  CHECK(b.table.Any() == nullptr);
}

// A window of 9 tokens: each sees 8 before it.
KvLimits WindowedLimits(int64_t sequences) { return {4, 9, 200, sequences, 32}; }

WindowLimits WindowOf(int64_t sequences) {
  return {9, WindowBlocksFor(sequences, WindowedLimits(sequences))};
}

TEST_CASE("step builder: window blocks are freed behind the committed position") {
  Builder b(64, WindowOf(2));
  Sequence* sequence = b.Queue(MakeSubmit(1, Prompt(40, 1), 30));
  EngineStep& step = b.Next();
  CHECK(step.arrays.windows_apart());
  CHECK(sequence->window_blocks.blocks().size() == 8);
  CHECK(Ints(step.arrays.window_slots()).front() == sequence->window_blocks.Slot(0));
  b.End();
  CHECK(sequence->window_blocks.freed() == 6);  // token 32 sees 24 to 32
  CHECK(b.memory.free_window_blocks() == b.options.window.total_blocks - 2);
  for (int64_t position = 40; position < 60; ++position) {
    b.Next();
    b.End();
    const int64_t first_seen = sequence->computed_tokens + 1 - 9;
    REQUIRE(sequence->window_blocks.freed() == first_seen / 4);
    // A step's own table is as wide as the others', and names no block that is gone.
    REQUIRE(step.arrays.padded_window_tables().size() == step.arrays.padded_tables().size());
    for (const int32_t block : step.arrays.padded_window_tables()) REQUIRE(block >= 0);
  }
  TokenEvents events;
  b.table.End(sequence, absl::CancelledError(""), &events);
  CHECK(b.memory.free_window_blocks() == b.options.window.total_blocks);
  CHECK(b.memory.free_blocks() == 64);
}

// Runs what is queued to its end.
int64_t MostRunning(Builder* b, std::vector<Sequence*> sequences, int32_t tokens) {
  int64_t most = 0;
  for (int steps = 0; b->table.HasWork(); ++steps) {
    REQUIRE(steps < 2000);
    b->Next();
    most = std::max(most, b->table.running_count());
    b->End();
    REQUIRE(b->events.empty());
    for (Sequence*& sequence : sequences) {
      if (sequence == nullptr || sequence->output_tokens() < tokens) continue;
      b->table.Move(std::exchange(sequence, nullptr), kEnded);
    }
  }
  CHECK(b->memory.free_window_blocks() == b->options.window.total_blocks);
  return most;
}

TEST_CASE("step builder: no more sequences are admitted than have room for their windows") {
  for (const int64_t prompt : {30, 5}) {
    Builder b(64, WindowOf(2));
    std::vector<Sequence*> sequences;
    for (uint64_t id = 1; id <= 8; ++id) {
      sequences.push_back(b.Queue(MakeSubmit(id, Prompt(prompt, id), 3)));
    }
    // Two windows of 4 blocks: two long sequences, or four that never fill half of one.
    CHECK(MostRunning(&b, sequences, 3) == (prompt == 30 ? 2 : 4));
    CHECK(b.load.preemptions() == 0);
  }
}

TEST_CASE("step builder: where answers outgrow what was expected, the last-ranked gives way") {
  Builder b(64, {9, 8}, /*rows=*/8);
  for (int i = 0; i < 100; ++i) b.builder.NoteAnswer(1);
  std::vector<Sequence*> sequences;
  for (uint64_t id = 1; id <= 12; ++id) {
    sequences.push_back(b.Queue(MakeSubmit(id, Prompt(3, id), 30)));
  }
  CHECK(MostRunning(&b, sequences, 30) > 2);
  CHECK(b.load.preemptions() > 0);
}

TEST_CASE("step builder: behind a step in flight, rows wait for the window blocks it frees") {
  Builder b(64, {9, 3});
  Sequence* sequence = b.Queue(MakeSubmit(1, Prompt(12, 1), 30));
  b.Next();
  sequence->steps_in_flight = 1;
  sequence->rows_in_flight = 12;
  sequence->draws_in_flight = 1;
  REQUIRE(b.builder.Plan(0).MakesProgress());
  EngineStep ahead(StepLimits{
      .max_tokens = 32, .max_sequences = 8, .max_logit_rows = 8, .max_blocks_per_sequence = 50});
  b.builder.Schedule(0, b.now, &ahead, &b.events);
  CHECK(ahead.scheduled.empty());
  CHECK(sequence->state == kRunning);
  sequence->steps_in_flight = sequence->rows_in_flight = sequence->draws_in_flight = 0;
  b.End();
  b.Next();
  CHECK(b.step.scheduled.size() == 1);
  CHECK(sequence->window_blocks.freed() == 1);
}

TEST_CASE("step builder: behind a window, a prompt found in the index recomputes no more than it") {
  Builder b(64, WindowOf(2));
  std::vector<int32_t> prompt = Prompt(60, 1);
  Sequence* first = b.Queue(MakeSubmit(1, prompt, 5));
  for (int i = 0; i < 2; ++i) {
    b.Next();
    b.End();
  }
  // Another turn of it: all but the last, partial block.
  b.table.Move(first, kEnded);
  prompt.push_back(7);
  Sequence* second = b.Queue(MakeSubmit(2, prompt, 5));
  b.Next();
  CHECK(second->computed_tokens == 60);
  CHECK(second->window_blocks.freed() == 13);
  CHECK(second->window_blocks.blocks().size() == second->blocks.blocks().size());
  CHECK(second->window_blocks.blocks()[13] >= 0);
}

// The pool has the windows of one sequence, and one more.
TEST_CASE("step builder: behind a window, the first prompt that parts from another at a message") {
  Builder b(/*blocks=*/128, WindowOf(1 + kKeptWindows));
  const std::vector<int32_t> common = Prompt(60, 1);
  for (uint64_t id = 1; id <= 4; ++id) {
    std::vector<int32_t> prompt = common;
    const std::vector<int32_t> message = Prompt(70, static_cast<uint32_t>(10 + id));
    prompt.insert(prompt.end(), message.begin(), message.end());
    v1::Submit submit = MakeSubmit(id, prompt, 20);
    // A token too many, as where the template's last character and the message's first are one.
    if (id == 1) submit.set_message_begin_tokens(61);
    Sequence* sequence = b.Queue(std::move(submit));
    b.Next();
    CHECK(sequence->computed_tokens == (id == 1 ? 0 : 60));
    b.End();
    while (sequence->computed_tokens < 140) {
      b.Next();
      b.End();
    }
    b.table.Move(sequence, kEnded);
  }
}

TEST_CASE("step builder: behind a window, where prompts parted before is found by the next one") {
  Builder b(/*blocks=*/128, WindowOf(1 + kKeptWindows));
  const std::vector<int32_t> common = Prompt(60, 1);
  for (uint64_t id = 1; id <= 3; ++id) {
    std::vector<int32_t> prompt = common;
    const std::vector<int32_t> message = Prompt(70, static_cast<uint32_t>(10 + id));
    prompt.insert(prompt.end(), message.begin(), message.end());
    Sequence* sequence = b.Queue(MakeSubmit(id, prompt, 20));
    b.Next();
    if (id < 3) CHECK(sequence->computed_tokens < 60);
    if (id == 3) CHECK(sequence->computed_tokens == 60);
    b.End();
    while (sequence->computed_tokens < 140) {
      b.Next();
      b.End();
    }
    b.table.Move(sequence, kEnded);
  }
}

TEST_CASE("step builder: an answer that begins where another did finds the window at that place") {
  Builder b(64, WindowOf(4));
  const std::vector<int32_t> prompt = Prompt(60, 1);
  const auto run = [&](uint64_t id, const std::vector<int32_t>& tokens) {
    Sequence* sequence = b.Queue(MakeSubmit(id, tokens, 40));
    for (int i = 0; i < 32; ++i) {
      b.Next();
      b.End();
    }
    return sequence;
  };
  Sequence* first = run(1, prompt);
  REQUIRE(first->computed_tokens > 60 + 9 + 8);  // its window has left the prompt
  b.table.Move(first, kEnded);
  b.table.Move(run(2, Prompt(50, 2)), kEnded);  // evicts what is evicted first
  std::vector<int32_t> turn(prompt.begin(), prompt.begin() + 58);
  turn.insert(turn.end(), {3, 1, 4, 1, 5, 9});
  Sequence* second = b.Queue(MakeSubmit(3, turn, 5));
  b.Next();
  CHECK(second->computed_tokens == 56);
}

TEST_CASE("step builder: preemption gives back blocks of both pools") {
  Builder b(/*blocks=*/6, WindowOf(2));
  b.Queue(MakeSubmit(1, Prompt(8, 1), 8));
  Sequence* second = b.Queue(MakeSubmit(2, Prompt(7, 2), 8));
  for (int i = 0; i < 100; ++i) b.builder.NoteAnswer(1);
  for (int64_t steps = 0; b.load.preemptions() == 0; ++steps) {
    REQUIRE(steps < 20);
    b.Next();
    b.End();
  }
  CHECK(second->blocks.blocks().empty());
  CHECK(second->window_blocks.blocks().empty());
  CHECK(second->window_blocks.freed() == 0);
}

}  // namespace
}  // namespace tessera::worker
