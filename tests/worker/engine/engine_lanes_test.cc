// Several steps in flight: whatever happens while they are away, in whatever order, each choice
// ends once, its tokens are those of an undisturbed one, and every block returns.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "kernels/ops.h"
#include "tests/worker/engine/scripted_engine.h"

namespace tessera::worker {
namespace {

TEST_CASE("lanes: prompts of two submissions are in flight together") {
  ScriptedEngine engine(LaneOptions(), 2);
  engine.Submit(Wants(1, 16, 1));
  engine.Submit(Wants(2, 16, 1));
  engine.Begin();
  REQUIRE(engine.workers->shapes.size() == 2);
  CHECK(engine.workers->shapes[0] == ScriptedExecutor::Shape{0, 16, 1});
  CHECK(engine.workers->shapes[1] == ScriptedExecutor::Shape{0, 16, 1});
  CHECK_FALSE(engine.core->StepReady());
  engine.Begin();  // no third one
  CHECK(engine.workers->shapes.size() == 2);
  engine.RunAll();
  for (const uint64_t id : {1, 2}) {
    CHECK(engine.heard[{id, 0}].tokens == engine.Expected({id, 0}, 1));
  }
}

TEST_CASE("lanes: who is cancelled while a step computes it keeps its blocks until that is back") {
  ScriptedEngine engine(LaneOptions(), 2);
  engine.Submit(Wants(1, 16, 4));
  engine.Begin();
  const int32_t used = engine.core->load().kv_blocks_used();
  REQUIRE(used == 4);
  engine.Cancel(1, -1);
  CHECK(engine.heard[{1, 0}].finish == v1::FINISH_REASON_CANCELLED);
  CHECK(engine.core->sequences() == 0);
  CHECK(engine.core->load().kv_blocks_used() == used);
  CHECK(engine.core->Busy());
  engine.Submit(Wants(2, 16, 4));
  engine.RunAll();
  CHECK(engine.heard[{1, 0}].tokens.empty());
  CHECK(engine.heard[{2, 0}].tokens == engine.Expected({2, 0}, 4));
}

TEST_CASE("lanes that wait for each other's blocks become one, and everybody ends") {
  EngineOptions options = LaneOptions();
  options.limits.total_blocks = 8;  // of 4 tokens: two prompts of 12, and two blocks more
  options.limits.max_batched_tokens = 12;
  options.prefix_cache = false;
  ScriptedEngine engine(options, 2);
  engine.Submit(Wants(9, 4, 1));  // a short answer: others are expected to be so
  engine.RunAll();
  engine.Submit(Wants(1, 12, 16));
  engine.Submit(Wants(2, 12, 16));
  engine.RunAll();
  CHECK(engine.core->load().preemptions() > 0);
  for (const uint64_t id : {1, 2}) {
    CHECK(engine.heard[{id, 0}].tokens == engine.Expected({id, 0}, 16));
  }
}

TEST_CASE("lanes: a formation that breaks ends steps in flight without a word") {
  ScriptedEngine engine(LaneOptions(), 2);
  engine.Submit(Wants(1, 16, 4));
  engine.Submit(Wants(2, 16, 4));
  engine.Begin();
  engine.workers->broken = absl::UnavailableError("a worker is lost");
  REQUIRE(engine.core->StepReady());
  engine.End();
  engine.End();
  CHECK_FALSE(engine.core->StepReady());
  CHECK(engine.heard[{1, 0}].finish == v1::FINISH_REASON_UNSPECIFIED);
  engine.Begin();  // starts nothing
  CHECK(engine.workers->shapes.size() == 2);
}

// One seed: submissions, cancels, steps that come back in any rhythm, steps that fail, rows without
// a token, in random order.
class Storm {
 public:
  // `ahead`: one lane, whose next step begins behind the one in flight.
  Storm(uint32_t seed, bool ahead)
      : random_(seed), lanes_(ahead ? 1 : From(1, 3)), engine_(Options(), lanes_, ahead) {}

  int64_t begun_ahead() const { return engine_.workers->begun_ahead; }
  int64_t preemptions() const { return engine_.core->load().preemptions(); }

  void Run() {
    for (int i = 0; i < 150; ++i) {
      Act();
      REQUIRE(engine_.core->load().kv_blocks_used() <= 40);
    }
    engine_.RunAll();
    Check();
  }

 private:
  int From(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  EngineOptions Options() {
    EngineOptions options = SmallOptions();
    options.limits.total_blocks = From(12, 40);
    options.limits.max_batched_tokens = From(8, 24);
    options.limits.max_sequences = From(2, 8);
    options.prefix_cache = From(0, 1) == 1;
    return options;
  }

  void Act() {
    switch (From(0, 9)) {
      case 0:
      case 1: return Submit();
      case 2: return Cancel();
      case 3: return Fail();
      case 4:
      case 5:
      case 6: return engine_.Begin();
      default: return GoOn();
    }
  }
  void Submit() {
    v1::Submit submit = Wants(++last_id_, From(1, 30), From(0, 12));
    submit.mutable_prompt_token_ids()->Set(0, 7);  // some begin alike
    submit.set_choice_count(From(1, 3));
    if (From(0, 3) == 0) submit.set_prompt_logprobs(0);
    if (From(0, 3) == 0) submit.mutable_sampling()->set_repetition_penalty(1.5F);
    if (From(0, 2) == 0) submit.add_stop_token_ids(From(0, 9));  // of 50: some come
    engine_.Submit(std::move(submit));
  }
  void Cancel() {
    if (last_id_ > 0) engine_.Cancel(From(1, static_cast<int>(last_id_)), From(-1, 2));
  }
  void Fail() {
    if (From(0, 1) == 0) {
      engine_.workers->begin_failure = absl::InternalError("cannot begin");
    } else if (engine_.workers->waits() && !engine_.core->StepReady()) {
      engine_.workers->RunOldest(absl::InternalError("gave nothing"));
    }
    failures_ = true;
  }
  void GoOn() {
    if (engine_.workers->waits() && From(0, 3) > 0) engine_.workers->RunOldest();
    if (!engine_.core->StepReady() || From(0, 3) == 0) return;
    if (From(0, 15) == 0) {
      engine_.workers->SpoilDraw(From(0, 2), kernels::kLogitsNotFinite);
      failures_ = true;
    }
    engine_.End();
  }

  void Check() {
    for (const auto& [choice, heard] : engine_.heard) {
      INFO("submission " << choice.first << " choice " << choice.second);
      REQUIRE(heard.finish != v1::FINISH_REASON_UNSPECIFIED);
      REQUIRE(heard.tokens == engine_.Expected(choice, heard.tokens.size()));
      if (heard.finish == v1::FINISH_REASON_ERROR) CHECK(failures_);
      if (heard.finish == v1::FINISH_REASON_STOP) {
        CHECK(heard.tokens.back() == engine_.submits.at(choice.first).stop_token_ids(0));
      }
      if (heard.finish != v1::FINISH_REASON_LENGTH) continue;
      CHECK(static_cast<int32_t>(heard.tokens.size()) ==
            engine_.submits.at(choice.first).max_tokens());
    }
  }

  std::mt19937 random_;
  const int lanes_;
  ScriptedEngine engine_;
  uint64_t last_id_ = 0;
  bool failures_ = false;
};

TEST_CASE("lanes: outcomes, cancels, failures and preemptions in random order") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    Storm(seed, false).Run();
  }
}

TEST_CASE("steps ahead: outcomes, cancels, failures and preemptions in random order") {
  int64_t begun_ahead = 0, preemptions = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    Storm storm(seed, true);
    storm.Run();
    begun_ahead += storm.begun_ahead();
    preemptions += storm.preemptions();
  }
  CHECK(begun_ahead > 1000);
  CHECK(preemptions > 10);
}

}  // namespace
}  // namespace tessera::worker
