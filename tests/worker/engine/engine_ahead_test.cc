// Steps ahead: the next one begins before the tokens of the one in flight are known, where it may,
// and what it computed for nobody leaves no trace.
#include <catch2/catch.hpp>
#include <vector>

#include "tests/worker/engine/scripted_engine.h"

namespace tessera::worker {
namespace {

using Shape = ScriptedExecutor::Shape;

// One step that has begun comes back, and the next ones begin.
void GoOn(ScriptedEngine& engine) {
  engine.workers->RunOldest();
  engine.End();
  engine.Begin();
}

TEST_CASE("steps ahead: the next step is there before the tokens of this one") {
  ScriptedEngine engine(LaneOptions(), 1, true);
  engine.Submit(Wants(1, 16, 4));
  engine.Begin();
  CHECK(engine.workers->shapes == std::vector<Shape>{{0, 16, 1}, {1, 0, 1}});
  CHECK_FALSE(engine.core->StepReady());
  CHECK(engine.heard[{1, 0}].tokens.empty());
  engine.Begin();  // no third one
  CHECK(engine.workers->shapes.size() == 2);
  GoOn(engine);
  CHECK(engine.heard[{1, 0}].tokens.size() == 1);
  CHECK(engine.workers->shapes.size() == 3);
  engine.RunAll();
  CHECK(engine.heard[{1, 0}].tokens == engine.Expected({1, 0}, 4));
  CHECK(engine.workers->shapes.size() == 4);  // none for a token that nobody wants
  CHECK(engine.workers->begun_ahead == 3);
  CHECK(engine.core->load().generation_tokens() == 4);
}

TEST_CASE("steps ahead: a long prompt's pieces and the rows beside them") {
  ScriptedEngine engine(LaneOptions(), 1, true);  // 16 rows a step
  engine.Submit(Wants(1, 10, 6));
  engine.Submit(Wants(2, 30, 3));
  engine.Begin();
  CHECK(engine.workers->shapes == std::vector<Shape>{{0, 16, 1}, {1, 15, 1}});
  engine.RunAll();
  CHECK(engine.workers->begun_ahead == static_cast<int64_t>(engine.workers->shapes.size()) - 1);
  CHECK(engine.heard[{1, 0}].tokens == engine.Expected({1, 0}, 6));
  CHECK(engine.heard[{2, 0}].tokens == engine.Expected({2, 0}, 3));
}

TEST_CASE("steps ahead: the row of a sequence that has ended is wasted, and in no index") {
  ScriptedEngine engine(LaneOptions(), 1, true);  // blocks of 4 tokens
  const std::vector<int32_t> prompt = Prompt(14, 1);
  const std::vector<int32_t> answer = engine.workers->Expected(prompt, 0, 3);
  REQUIRE(answer[0] != answer[1]);
  v1::Submit submit = Wants(1, 14, 8);
  submit.add_stop_token_ids(answer[1]);
  engine.Submit(submit);
  engine.Begin();
  GoOn(engine);
  REQUIRE(engine.workers->shapes.size() == 3);  // the third computes the stop token's row
  GoOn(engine);
  CHECK(engine.heard[{1, 0}].finish == v1::FINISH_REASON_STOP);
  CHECK(engine.heard[{1, 0}].tokens == std::vector<int32_t>(answer.begin(), answer.begin() + 2));
  CHECK(engine.core->sequences() == 0);
  CHECK(engine.core->load().kv_blocks_used() == 4);  // the step in flight writes there
  engine.RunAll();
  CHECK(engine.core->load().generation_tokens() == 2);
  CHECK(engine.workers->shapes.size() == 3);

  // 16 tokens stand in full blocks, of which the last was computed for nobody.
  std::vector<int32_t> longer = prompt;
  longer.insert(longer.end(), answer.begin(), answer.end());
  engine.Submit(MakeSubmit(2, longer, 1));
  engine.RunAll();
  CHECK(engine.core->load().prefix_hits_tokens() == 12);
  CHECK(engine.heard[{2, 0}].tokens == engine.Expected({2, 0}, 1));
}

TEST_CASE("steps ahead: who is cancelled keeps its blocks until both steps are back") {
  ScriptedEngine engine(LaneOptions(), 1, true);
  engine.Submit(Wants(1, 15, 8));
  engine.Begin();
  REQUIRE(engine.workers->shapes.size() == 2);
  engine.Cancel(1, -1);
  CHECK(engine.heard[{1, 0}].finish == v1::FINISH_REASON_CANCELLED);
  CHECK(engine.core->load().kv_blocks_used() == 4);
  GoOn(engine);
  CHECK(engine.core->load().kv_blocks_used() == 4);
  GoOn(engine);
  CHECK(engine.core->load().kv_blocks_used() == 0);
  CHECK_FALSE(engine.core->Busy());
  CHECK(engine.heard[{1, 0}].tokens.empty());
  CHECK(engine.workers->shapes.size() == 2);
}

TEST_CASE("steps ahead: penalties, bad words and prompt logprobs wait for the tokens") {
  v1::Submit submit = Wants(1, 10, 4);
  SECTION("a penalty") { submit.mutable_sampling()->set_presence_penalty(0.5F); }
  SECTION("bad words of several tokens") {
    v1::TokenSequence* word = submit.add_bad_words();
    word->add_ids(1);
    word->add_ids(2);
  }
  SECTION("prompt logprobs") { submit.set_prompt_logprobs(0); }
  ScriptedEngine engine(LaneOptions(), 1, true);
  const bool scores = submit.prompt_logprobs() >= 0;
  engine.Submit(submit);
  engine.Begin();
  CHECK(engine.workers->shapes.size() == 1);
  engine.RunAll();
  CHECK(engine.heard[{1, 0}].tokens == engine.Expected({1, 0}, 4));
  CHECK(engine.workers->begun_ahead == (scores ? 2 : 0));  // behind the prompt nothing is scored
}

TEST_CASE("steps ahead: bans that need no output are no reason to wait") {
  v1::Submit submit = Wants(1, 10, 4);
  submit.set_min_tokens(3);
  submit.add_stop_token_ids(5);
  submit.add_bad_words()->add_ids(7);
  ScriptedEngine engine(LaneOptions(), 1, true);
  engine.Submit(submit);
  engine.RunAll();
  CHECK(engine.workers->begun_ahead > 0);
}

TEST_CASE("steps ahead: nobody is preempted behind a step in flight") {
  EngineOptions options = LaneOptions();
  options.limits.total_blocks = 8;
  options.prefix_cache = false;
  ScriptedEngine engine(options, 1, true);
  engine.Submit(Wants(9, 4, 1));  // a short answer: others are expected to be so
  engine.RunAll();
  engine.Submit(Wants(1, 12, 16));
  engine.Submit(Wants(2, 12, 16));
  engine.RunAll();
  CHECK(engine.core->load().preemptions() > 0);
  CHECK(engine.workers->begun_ahead > 0);
  for (const uint64_t id : {1, 2}) {
    CHECK(engine.heard[{id, 0}].tokens == engine.Expected({id, 0}, 16));
  }
}

TEST_CASE("steps ahead: a step that fails takes those it computed, not who comes behind") {
  ScriptedEngine engine(LaneOptions(), 1, true);
  engine.Submit(Wants(1, 8, 8));
  engine.Begin();
  REQUIRE(engine.workers->shapes.size() == 2);
  engine.Submit(Wants(2, 8, 4));
  engine.workers->RunOldest(absl::InternalError("gave nothing"));
  engine.End();
  CHECK(engine.heard[{1, 0}].finish == v1::FINISH_REASON_ERROR);
  engine.RunAll();
  CHECK(engine.heard[{1, 0}].tokens.empty());
  CHECK(engine.heard[{2, 0}].tokens == engine.Expected({2, 0}, 4));
}

}  // namespace
}  // namespace tessera::worker
