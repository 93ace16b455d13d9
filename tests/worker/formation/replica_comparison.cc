#include "tests/worker/formation/replica_comparison.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

namespace tessera::worker {
namespace {

// Between the likeliest and the least likely alternative of a position, but at least 1: few
// alternatives say little about how large its logits are.
double Span(const v1::PositionLogprobs& position) {
  if (position.top_size() == 0) return 1;
  return std::max(1.0, static_cast<double>(position.top(0).logprob()) -
                           position.top(position.top_size() - 1).logprob());
}

// Largest |difference| of the logprobs that both give for the same id, over the span.
double Difference(const v1::PositionLogprobs& got, const v1::PositionLogprobs& expected) {
  std::map<int32_t, float> logprobs;
  for (const v1::TokenLogprob& token : got.top()) logprobs[token.token_id()] = token.logprob();
  double largest = 0;
  int matched = 0;
  for (const v1::TokenLogprob& token : expected.top()) {
    const auto found = logprobs.find(token.token_id());
    if (found == logprobs.end()) continue;
    if (!std::isfinite(found->second)) return INFINITY;
    ++matched;
    largest = std::max(largest, std::abs(static_cast<double>(found->second) - token.logprob()));
  }
  // Near ties may change places at the end of the list.
  if (got.top_size() != expected.top_size() || matched + 1 < expected.top_size()) return INFINITY;
  if (expected.has_chosen() && got.chosen().token_id() == expected.chosen().token_id()) {
    largest = std::max(largest, std::abs(static_cast<double>(got.chosen().logprob()) -
                                         expected.chosen().logprob()));
  }
  return largest / Span(expected);
}

bool Greedy(const v1::PositionLogprobs& position) {
  return position.top_size() >= 2 && position.chosen().rank() == 1;
}

double Margin(const v1::PositionLogprobs& position) {
  return position.top(0).logprob() - position.top(1).logprob();
}

void CheckSamePositions(const std::vector<v1::PositionLogprobs>& got,
                        const std::vector<v1::PositionLogprobs>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("position " << i);
    CHECK(got[i].SerializeAsString() == expected[i].SerializeAsString());
  }
}

}  // namespace

void CheckSameBits(const Answers& got, const Answers& expected) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [key, choice] : expected) {
    const ChoiceEvents& other = got.at(key);
    INFO("submission " << key.first << " choice " << key.second << ": " << other.error);
    CHECK(other.finish == choice.finish);
    CHECK(other.tokens == choice.tokens);
    CheckSamePositions(other.token_logprobs, choice.token_logprobs);
    CheckSamePositions(other.prompt_logprobs, choice.prompt_logprobs);
  }
}

int64_t CheckWithin(double tolerance, const Answers& got, const Answers& expected) {
  REQUIRE(got.size() == expected.size());
  int64_t compared = 0;
  for (const auto& [key, choice] : expected) {
    const ChoiceEvents& other = got.at(key);
    INFO("submission " << key.first << " choice " << key.second << ": " << other.error);
    CHECK(other.prompt_logprobs.size() == choice.prompt_logprobs.size());
    CHECK(PromptDifference(other, choice) <= tolerance);
    bool tied = false;
    for (size_t i = 0; i < choice.tokens.size() && !tied; ++i) {
      INFO("token " << i);
      REQUIRE(i < other.tokens.size());
      const v1::PositionLogprobs& position = choice.token_logprobs[i];
      CHECK(Difference(other.token_logprobs[i], position) <= tolerance);
      tied = Greedy(position) && Margin(position) < tolerance * Span(position);
      if (tied) continue;
      REQUIRE(other.tokens[i] == choice.tokens[i]);
      ++compared;
    }
    if (tied) continue;
    CHECK(other.tokens.size() == choice.tokens.size());
    CHECK(other.finish == choice.finish);
  }
  return compared;
}

double PromptDifference(const ChoiceEvents& got, const ChoiceEvents& expected) {
  double largest = 0;
  const size_t positions = std::min(got.prompt_logprobs.size(), expected.prompt_logprobs.size());
  for (size_t i = 0; i < positions; ++i) {
    largest = std::max(largest, Difference(got.prompt_logprobs[i], expected.prompt_logprobs[i]));
  }
  return largest;
}

}  // namespace tessera::worker
