// An EngineCore over workers that a test plays (ScriptedExecutor), and what each choice heard.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/engine/scripted_executor.h"
#include "worker/engine/engine_core.h"

namespace tessera::worker {

using Choice = std::pair<uint64_t, int32_t>;  // submission and index

struct Heard {
  std::vector<int32_t> tokens;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
};

class ScriptedEngine {
 public:
  explicit ScriptedEngine(const EngineOptions& options, int lanes, bool ahead = false)
      : options_(options) {
    auto executor = std::make_unique<ScriptedExecutor>(
        lanes, options.limits.total_blocks, options.limits.block_tokens, options.vocabulary, ahead);
    workers = executor.get();
    core = std::make_unique<EngineCore>(options, std::move(executor));
  }

  void Submit(v1::Submit submit) {
    for (int32_t i = 0; i < submit.choice_count(); ++i) {
      heard[{submit.submission_id(), submit.first_choice() + i}];
    }
    submits[submit.submission_id()] = submit;
    core->Submit(std::move(submit), now_, &events_);
    Collect();
  }
  void Cancel(uint64_t id, int32_t choice) {
    v1::Cancel cancel;
    cancel.set_submission_id(id);
    cancel.set_attempt(1);
    cancel.set_choice(choice);
    core->Cancel(cancel, &events_);
    Collect();
  }
  void Begin() {
    core->BeginSteps(now_ += 1, &events_);
    Collect();
  }
  void End() {
    core->EndStep([this] { return now_ += 1; }, &events_);
    Collect();
  }
  void RunAll() {
    for (int steps = 0; core->Busy(); ++steps) {
      REQUIRE(steps < 10000);
      Begin();
      if (workers->waits()) workers->RunOldest();
      if (core->StepReady()) {
        End();
      } else {  // a step that could not begin ended somebody; else nothing goes on, though there is
                // work
        REQUIRE((core->MayBegin() || !core->Busy()));
      }
    }
    CHECK(core->sequences() == 0);
    CHECK(core->load().kv_blocks_used() == 0);
    CHECK(core->load().running() == 0);
  }
  std::vector<int32_t> Expected(const Choice& choice, int64_t count) const {
    const v1::Submit& submit = submits.at(choice.first);
    const auto& prompt = submit.prompt_token_ids();
    return workers->Expected({prompt.begin(), prompt.end()}, choice.second, count);
  }

  ScriptedExecutor* workers;
  std::unique_ptr<EngineCore> core;
  std::map<Choice, Heard> heard;
  std::map<uint64_t, v1::Submit> submits;

 private:
  void Collect() {
    for (const v1::TokenEvent& event : events_) {
      Heard& choice = heard.at({event.submission_id(), event.choice()});
      REQUIRE(choice.finish == v1::FINISH_REASON_UNSPECIFIED);  // nothing after the end
      if (event.has_token()) choice.tokens.push_back(event.token_id());
      choice.finish = event.finish();
    }
    events_.clear();
  }

  const EngineOptions options_;
  double now_ = 0;
  EngineCore::Events events_;
};

inline EngineOptions LaneOptions() {
  EngineOptions options = SmallOptions();
  options.limits.total_blocks = 24;
  options.limits.max_batched_tokens = 16;
  return options;
}

inline v1::Submit Wants(uint64_t id, int64_t prompt, int32_t tokens) {
  v1::Submit submit = MakeSubmit(id, Prompt(prompt, id), tokens);
  submit.set_ignore_eos(true);
  return submit;
}

}  // namespace tessera::worker
