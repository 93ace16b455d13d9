// Steps as messages: what a leader writes is what a member reads, and nothing else is taken.
#include "worker/step/step_wire.h"

#include <catch2/catch.hpp>

#include "kvcache/block_pool.h"

namespace tessera::worker {
namespace {

constexpr int64_t kBlocks = 20, kWindowBlocks = 10, kBlockTokens = 4;

StepLimits Limits() {
  StepLimits limits;
  limits.max_tokens = 32;
  limits.max_sequences = 4;
  limits.max_logit_rows = 4;
  limits.max_blocks_per_sequence = 8;
  limits.windows_apart = true;
  return limits;
}

// A step of two sequences, one with a row and one with a prompt of nine tokens.
struct TestStep {
  explicit TestStep(bool windows = false) {
    for (kvcache::BlockTable* table : {&first, &second, &first_window, &second_window})
      REQUIRE(table->Grow(12));
    first_window.FreeBefore(5);
    arrays.Begin();
    const std::vector<int32_t> tokens = {5, 6, 7, 8, 9, 10, 11, 12, 13};
    arrays.AddSequence({.tokens = tokens,
                        .prompt_tokens = 4,
                        .first = 6,
                        .rows = 1,
                        .blocks = &first,
                        .window_blocks = windows ? &first_window : nullptr,
                        .seat = 3,
                        .seat_owner = uint64_t{1} << 40});
    arrays.AddSequence({tokens, 9, 0, 9, &second, windows ? &second_window : nullptr});
    arrays.AddLogitRow(0);
    arrays.AddLogitRow(9);
    arrays.AddLogitRow(4);
    arrays.Seal();
    params.set_temperature(0.5f);
    params.set_seed(77);
    samples[0].params = samples[1].params = &params;
    samples[0].position = 7;
    samples[0].choice = 3;
    samples[0].history_ids = ids;
    samples[0].history_counts = counts;
    samples[1].banned = ids;
    samples[1].mask = mask;
    samples[1].top_logprobs = 2;
    samples[1].final_row = true;
    samples[1].logprob_ids = ids;
  }
  StepWork work() const { return {&arrays, samples, scores, {}, restores, saves}; }

  kvcache::BlockPool pool{kBlocks, kBlockTokens};
  kvcache::BlockTable first{&pool}, second{&pool};
  kvcache::BlockPool window_pool{kWindowBlocks, kBlockTokens};
  kvcache::BlockTable first_window{&window_pool}, second_window{&window_pool};
  StepArrays arrays{Limits()};
  v1::SamplingParams params;
  std::vector<int32_t> ids = {4, 9}, counts = {0, 2}, mask = {-1, 1 << 30};
  std::vector<SampleRequest> samples = std::vector<SampleRequest>(2);
  std::vector<ScoreRequest> scores = {{6, 1, 1}};
  std::vector<StateCopy> restores = {{1, StateCopy::Exchange(2), 0, 0}};
  std::vector<StateCopy> saves = {{1, 7, uint64_t{1} << 41, 9}};
};

std::vector<int32_t> Values(std::span<const int32_t> span) { return {span.begin(), span.end()}; }

TEST_CASE("a step that is written and read again is the same") {
  const TestStep step;
  v1::StepDescriptor message;
  WriteDescriptor(step.work(), &message);
  ReceivedStep received(Limits(), kBlocks, kBlockTokens);
  REQUIRE(received.descriptor()->ParseFromString(message.SerializeAsString()));
  REQUIRE(received.Check().ok());
  const StepWork work = received.work();
  const StepArrays& a = *work.arrays;
  CHECK(Values(a.token_ids()) == Values(step.arrays.token_ids()));
  CHECK(Values(a.positions()) == Values(step.arrays.positions()));
  CHECK(Values(a.rope_lengths()) == Values(step.arrays.rope_lengths()));
  CHECK(Values(a.slots()) == Values(step.arrays.slots()));
  CHECK(Values(a.query_starts()) == Values(step.arrays.query_starts()));
  CHECK(Values(a.context_lengths()) == Values(step.arrays.context_lengths()));
  CHECK(Values(a.padded_tables()) == Values(step.arrays.padded_tables()));
  CHECK(Values(a.logit_rows()) == std::vector<int32_t>{0, 9, 4});
  CHECK(Values(a.seats()) == std::vector<int32_t>{3, -1});
  CHECK(a.seat_owners()[0] == uint64_t{1} << 40);
  REQUIRE(work.samples.size() == 2);
  CHECK(work.samples[0].params->seed() == 77);
  CHECK(work.samples[0].choice == 3);
  CHECK(work.samples[0].position == 7);
  CHECK(Values(work.samples[0].history_ids) == step.ids);
  CHECK(Values(work.samples[0].history_counts) == step.counts);
  CHECK(Values(work.samples[1].banned) == step.ids);
  CHECK(Values(work.samples[1].mask) == step.mask);
  CHECK(work.samples[0].mask.empty());
  CHECK(work.samples[1].top_logprobs == 2);
  CHECK_FALSE(work.samples[0].final_row);
  CHECK(work.samples[1].final_row);
  CHECK(work.samples[0].logprob_ids.empty());
  CHECK(Values(work.samples[1].logprob_ids) == step.ids);
  REQUIRE(work.scores.size() == 1);
  CHECK(work.scores[0].token_id == 6);
  CHECK(work.scores[0].sum == 1);
  REQUIRE(work.restores.size() == 1);
  CHECK(work.restores[0].sequence == 1);
  CHECK(work.restores[0].of_exchange());
  CHECK(work.restores[0].exchange() == 2);
  REQUIRE(work.saves.size() == 1);
  CHECK(work.saves[0].snapshot == 7);
  CHECK(work.saves[0].name == uint64_t{1} << 41);
  CHECK(work.saves[0].position == 9);
}

TEST_CASE("a row whose token the step before draws goes as what stands for it") {
  const TestStep step;
  StepArrays arrays(Limits());
  arrays.Begin();
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  for (const int32_t draw : {0, 1}) {
    arrays.AddSequence({.tokens = tokens,
                        .prompt_tokens = 4,
                        .first = 4,
                        .rows = 1,
                        .blocks = draw == 0 ? &step.first : &step.second,
                        .fed_draw = draw});
  }
  arrays.Seal();
  v1::StepDescriptor message;
  WriteDescriptor({.arrays = &arrays, .samples = {}, .scores = {}}, &message);
  ReceivedStep received(Limits(), kBlocks, kBlockTokens);
  REQUIRE(received.descriptor()->ParseFromString(message.SerializeAsString()));
  REQUIRE(received.Check().ok());
  const StepWork work = received.work();
  CHECK(work.arrays->fed_rows() == 2);
  CHECK(Values(work.arrays->token_ids()) ==
        std::vector<int32_t>{kernels::kFedToken, kernels::kFedToken - 1});
}

TEST_CASE("blocks of layers with a window go with the step, freed ones too, or it is refused") {
  const KvBlocks kv(kBlocks, kWindowBlocks);
  const TestStep step(/*windows=*/true);
  v1::StepDescriptor message;
  WriteDescriptor(step.work(), &message);
  CHECK(message.window_block_tables(0) == -1);
  ReceivedStep received(Limits(), kv, kBlockTokens);
  REQUIRE(received.descriptor()->ParseFromString(message.SerializeAsString()));
  REQUIRE(received.Check().ok());
  const StepWork work = received.work();
  const StepArrays& arrays = *work.arrays;
  CHECK(arrays.windows_apart());
  CHECK(Values(arrays.window_slots()) == Values(step.arrays.window_slots()));
  CHECK(Values(arrays.padded_window_tables()) == Values(step.arrays.padded_window_tables()));

  const auto refusal = [&](KvBlocks pool, const std::function<void(v1::StepDescriptor*)>& change) {
    ReceivedStep wrong(Limits(), pool, kBlockTokens);
    *wrong.descriptor() = message;
    change(wrong.descriptor());
    const absl::Status status = wrong.Check();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  using Message = v1::StepDescriptor;
  CHECK_THAT(refusal(kv, [](Message* m) { m->set_window_slots(3, kWindowBlocks * kBlockTokens); }),
             Catch::Contains("window_slots is 40"));
  CHECK_THAT(refusal(kv, [](Message* m) { m->set_window_block_tables(4, kWindowBlocks); }),
             Catch::Contains("window_block_tables is 10"));
  CHECK_THAT(refusal(kv, [](Message* m) { m->mutable_window_block_tables()->RemoveLast(); }),
             Catch::Contains("window_block_tables is 5"));
  CHECK_THAT(refusal(kv, [](Message* m) { m->clear_window_slots(); }),
             Catch::Contains("window_slots is 0"));
  CHECK_THAT(refusal(kBlocks, [](Message*) {}), Catch::Contains("window_slots is 10"));
}

TEST_CASE("a descriptor that is no step of these limits is refused by its field") {
  const TestStep step;
  v1::StepDescriptor good;
  WriteDescriptor(step.work(), &good);
  const auto refusal = [&](const std::function<void(v1::StepDescriptor*)>& change) {
    ReceivedStep received(Limits(), kBlocks, kBlockTokens);
    *received.descriptor() = good;
    change(received.descriptor());
    const absl::Status status = received.Check();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  using Message = v1::StepDescriptor;
  CHECK_THAT(refusal([](Message* m) { m->add_positions(1); }), Catch::Contains("positions"));
  CHECK_THAT(refusal([](Message* m) { m->set_slots(0, kBlocks * kBlockTokens); }),
             Catch::Contains("slots"));
  CHECK_THAT(refusal([](Message* m) { m->set_block_tables(1, kBlocks); }),
             Catch::Contains("block_tables"));
  CHECK_THAT(refusal([](Message* m) { m->set_block_table_widths(0, 9); }),
             Catch::Contains("block_table_widths"));
  CHECK_THAT(refusal([](Message* m) { m->set_context_lengths(1, 13); }),
             Catch::Contains("context_lengths"));
  CHECK_THAT(refusal([](Message* m) { m->set_query_starts(1, 11); }),
             Catch::Contains("query_starts"));
  CHECK_THAT(refusal([](Message* m) { m->set_logit_rows(0, 10); }), Catch::Contains("logit_rows"));
  CHECK_THAT(refusal([](Message* m) { m->add_seats(1); }), Catch::Contains("seats is 3"));
  CHECK_THAT(refusal([](Message* m) { m->clear_seats(); }), Catch::Contains("seat_owners is 2"));
  CHECK_THAT(refusal([](Message* m) { m->add_scores(); }), Catch::Contains("scores"));
  CHECK_THAT(refusal([](Message* m) { m->mutable_scores(0)->set_sum(2); }),
             Catch::Contains("row sum 2"));
  CHECK_THAT(refusal([](Message* m) { m->mutable_samples(0)->add_history_ids(1); }),
             Catch::Contains("history"));
  CHECK_THAT(refusal([](Message* m) {
               for (int i = 0; i < 40; ++i) m->add_token_ids(1);
             }),
             Catch::Contains("token_ids"));
}

TEST_CASE("a result answers every row, or says what failed") {
  StepOutcome outcome;
  outcome.samples.resize(2);
  outcome.samples[0].token_id = 5;
  outcome.samples[1].token_id = -1;
  outcome.samples[0].logprobs.mutable_chosen()->set_logprob(-0.5f);
  outcome.samples[0].final_row = {0.5f, -2};
  outcome.scores.resize(1);
  outcome.row_sums = {{1.5f, 2}};
  v1::StepResult result;
  WriteResult(9, outcome, &result);
  StepOutcome read;
  REQUIRE(ReadResult(result, 2, 1, &read).ok());
  CHECK(read.samples[0].token_id == 5);
  CHECK(read.samples[0].logprobs.chosen().logprob() == -0.5f);
  CHECK(read.samples[0].final_row == std::vector<float>{0.5f, -2});
  CHECK(read.samples[1].token_id == -1);
  CHECK(read.samples[1].final_row.empty());
  CHECK(read.row_sums == std::vector<std::vector<float>>{{1.5f, 2}});
  CHECK(absl::IsInvalidArgument(ReadResult(result, 3, 1, &read)));
  CHECK(absl::IsInvalidArgument(ReadResult(result, 2, 0, &read)));
  result.set_error_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  result.set_error("no memory");
  CHECK(absl::IsResourceExhausted(ReadResult(result, 2, 1, &read)));
}

}  // namespace
}  // namespace tessera::worker
