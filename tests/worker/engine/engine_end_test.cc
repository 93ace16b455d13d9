// How choices end: cancelled, stopped by an id, or because nothing is left to pick. What each end
// gives back, when, and what its listener is told.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/worker/engine/engine_harness.h"

namespace tessera::worker {
namespace {

using Tokens = std::vector<int32_t>;

TEST_CASE("cancelling frees every block within the call, and the others go on unharmed") {
  std::mt19937 random(11);
  EngineOptions options = SmallOptions();
  options.limits.total_blocks = 40;
  Harness h(options);
  std::vector<bool> cancelled(60, false);
  for (uint64_t id = 0; id < 60; ++id) {
    v1::Submit submit = MakeSubmit(id, Prompt(1 + random() % 40, id), 1 + random() % 20);
    submit.set_choice_count(1 + random() % 3);
    h.Submit(submit);
    for (int i = 0; i < 3 && h.core->Busy(); ++i) h.Step();
    if (random() % 2 == 0) {
      const uint64_t victim = random() % (id + 1);
      h.Cancel(victim);
      cancelled[victim] = true;
    }
  }
  const auto used = h.core->load().kv_blocks_used();
  CHECK(used > 0);
  h.RunAll();
  for (uint64_t id = 0; id < 60; ++id) {
    const Told& told = h.Of(id);
    REQUIRE(told.finish != v1::FINISH_REASON_UNSPECIFIED);
    REQUIRE(told.finish != v1::FINISH_REASON_ERROR);
    if (!cancelled[id]) REQUIRE(told.finish == v1::FINISH_REASON_LENGTH);
  }
}

// Blocks in use when one choice of `prompt` has got `tokens` tokens and nobody else is there.
int64_t BlocksAlone(const EngineOptions& options, const Tokens& prompt, size_t tokens) {
  Harness h(options);
  h.Submit(MakeSubmit(1, prompt, 100));
  while (h.Of(1).tokens.size() < tokens) h.Step();
  return h.core->load().kv_blocks_used();
}

TEST_CASE("a cancel gives back, within the call, every block that its choice alone held") {
  EngineOptions options = SmallOptions();
  options.limits.total_blocks = 200;
  options.limits.max_sequences = 6;
  Harness h(options);
  std::map<uint64_t, Tokens> prompts;
  for (uint64_t id = 0; id < 6; ++id) {
    prompts[id] = Prompt(3 + 7 * static_cast<int64_t>(id), static_cast<uint32_t>(id));
    h.Submit(MakeSubmit(id, prompts[id], 100));
  }
  h.Submit(MakeSubmit(6, Prompt(20, 6), 100));  // waits: it holds nothing yet
  while (h.Of(5).tokens.size() < 9) h.Step();
  std::map<uint64_t, int64_t> held = {{6, 0}};
  int64_t used = 0;
  for (const auto& [id, prompt] : prompts) {
    held[id] = BlocksAlone(options, prompt, h.Of(id).tokens.size());
    used += held[id];
  }
  REQUIRE(h.core->load().kv_blocks_used() == used);
  int64_t left = h.core->sequences();
  for (const uint64_t victim : {3, 6, 0, 5, 1, 4, 2}) {
    CAPTURE(victim);
    const size_t tokens = h.Of(victim).tokens.size();
    h.Cancel(victim);
    used -= held[victim];
    CHECK(h.core->load().kv_blocks_used() == used);
    CHECK(h.core->sequences() == --left);
    CHECK(h.Of(victim).finish == v1::FINISH_REASON_CANCELLED);
    CHECK(h.Of(victim).tokens.size() == tokens);
  }
  CHECK(used == 0);
  CHECK_FALSE(h.core->Busy());
}

TEST_CASE("cancelled choices leave the prompt's blocks to those that stay") {
  EngineOptions options = SmallOptions();
  Harness h(options);
  const Tokens prompt = Prompt(19, 8);
  v1::Submit submit = MakeSubmit(1, prompt, 100);
  submit.set_choice_count(3);
  h.Submit(submit);
  while (h.Of(1, 2).tokens.size() < 6) h.Step();
  const int64_t all = h.core->load().kv_blocks_used();
  const int64_t alone = BlocksAlone(options, prompt, h.Of(1, 1).tokens.size());
  h.Cancel(1, 0);
  const int64_t two = h.core->load().kv_blocks_used();
  h.Cancel(1, 2);
  CHECK(h.core->load().kv_blocks_used() == alone);
  CHECK(two > alone);
  CHECK(all > two);
  CHECK(h.core->sequences() == 1);
}

TEST_CASE("everything is free at once after the last cancel, cached blocks included") {
  Harness h(SmallOptions());
  v1::Submit submit = MakeSubmit(1, Prompt(30, 1), 20);
  submit.set_choice_count(4);
  h.Submit(submit);
  for (int i = 0; i < 4; ++i) h.Step();
  CHECK(h.core->load().kv_blocks_used() > 0);
  h.Cancel(1, -1, 2);  // another attempt: not this one
  CHECK(h.core->sequences() == 4);
  h.Cancel(1);
  CHECK(h.core->sequences() == 0);
  CHECK(h.core->load().kv_blocks_used() == 0);
  for (int choice = 0; choice < 4; ++choice) {
    CHECK(h.Of(1, choice).finish == v1::FINISH_REASON_CANCELLED);
  }
}

TEST_CASE("stop ids, eos, ignore_eos and min_tokens") {
  EngineOptions options = SmallOptions();
  const Tokens prompt = Prompt(9, 2);
  const Tokens greedy = Harness(options).Greedy(prompt, 20);
  const int32_t eos = greedy[4];
  size_t first = 0;
  while (greedy[first] != eos) ++first;
  options.eos_token_ids = {eos};
  Harness h(options);
  h.Submit(MakeSubmit(1, prompt, 20));
  v1::Submit ignoring = MakeSubmit(2, prompt, 20);
  ignoring.set_ignore_eos(true);
  h.Submit(ignoring);
  v1::Submit longer = MakeSubmit(3, prompt, 20);
  longer.set_min_tokens(12);
  h.Submit(longer);
  v1::Submit stop = MakeSubmit(4, prompt, 20);
  stop.set_ignore_eos(true);
  stop.add_stop_token_ids(greedy[2]);
  h.Submit(stop);
  h.RunAll();
  CHECK(h.Of(1).tokens == Tokens(greedy.begin(), greedy.begin() + first + 1));
  CHECK(h.Of(1).finish == v1::FINISH_REASON_STOP);
  CHECK(h.Of(2).tokens == greedy);
  CHECK(h.Of(2).finish == v1::FINISH_REASON_LENGTH);
  REQUIRE(h.Of(3).tokens.size() >= 12);
  for (int i = 0; i < 12; ++i) CHECK(h.Of(3).tokens[i] != eos);
  CHECK(h.Of(4).tokens.back() == greedy[2]);
  CHECK(h.Of(4).tokens.size() <= 3);
}

TEST_CASE("the id that ends a choice is told once, counted once, and marked as no text") {
  EngineOptions options = SmallOptions();
  const Tokens prompt = Prompt(9, 2);
  const Tokens greedy = Harness(options).Greedy(prompt, 20);
  options.eos_token_ids = {greedy[4]};
  for (const bool by_eos : {true, false}) {
    Harness h(options);
    v1::Submit submit = MakeSubmit(1, prompt, 20);
    submit.set_ignore_eos(!by_eos);
    if (!by_eos) submit.add_stop_token_ids(greedy[4]);
    h.Submit(submit);
    h.RunAll();
    const auto end = std::find(greedy.begin(), greedy.end(), greedy[4]);
    const Told& told = h.Of(1);
    CHECK(told.tokens == Tokens(greedy.begin(), end + 1));
    CHECK(told.finish == v1::FINISH_REASON_STOP);
    // The coordinator leaves out of the text what stop_token_id names: the last one alone.
    Tokens marks(told.tokens.size(), -1);
    marks.back() = greedy[4];
    CHECK(told.stop_token_ids == marks);
    for (size_t i = 0; i < told.positions.size(); ++i) {
      CHECK(told.positions[i] == static_cast<int64_t>(prompt.size() + i));
    }
    CHECK(h.core->load().generation_tokens() == told.tokens.size());
    CHECK(h.core->load().prompt_tokens() == prompt.size());
  }
}

TEST_CASE("min_tokens with every id a stop id is an error, not a banned token, and harms nobody") {
  Harness harness(SmallOptions());
  const std::vector<int32_t> prompt = Prompt(9, 4);
  v1::Submit impossible = MakeSubmit(1, prompt, 10);
  for (int32_t id = 0; id < 50; ++id) impossible.add_stop_token_ids(id);
  impossible.set_min_tokens(3);
  harness.Submit(impossible);
  v1::Submit several = impossible;
  several.set_submission_id(2);
  several.set_choice_count(3);
  several.set_top_logprobs(2);
  several.mutable_sampling()->set_temperature(1);
  harness.Submit(several);
  harness.Submit(MakeSubmit(3, prompt, 5));
  harness.RunAll();
  for (const auto& [id, choice] : {std::pair{1, 0}, {2, 0}, {2, 1}, {2, 2}}) {
    const Told& told = harness.Of(id, choice);
    CHECK(told.tokens.empty());
    CHECK(told.finish == v1::FINISH_REASON_ERROR);
    CHECK(told.error_code == static_cast<int32_t>(absl::StatusCode::kInvalidArgument));
    CHECK_THAT(told.error, Catch::Contains("min_tokens 3 bans 50 stop ids"));
  }
  CHECK(harness.Of(3).tokens == harness.Greedy(prompt, 5));
}

TEST_CASE("allowed_token_ids: nothing else is drawn, eos included") {
  for (const float temperature : {0.0f, 5.0f}) {
    Harness harness(SmallOptions());
    v1::Submit submit = MakeSubmit(1, Prompt(9, 4), 40);
    for (const int32_t id : {7, 3, 11, 7}) submit.add_allowed_token_ids(id);
    submit.mutable_sampling()->set_temperature(temperature);
    // More bias than the banned ids can overcome.
    (*submit.mutable_sampling()->mutable_logit_bias())[20] = 100;
    harness.Submit(submit);
    harness.RunAll();
    const std::vector<int32_t>& tokens = harness.Of(1).tokens;
    REQUIRE(tokens.size() == 40);
    for (const int32_t id : tokens) CHECK((id == 3 || id == 7 || id == 11));
  }
}

TEST_CASE("bad_words: a single token never comes, a sequence is broken before its last token") {
  const std::vector<int32_t> prompt = Prompt(9, 4);
  Harness harness(SmallOptions());
  const std::vector<int32_t> free = harness.Greedy(prompt, 12);
  const auto bad = [&](uint64_t id, const std::vector<int32_t>& word) {
    v1::Submit submit = MakeSubmit(id, prompt, 12);
    submit.add_bad_words()->mutable_ids()->Add(word.begin(), word.end());
    harness.Submit(submit);
    harness.RunAll();
    return harness.Of(id).tokens;
  };
  const std::vector<int32_t> without = bad(1, {free[0]});
  CHECK(std::find(without.begin(), without.end(), free[0]) == without.end());
  // The first three tokens as they were, then another one than before.
  const std::vector<int32_t> broken = bad(2, {free[1], free[2], free[3]});
  CHECK(std::equal(free.begin(), free.begin() + 3, broken.begin()));
  CHECK(broken[3] != free[3]);
  const std::vector<int32_t> word = {free[1], free[2], free[3]};
  CHECK(std::search(broken.begin(), broken.end(), word.begin(), word.end()) == broken.end());
  // The prompt's end is no part of the output.
  CHECK(bad(3, {prompt.back(), free[0]})[0] == free[0]);
  // Continued elsewhere after two tokens, the word is still seen.
  v1::Submit rest = MakeSubmit(4, prompt, 12);
  rest.mutable_output_token_ids()->Add(free.begin(), free.begin() + 3);
  rest.add_bad_words()->mutable_ids()->Add(word.begin(), word.end());
  harness.Submit(rest);
  harness.RunAll();
  CHECK(harness.Of(4).tokens == std::vector<int32_t>(broken.begin() + 3, broken.end()));
}

TEST_CASE("thinking_budget: its end is forced, unless the model has closed thinking itself") {
  const std::vector<int32_t> prompt = Prompt(9, 4);
  Harness harness(SmallOptions());
  const std::vector<int32_t> free = harness.Greedy(prompt, 12);
  // Ids that the model would not draw.
  std::vector<int32_t> absent;
  for (int32_t id = 0; absent.size() < 3; ++id) {
    if (std::find(free.begin(), free.end(), id) == free.end()) absent.push_back(id);
  }
  const int32_t ending = absent[0], closing = absent[1], other = absent[2];
  const auto bounded = [&](uint64_t id, const v1::ThinkingBudget& budget, size_t known = 0) {
    v1::Submit submit = MakeSubmit(id, prompt, 12);
    *submit.mutable_thinking_budget() = budget;
    submit.mutable_output_token_ids()->Add(free.begin(), free.begin() + known);
    // The end comes although it is banned.
    submit.add_bad_words()->add_ids(ending);
    harness.Submit(submit);
    harness.RunAll();
    return harness.Of(id).tokens;
  };
  v1::ThinkingBudget budget;
  budget.set_tokens(4);
  budget.set_closing_id(closing);
  for (const int32_t id : {ending, closing}) budget.add_end_ids(id);
  const std::vector<int32_t> open = bounded(1, budget);
  REQUIRE(open.size() == 12);
  CHECK(std::equal(free.begin(), free.begin() + 4, open.begin()));
  CHECK(open[4] == ending);
  CHECK(open[5] == closing);
  CHECK(std::count(open.begin() + 6, open.end(), ending) == 0);
  // Continued elsewhere within its thinking, the same.
  CHECK(bounded(2, budget, 3) == std::vector<int32_t>(open.begin() + 3, open.end()));
  // The answer opens it: budget counts from there.
  budget.add_opening_ids(free[0]);
  const std::vector<int32_t> opened = bounded(3, budget);
  CHECK(opened[5] == ending);
  CHECK(opened[6] == closing);
  // Not opened, or closed in time.
  budget.set_opening_ids(0, other);
  CHECK(bounded(4, budget) == free);
  budget.clear_opening_ids();
  budget.set_closing_id(free[2]);
  CHECK(bounded(5, budget) == free);
  budget.set_end_ids(1, 50);
  CHECK(bounded(6, budget).empty());
  CHECK_THAT(harness.Of(6).error, Catch::Contains("thinking_budget[1] is 50"));
}

TEST_CASE("bans with min_tokens add up; ids and words that cannot be are refused") {
  Harness harness(SmallOptions());
  const std::vector<int32_t> prompt = Prompt(9, 4);
  v1::Submit only_stop = MakeSubmit(1, prompt, 10);
  only_stop.add_allowed_token_ids(5);
  only_stop.add_stop_token_ids(5);
  only_stop.set_min_tokens(2);
  harness.Submit(only_stop);
  v1::Submit outside = MakeSubmit(2, prompt, 10);
  outside.add_allowed_token_ids(50);
  harness.Submit(outside);
  v1::Submit empty = MakeSubmit(3, prompt, 10);
  empty.add_bad_words();
  harness.Submit(empty);
  harness.RunAll();
  CHECK_THAT(harness.Of(1).error, Catch::Contains("allowed_token_ids"));
  CHECK_THAT(harness.Of(2).error, Catch::Contains("allowed_token_ids[0] is 50"));
  CHECK_THAT(harness.Of(3).error, Catch::Contains("bad_words"));
}

}  // namespace
}  // namespace tessera::worker
