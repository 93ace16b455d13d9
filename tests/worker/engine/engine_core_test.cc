#include "worker/engine/engine_core.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "kernels/philox.h"
#include "tests/worker/engine/engine_harness.h"

namespace tessera::worker {
namespace {

using Tokens = std::vector<int32_t>;

TEST_CASE("continuous batching gives each prompt what it gets alone") {
  Harness h(SmallOptions());
  for (uint64_t id = 0; id < 30; ++id) h.Submit(MakeSubmit(id, Prompt(1 + id * 3, id), 5 + id % 7));
  h.RunAll();
  for (uint64_t id = 0; id < 30; ++id) {
    const Told& told = h.Of(id);
    CHECK(told.tokens == h.Greedy(Prompt(1 + id * 3, id), 5 + id % 7));
    CHECK(told.finish == v1::FINISH_REASON_LENGTH);
    for (size_t i = 0; i < told.positions.size(); ++i) {
      REQUIRE(told.positions[i] == static_cast<int64_t>(1 + id * 3 + i));
    }
  }
}

TEST_CASE("tiny pools preempt and recompute, and the tokens stay the same") {
  for (const bool cache : {true, false}) {
    EngineOptions options = SmallOptions();
    options.limits.total_blocks = 14;
    options.limits.max_batched_tokens = 12;
    options.prefix_cache = cache;
    Harness h(options);
    h.Submit(MakeSubmit(100, Prompt(3, 100), 1));  // a short answer: others are expected to be so
    h.RunAll();
    for (uint64_t id = 0; id < 12; ++id) h.Submit(MakeSubmit(id, Prompt(6 + id, id), 30));
    h.RunAll();
    CHECK(h.core->load().preemptions() > 0);
    for (uint64_t id = 0; id < 12; ++id) {
      REQUIRE(h.Of(id).tokens == h.Greedy(Prompt(6 + id, id), 30));
    }
  }
}

TEST_CASE("the prefix cache changes cached_tokens, not tokens; salts separate") {
  EngineOptions options = SmallOptions();
  options.limits.max_batched_tokens = 100;
  Harness with(options);
  options.prefix_cache = false;
  Harness without(options);
  const Tokens prompt = Prompt(40, 5);  // ten full blocks: the last is computed again
  for (Harness* h : {&with, &without}) {
    for (uint64_t id = 1; id <= 3; ++id) {
      v1::Submit submit = MakeSubmit(id, prompt, 10);
      if (id == 3) submit.set_cache_salt("other");
      h->Submit(submit);
      h->RunAll();
      CHECK(h->Of(id).tokens == h->Greedy(prompt, 10));
    }
  }
  CHECK(with.Of(1).cached_tokens == 0);
  CHECK(with.Of(2).cached_tokens == 36);
  CHECK(with.Of(3).cached_tokens == 0);
  CHECK(without.Of(2).cached_tokens == 0);
  CHECK(with.core->load().prefix_queries_tokens() == 120);
  CHECK(with.core->load().prefix_hits_tokens() == 36);
  CHECK(with.core->load().prompt_tokens() == 120 - 36);
}

TEST_CASE("a conversation's next turn finds the answer's blocks too") {
  Harness h(SmallOptions());
  Tokens turn = Prompt(21, 9);
  h.Submit(MakeSubmit(1, turn, 12));
  h.RunAll();
  turn.insert(turn.end(), h.Of(1).tokens.begin(), h.Of(1).tokens.end());
  turn.push_back(7);
  h.Submit(MakeSubmit(2, turn, 5));
  h.RunAll();
  CHECK(h.Of(2).cached_tokens == 32);  // 21 + 12 - 1 computed tokens, full blocks of 4
  CHECK(h.Of(2).tokens == h.Greedy(turn, 5));
}

TEST_CASE("dynamic rope: no sharing beyond the original length, sharing below it") {
  constexpr int64_t kOriginal = 24;
  EngineOptions options = SmallOptions();
  options.dynamic_rope_original_tokens = kOriginal;
  Harness h(options, kOriginal);
  const Tokens prompt = Prompt(60, 3);
  const auto run = [&](uint64_t id, int64_t length, int32_t choices) {
    const Tokens part(prompt.begin(), prompt.begin() + length);
    v1::Submit submit = MakeSubmit(id, part, 12);
    submit.set_choice_count(choices);
    h.Submit(submit);
    h.RunAll();
    for (int c = 0; c < choices; ++c) REQUIRE(h.Of(id, c).tokens == h.Greedy(part, 12, kOriginal));
  };
  run(1, 20, 1);
  run(2, 20, 1);
  CHECK(h.Of(2).cached_tokens == 16);
  run(3, 60, 1);
  run(4, 60, 3);
  CHECK(h.Of(3).cached_tokens == 0);
  CHECK(h.Of(4).cached_tokens == 0);
  run(5, 23, 1);
  CHECK(h.Of(5).cached_tokens > 0);
}

TEST_CASE("choices share the prompt's blocks, whether the prefix cache is on or not") {
  for (const bool cache : {true, false}) {
    EngineOptions options = SmallOptions();
    options.prefix_cache = cache;
    Harness h(options);
    const Tokens prompt = Prompt(42, 8);
    v1::Submit submit = MakeSubmit(1, prompt, 3);
    submit.set_first_choice(2);
    submit.set_choice_count(4);
    h.Submit(submit);
    int32_t most = 0;
    while (h.core->Busy()) {
      h.Step();
      most = std::max(most, h.core->load().kv_blocks_used());
    }
    CHECK(most <= 10 + 4 * 2);  // ten full blocks once, a tail of two blocks each
    CHECK(h.core->load().prompt_tokens() <= 42 + 3 * 4);
    for (int choice = 2; choice < 6; ++choice) {
      CHECK(h.Of(1, choice).tokens == h.Greedy(prompt, 3));
    }
  }
}

TEST_CASE("the first choice may be cancelled before the prompt is done: the next takes over") {
  Harness h(SmallOptions());
  const Tokens prompt = Prompt(90, 8);
  v1::Submit submit = MakeSubmit(1, prompt, 3);
  submit.set_choice_count(3);
  submit.set_prompt_logprobs(0);
  h.Submit(submit);
  h.Step();
  h.Cancel(1, 0);
  h.RunAll();
  CHECK(h.Of(1, 0).finish == v1::FINISH_REASON_CANCELLED);
  CHECK(h.Of(1, 0).tokens.empty());
  for (int choice : {1, 2}) CHECK(h.Of(1, choice).tokens == h.Greedy(prompt, 3));
  CHECK(h.Of(1, 1).prompt_logprobs.size() == prompt.size());
}

v1::Submit Sampled(uint64_t id, const Tokens& prompt, int32_t max_tokens, uint64_t seed) {
  v1::Submit submit = MakeSubmit(id, prompt, max_tokens);
  submit.mutable_sampling()->set_temperature(0.9f);
  submit.mutable_sampling()->set_top_p(0.95f);
  submit.mutable_sampling()->set_top_k(20);
  submit.mutable_sampling()->set_presence_penalty(0.5f);
  submit.mutable_sampling()->set_frequency_penalty(0.3f);
  submit.mutable_sampling()->set_repetition_penalty(1.2f);
  submit.mutable_sampling()->set_seed(seed);
  return submit;
}

TEST_CASE("equal seed, choice and position give equal tokens whatever the batch; choices differ") {
  Harness alone(SmallOptions());
  const Tokens prompt = Prompt(17, 4);
  v1::Submit submit = Sampled(1, prompt, 16, 99);
  submit.set_choice_count(3);
  alone.Submit(submit);
  alone.RunAll();
  Harness crowded(SmallOptions());
  for (uint64_t id = 10; id < 20; ++id) crowded.Submit(Sampled(id, Prompt(id, id), 9, id));
  crowded.Step();
  crowded.Submit(submit);
  crowded.RunAll();
  for (int choice = 0; choice < 3; ++choice) {
    CHECK(alone.Of(1, choice).tokens == crowded.Of(1, choice).tokens);
  }
  CHECK(alone.Of(1, 0).tokens != alone.Of(1, 1).tokens);
  submit = Sampled(2, prompt, 16, 100);
  alone.Submit(submit);
  alone.RunAll();
  CHECK(alone.Of(2).tokens != alone.Of(1).tokens);
}

TEST_CASE("a drawn token is the inverse CDF at Philox(seed, choice, absolute position)") {
  Harness h(SmallOptions());
  Tokens tokens = Prompt(7, 31);
  v1::Submit submit = MakeSubmit(1, tokens, 25);
  submit.mutable_sampling()->set_temperature(1);
  submit.mutable_sampling()->set_seed(0x123456789abcdefull);
  submit.set_first_choice(3);
  h.Submit(submit);
  h.RunAll();
  REQUIRE(h.Of(1, 3).tokens.size() == 25);
  for (const int32_t drawn : h.Of(1, 3).tokens) {
    const std::vector<float> logits = ToyModel::LogitsAfter(tokens, 7, 50);
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit));
    const double target =
        total * kernels::SamplingUniform(0x123456789abcdefull, 3, static_cast<int>(tokens.size()));
    int32_t expected = 0;
    for (double sum = std::exp(static_cast<double>(logits[0])); sum <= target;) {
      sum += std::exp(static_cast<double>(logits[++expected]));
    }
    REQUIRE(drawn == expected);
    tokens.push_back(drawn);
  }
}

TEST_CASE("continuing at any point equals the unbroken run") {
  Harness h(SmallOptions());
  const Tokens prompt = Prompt(13, 21);
  h.Submit(Sampled(1, prompt, 20, 5));
  h.RunAll();
  const Tokens whole = h.Of(1).tokens;
  REQUIRE(whole.size() == 20);
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    v1::Submit submit = Sampled(100 + cut, prompt, 20, 5);
    submit.mutable_output_token_ids()->Add(whole.begin(), whole.begin() + cut);
    h.Submit(submit);
  }
  h.RunAll();
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    REQUIRE(h.Of(100 + cut).tokens == Tokens(whole.begin() + cut, whole.end()));
    REQUIRE(h.Of(100 + cut).positions[0] == static_cast<int64_t>(prompt.size() + cut));
  }
}

void CheckLogprobs(const v1::PositionLogprobs& got, const std::vector<float>& logits, int32_t token,
                   int top) {
  double sum = 0;
  int rank = 1;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit));
    rank += logit > logits[token] ? 1 : 0;
  }
  REQUIRE(got.chosen().token_id() == token);
  REQUIRE(got.chosen().logprob() == Approx(logits[token] - std::log(sum)).epsilon(1e-4));
  REQUIRE(got.chosen().rank() == rank);
  REQUIRE(got.top_size() == top);
  for (int i = 0; i < top; ++i) {
    REQUIRE(got.top(i).rank() == i + 1);
    if (i > 0) REQUIRE(got.top(i).logprob() <= got.top(i - 1).logprob());
  }
  if (top > 0) {
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    REQUIRE(got.top(0).token_id() == best);
  }
}

TEST_CASE(
    "logprobs and prompt logprobs are those of the raw logits, in pieces, also under a tiny pool") {
  EngineOptions options = SmallOptions();
  options.limits.total_blocks = 24;
  Harness h(options);
  h.Submit(MakeSubmit(100, Prompt(3, 100), 1));  // a short answer: others are expected to be so
  h.RunAll();
  for (uint64_t id = 1; id <= 6; ++id) {
    v1::Submit submit = Sampled(id, Prompt(33 + id, id), 25, id);
    submit.set_top_logprobs(id == 2 ? 0 : 5);
    submit.set_prompt_logprobs(id % 3);
    if (id == 6) submit.set_max_tokens(0);
    h.Submit(submit);
  }
  h.Submit(MakeSubmit(9, Prompt(12, 9), 25));
  h.RunAll();
  CHECK(h.core->load().preemptions() > 0);
  for (uint64_t id = 1; id <= 6; ++id) {
    Tokens tokens = Prompt(33 + id, id);
    const int64_t prompt = static_cast<int64_t>(tokens.size());
    const Told& told = h.Of(id);
    REQUIRE(told.prompt_logprobs.size() == tokens.size());
    CHECK_FALSE(told.prompt_logprobs[0].has_chosen());
    for (int64_t i = 1; i < prompt; ++i) {
      CheckLogprobs(told.prompt_logprobs[i],
                    ToyModel::LogitsAfter(std::span(tokens).first(i), prompt, 50), tokens[i],
                    id % 3);
    }
    CHECK(told.tokens.size() == (id == 6 ? 0 : 25));
    CHECK(told.finish == v1::FINISH_REASON_LENGTH);
    for (size_t i = 0; i < told.tokens.size(); ++i) {
      CheckLogprobs(told.logprobs[i], ToyModel::LogitsAfter(tokens, prompt, 50), told.tokens[i],
                    id == 2 ? 0 : 5);
      tokens.push_back(told.tokens[i]);
    }
  }
}

TEST_CASE("prompt logprobs do not look into the prefix cache") {
  Harness h(SmallOptions());
  const Tokens prompt = Prompt(30, 6);
  h.Submit(MakeSubmit(1, prompt, 2));
  h.RunAll();
  v1::Submit submit = MakeSubmit(2, prompt, 2);
  submit.set_prompt_logprobs(1);
  h.Submit(submit);
  h.RunAll();
  CHECK(h.Of(2).cached_tokens == 0);
  CHECK(h.Of(2).prompt_logprobs.size() == 30);
  CHECK(h.Of(2).tokens == h.Of(1).tokens);
}

TEST_CASE("the context's end and the pool's end finish with LENGTH") {
  EngineOptions options = SmallOptions();
  options.max_model_len_tokens = 20;
  Harness h(options);
  h.Submit(MakeSubmit(1, Prompt(15, 1), 100));
  h.RunAll();
  CHECK(h.Of(1).tokens == h.Greedy(Prompt(15, 1), 5));
  CHECK(h.Of(1).finish == v1::FINISH_REASON_LENGTH);
  options = SmallOptions();
  options.limits.total_blocks = 5;
  Harness small(options);
  small.Submit(MakeSubmit(1, Prompt(15, 1), 100));
  small.RunAll();
  CHECK(small.Of(1).tokens == small.Greedy(Prompt(15, 1), 6));
  CHECK(small.Of(1).finish == v1::FINISH_REASON_LENGTH);
  for (Harness* full : {&h, &small}) {
    v1::Submit again = MakeSubmit(2, Prompt(15, 1), 100);
    for (const int32_t token : full->Of(1).tokens) again.add_output_token_ids(token);
    full->Submit(again);
    CHECK(full->Of(2).tokens.empty());
    CHECK(full->Of(2).finish == v1::FINISH_REASON_LENGTH);
  }
}

TEST_CASE("what can never run is refused, with both numbers") {
  EngineOptions options = SmallOptions();
  options.limits.total_blocks = 10;
  Harness h(options);
  const auto refused = [&](v1::Submit submit, std::vector<std::string> words) {
    static uint64_t id = 1000;
    submit.set_submission_id(++id);
    h.Submit(submit);
    const Told& told = h.Of(id);
    CHECK(told.finish == v1::FINISH_REASON_ERROR);
    CHECK(told.error_code == static_cast<int>(absl::StatusCode::kInvalidArgument));
    for (const std::string& word : words) CHECK_THAT(told.error, Catch::Contains(word));
  };
  refused(MakeSubmit(0, Prompt(200, 1), 1), {"200", "201"});
  refused(MakeSubmit(0, Prompt(41, 1), 1), {"41", "40", "KV pool"});
  refused(MakeSubmit(0, {}, 1), {"prompt_token_ids"});
  refused(MakeSubmit(0, {3, 50}, 1), {"prompt_token_ids[1]", "50", "49"});
  v1::Submit bad = MakeSubmit(0, {1}, 1);
  bad.mutable_sampling()->set_top_p(1.5f);
  refused(bad, {"top_p", "1.5"});
  bad = MakeSubmit(0, {1}, 1);
  bad.mutable_sampling()->set_temperature(NAN);
  refused(bad, {"temperature"});
  bad.mutable_sampling()->set_temperature(1);
  bad.mutable_sampling()->set_repetition_penalty(1e-20f);
  refused(bad, {"repetition_penalty", "1e-20"});
  bad = MakeSubmit(0, {1}, 1);
  bad.set_top_logprobs(101);
  refused(bad, {"101", "100"});
  bad = MakeSubmit(0, {1}, 1);
  bad.add_logprob_ids(50);
  refused(bad, {"logprob_ids", "50"});
  bad = MakeSubmit(0, {1}, 3);
  bad.add_output_token_ids(2);
  bad.set_choice_count(2);
  refused(bad, {"choice_count"});
  bad = MakeSubmit(0, {1}, 1);
  (*bad.mutable_sampling()->mutable_logit_bias())[50] = 1;
  refused(bad, {"logit_bias", "50"});
  bad = MakeSubmit(0, {1}, 1);
  bad.set_choice_count(2147483647);  // and not as many events
  refused(bad, {"choice_count", "2147483647"});
  CHECK_FALSE(h.core->Busy());
  h.Submit(MakeSubmit(1, Prompt(5, 1), 3));  // the next one is unharmed
  h.RunAll();
  CHECK(h.Of(1).tokens == h.Greedy(Prompt(5, 1), 3));
}

TEST_CASE("the queue is bounded and says so; overdue submissions are refused") {
  EngineOptions options = SmallOptions();
  options.max_waiting = 3;
  options.limits.max_sequences = 1;
  Harness h(options);
  for (uint64_t id = 1; id <= 4; ++id) {
    v1::Submit submit = MakeSubmit(id, Prompt(5, id), 10);
    if (id == 3) submit.set_queue_timeout_seconds(4);
    h.Submit(submit);
  }
  CHECK(h.Of(4).error_code == static_cast<int>(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(h.Of(4).error, Catch::Contains("max_waiting") && Catch::Contains("3"));
  h.RunAll();
  CHECK(h.Of(3).error_code == static_cast<int>(absl::StatusCode::kDeadlineExceeded));
  CHECK(h.Of(1).finish == v1::FINISH_REASON_LENGTH);
  CHECK(h.Of(2).finish == v1::FINISH_REASON_LENGTH);
  h.Submit(MakeSubmit(5, Prompt(5, 5), 1));
  h.RunAll();
  CHECK(h.Of(5).finish == v1::FINISH_REASON_LENGTH);
}

TEST_CASE("a failed step ends its sequences with ERROR and the engine goes on") {
  EngineOptions options = SmallOptions();
  options.limits.max_sequences = 4;
  Harness h(options);
  v1::Submit submit = MakeSubmit(1, Prompt(10, 1), 10);
  submit.set_choice_count(2);
  h.Submit(submit);
  h.Submit(MakeSubmit(2, Prompt(10, 2), 10));
  h.Step();
  h.model.on_forward = [](const StepInputs&) { return absl::DataLossError("planted"); };
  h.Step();
  h.model.on_forward = nullptr;
  CHECK_FALSE(h.core->Busy());
  CHECK(h.core->load().kv_blocks_used() == 0);
  for (const auto& [id, choice] : {std::pair(1, 0), std::pair(1, 1), std::pair(2, 0)}) {
    CHECK(h.Of(id, choice).finish == v1::FINISH_REASON_ERROR);
    CHECK(h.Of(id, choice).error == "planted");
    CHECK(h.Of(id, choice).error_code == static_cast<int>(absl::StatusCode::kDataLoss));
  }
  h.Submit(MakeSubmit(3, Prompt(10, 1), 10));
  h.RunAll();
  CHECK(h.Of(3).tokens == h.Greedy(Prompt(10, 1), 10));
}

TEST_CASE("attempts: an older or equal one is refused, a newer one replaces") {
  Harness h(SmallOptions());
  h.Submit(MakeSubmit(1, Prompt(10, 1), 10));
  h.Step();
  EngineCore::Events events;
  h.core->Submit(MakeSubmit(1, Prompt(10, 1), 10), 0, &events);
  REQUIRE(events.size() == 1);
  CHECK(events[0].error_code() == static_cast<int>(absl::StatusCode::kFailedPrecondition));
  events.clear();
  v1::Submit newer = MakeSubmit(1, Prompt(10, 1), 10);
  newer.set_attempt(2);
  h.core->Submit(newer, 0, &events);
  REQUIRE(events.size() == 1);
  CHECK(events[0].attempt() == 1);
  CHECK(events[0].finish() == v1::FINISH_REASON_CANCELLED);
  CHECK(h.core->sequences() == 1);
}

TEST_CASE("streams decode in every step while a long prompt is computed") {
  EngineOptions options = SmallOptions();
  options.max_model_len_tokens = 9000;
  options.limits.total_blocks = 2600;
  options.limits.max_batched_tokens = 256;
  Harness h(options);
  for (uint64_t id = 0; id < 4; ++id) h.Submit(MakeSubmit(id, Prompt(5, id), 60));
  h.Step();
  h.Submit(MakeSubmit(9, Prompt(8192, 9), 1));
  while (h.Of(9).tokens.empty()) {
    const size_t before = h.Of(0).tokens.size();
    h.Step();
    REQUIRE(h.Of(0).tokens.size() == before + 1);
  }
  CHECK(h.steps <= 8192 / (256 - 4) + 3);
  h.RunAll();
}

}  // namespace
}  // namespace tessera::worker
