#include "worker/step/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/worker/engine/engine_harness.h"

namespace tessera::worker {
namespace {

constexpr int64_t kVocabulary = 300;

struct Bench {
  explicit Bench(int64_t max_rows = 64) {
    auto created = Sampler::Create({max_rows, kVocabulary, 1000}, TestDevice());
    REQUIRE(created.ok());
    sampler = *std::move(created);
    stream = *TestDevice().CreateStream();
  }

  // Row r of the logits, the same in every test.
  static float Logit(int64_t row, int64_t id) {
    return std::sin(static_cast<float>(id * 37 + row * 101)) * 3.0f;
  }

  void Run(const std::vector<SampleRequest>& sampled, const std::vector<ScoreRequest>& scored,
           int64_t first_row = 0) {
    const int64_t rows = static_cast<int64_t>(sampled.size() + scored.size());
    memory.resize(rows * kVocabulary);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t id = 0; id < kVocabulary; ++id) {
        memory[row * kVocabulary + id] = Logit(first_row + row, id);
      }
    }
    const kernels::TensorView logits(memory.data(), kernels::DType::kF32, {rows, kVocabulary});
    REQUIRE(sampler->Run(logits, sampled, scored, *stream, &samples, &scores).ok());
    REQUIRE(samples.size() == sampled.size());
    REQUIRE(scores.size() == scored.size());
  }

  static int32_t Best(int64_t row, const std::vector<int32_t>& banned = {}) {
    int32_t best = -1;
    for (int32_t id = 0; id < kVocabulary; ++id) {
      if (std::count(banned.begin(), banned.end(), id) > 0) continue;
      if (best < 0 || Logit(row, id) > Logit(row, best)) best = id;
    }
    return best;
  }

  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<kernels::Stream> stream;
  std::vector<float> memory;
  std::vector<SampleResult> samples;
  std::vector<v1::PositionLogprobs> scores;
};

v1::SamplingParams Greedy() {
  v1::SamplingParams params;
  params.set_top_p(1);
  params.set_repetition_penalty(1);
  return params;
}

SampleRequest Request(const v1::SamplingParams& params, int32_t top_logprobs = -1) {
  SampleRequest request;
  request.params = &params;
  request.top_logprobs = top_logprobs;
  return request;
}

TEST_CASE("greedy rows get their largest logit, more rows than a group included") {
  Bench bench(8);
  const v1::SamplingParams greedy = Greedy();
  bench.Run(std::vector<SampleRequest>(21, Request(greedy)), {});
  for (int64_t row = 0; row < 21; ++row) CHECK(bench.samples[row].token_id == Bench::Best(row));
}

TEST_CASE("a mask lets its own row draw only what it names, with logprobs of all ids") {
  Bench bench(4);
  const v1::SamplingParams greedy = Greedy();
  std::vector<int32_t> mask((kVocabulary + 31) / 32);
  mask[9] = 1 << 7;  // 295
  std::vector<SampleRequest> requests(6, Request(greedy));
  requests[1].mask = mask;
  requests[3].mask = std::span(mask).first(1);  // what is missing is 0: nothing is left
  requests[5] = Request(greedy, 1);
  requests[5].mask = mask;
  bench.Run(requests, {});
  CHECK(bench.samples[0].token_id == Bench::Best(0));
  CHECK(bench.samples[1].token_id == 295);
  CHECK(bench.samples[2].token_id == Bench::Best(2));
  CHECK(bench.samples[3].token_id == kernels::kNothingToPick);
  CHECK(bench.samples[4].token_id == Bench::Best(4));
  CHECK(bench.samples[5].token_id == 295);
  CHECK(bench.samples[5].logprobs.top(0).token_id() == Bench::Best(5));
}

TEST_CASE("bans, biases and penalties act on their own row only") {
  Bench bench;
  const v1::SamplingParams greedy = Greedy();
  v1::SamplingParams biased = Greedy();
  (*biased.mutable_logit_bias())[17] = 100;
  v1::SamplingParams penalised = Greedy();
  penalised.set_presence_penalty(2);
  penalised.set_frequency_penalty(2);
  const std::vector<int32_t> banned = {Bench::Best(1)};
  TokenHistory history;
  for (int i = 0; i < 3; ++i) history.AddOutput(Bench::Best(3));
  history.AddPrompt(5);
  CHECK(history.ids() == std::vector<int32_t>{Bench::Best(3), 5});
  CHECK(history.counts() == std::vector<int32_t>{3, 0});

  std::vector<SampleRequest> requests = {Request(greedy), Request(greedy), Request(biased),
                                         Request(penalised), Request(greedy)};
  requests[1].banned = banned;
  requests[3].history_ids = history.ids();
  requests[3].history_counts = history.counts();
  bench.Run(requests, {});
  CHECK(bench.samples[0].token_id == Bench::Best(0));
  CHECK(bench.samples[1].token_id == Bench::Best(1, banned));
  CHECK(bench.samples[2].token_id == 17);
  CHECK(bench.samples[3].token_id == Bench::Best(3, {Bench::Best(3)}));
  CHECK(bench.samples[4].token_id == Bench::Best(4));
}

TEST_CASE("logprobs are of the raw logits, whatever bias chose the token, in groups of any size") {
  Bench bench;
  const v1::SamplingParams greedy = Greedy();
  v1::SamplingParams biased = Greedy();
  (*biased.mutable_logit_bias())[17] = 100;
  std::vector<SampleRequest> requests = {Request(greedy)};
  for (int i = 0; i < 20; ++i) requests.push_back(Request(biased, i % 5));
  const std::vector<int32_t> ids = {2, 17};
  requests[18].logprob_ids = ids;
  std::vector<ScoreRequest> scored;
  for (int i = 0; i < 35; ++i) scored.push_back({i, i % 3});
  bench.Run(requests, scored);
  const auto check = [](const v1::PositionLogprobs& got, int64_t row, int32_t id, int top) {
    double sum = 0;
    int rank = 1;
    for (int64_t other = 0; other < kVocabulary; ++other) {
      sum += std::exp(static_cast<double>(Bench::Logit(row, other)));
      rank += Bench::Logit(row, other) > Bench::Logit(row, id) ? 1 : 0;
    }
    REQUIRE(got.chosen().token_id() == id);
    REQUIRE(got.chosen().logprob() == Approx(Bench::Logit(row, id) - std::log(sum)).margin(1e-4));
    REQUIRE(got.chosen().rank() == rank);
    REQUIRE(got.top_size() == top);
    if (top > 0) REQUIRE(got.top(0).token_id() == Bench::Best(row));
  };
  CHECK(bench.samples[0].token_id == Bench::Best(0));
  for (int i = 0; i < 20; ++i) check(bench.samples[i + 1].logprobs, i + 1, 17, i % 5);
  for (int i = 0; i < 35; ++i) check(bench.scores[i], 21 + i, i, i % 3);
  CHECK(bench.samples[17].logprobs.asked_size() == 0);
  const v1::PositionLogprobs& asked = bench.samples[18].logprobs;
  REQUIRE(asked.asked_size() == 2);
  CHECK(asked.asked(0).token_id() == 2);
  CHECK(asked.asked(0).logprob() - asked.asked(1).logprob() ==
        Approx(Bench::Logit(18, 2) - Bench::Logit(18, 17)).margin(1e-4));
  CHECK(asked.asked(1).logprob() == asked.chosen().logprob());
}

TEST_CASE("more alternatives than the vocabulary has are all of it") {
  Bench bench;
  auto small = Sampler::Create({4, 7, 10}, TestDevice());
  REQUIRE(small.ok());
  std::vector<float> logits = {1, 2, 3, 4, 5, 6, 7};
  const v1::SamplingParams greedy = Greedy();
  const std::vector<SampleRequest> requests = {Request(greedy, kMaxTopLogprobs)};
  REQUIRE((*small)
              ->Run(kernels::TensorView(logits.data(), kernels::DType::kF32, {1, 7}), requests, {},
                    *bench.stream, &bench.samples, &bench.scores)
              .ok());
  CHECK(bench.samples[0].token_id == 6);
  CHECK(bench.samples[0].logprobs.top_size() == 7);
}

TEST_CASE("a row's draw depends on seed, choice and position, not on its neighbours") {
  Bench bench;
  v1::SamplingParams params = Greedy();
  params.set_temperature(1.5f);
  params.set_seed(123456789012345ull);
  std::vector<SampleRequest> requests(30, Request(params));
  for (int i = 0; i < 30; ++i) {
    requests[i].position = i;
    requests[i].choice = i % 3;
  }
  bench.Run(requests, {});
  const std::vector<SampleResult> together = bench.samples;
  std::vector<int32_t> distinct;
  for (int i = 0; i < 30; ++i) {
    bench.Run({requests[i]}, {}, i);
    CHECK(bench.samples[0].token_id == together[i].token_id);
    distinct.push_back(together[i].token_id);
  }
  std::sort(distinct.begin(), distinct.end());
  CHECK(std::unique(distinct.begin(), distinct.end()) - distinct.begin() > 15);
}

}  // namespace
}  // namespace tessera::worker
