// Devices that compute nothing, in time that the test moves.

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/links/link.h"
#include "kernels/ops.h"
#include "worker/emulation/emulated_device.h"
#include "worker/emulation/emulated_stage.h"
#include "worker/emulation/rehearsed_plan.h"
#include "worker/emulation/seeded_token.h"

namespace tessera::worker {
namespace {

constexpr StepLimits kLimits = {
    .max_tokens = 8, .max_sequences = 4, .max_logit_rows = 4, .max_blocks_per_sequence = 4};
constexpr int64_t kVocabulary = 100;

// Each sleep ends `late` after it should.
class TestClock final : public EmulatedClock {
 public:
  double NowSeconds() override { return now; }
  void SleepUntil(double seconds) override {
    if (seconds > now) now = seconds + late;
  }

  double now = 100;
  double late = 0;
};

// A second for each row that decodes, ten for each of a prompt, in each of two stages; a hop of 3
// s.
class PlainCosts final : public scheduler::CostTable {
 public:
  int stages() const override { return 2; }
  bool linear_in_context() const override { return true; }
  void Step(const scheduler::StepWork& work, std::span<scheduler::StageTime> times) const override {
    for (scheduler::StageTime& time : times)
      time = {work.decode_rows + 10 * work.prefill_tokens, 3};
  }
};

// One sequence that decodes with a context of 6, and three rows of a prompt.
class MixedStep {
 public:
  MixedStep() {
    const std::vector<int32_t> ids = {1, 2, 3, 4}, positions = {5, 0, 1, 2}, lengths = {6, 3, 3, 3},
                               slots = {5, 8, 9, 10}, starts = {0, 1, 4}, contexts = {6, 3},
                               widths = {2, 1}, tables = {0, 1, 2}, logits = {0, 3};
    REQUIRE(arrays
                .Assign({.token_ids = ids,
                         .positions = positions,
                         .rope_lengths = lengths,
                         .slots = slots,
                         .query_starts = starts,
                         .context_lengths = contexts,
                         .table_widths = widths,
                         .tables = tables,
                         .logit_rows = logits},
                        /*kv_blocks=*/4, /*block_tokens=*/4)
                .message() == "");
    params.set_seed(7);
    for (SampleRequest& sample : samples) sample.params = &params;
    samples[0].position = 6;
    samples[1].position = 3;
  }

  StepWork work() const { return {.arrays = &arrays, .samples = samples}; }

  v1::SamplingParams params;
  StepArrays arrays{kLimits};
  std::vector<SampleRequest> samples{2};
};

class NotingSender final : public KvSender {
 public:
  explicit NotingSender(TestClock* clock) : clock_(clock) {}
  void Begin(std::span<const KvPush> pushes, const StepArrays&) override { begun = pushes.size(); }
  void OnLayerWritten(int64_t index) override {
    CHECK(index == static_cast<int64_t>(layers.size()));
    layers.push_back(clock_->now);
  }

  size_t begun = 0;
  std::vector<double> layers;  // when each was written

 private:
  TestClock* const clock_;
};

EmulatedStageOptions Emulated(TestClock* clock, Lateness* lateness = nullptr) {
  EmulatedStageOptions options;
  options.cost = std::make_shared<const StepCost>(std::make_shared<PlainCosts>(), nullptr);
  options.layers = 4;
  options.vocabulary = kVocabulary;
  options.clock = clock;
  options.lateness = lateness;
  return options;
}

}  // namespace

TEST_CASE("a step is to the cost model what its rows are") {
  const MixedStep step;
  const scheduler::StepWork work = WorkOf(step.arrays);
  CHECK(work.decode_rows == 1);
  CHECK(work.decode_context_tokens == 5);
  CHECK(work.prefill_tokens == 3);
  CHECK(work.prefill_cached_tokens == 0);
  CHECK(work.prefill_attention_pairs == 4.5);
  CHECK(work.sampled_rows == 2);
}

TEST_CASE("a step takes the time of the model, at the speed that is asked for") {
  TestClock clock;
  Lateness lateness;
  std::atomic<int64_t> busy = 0;
  EmulatedStageOptions options = Emulated(&clock, &lateness);
  options.speed = 2;
  clock.late = 0.5;
  EmulatedStage stage(options, {.limits = kLimits, .samples = true, .busy_nanoseconds = &busy}, {});
  const MixedStep step;
  StepOutcome outcome;
  REQUIRE(stage.Run(step.work(), &outcome).ok());
  // 31 s of the model in 15.5 s, half a second late; then the hop back, late as well.
  CHECK(clock.now == Approx(100 + 15.5 + 0.5 + 1.5 + 0.5));
  CHECK(busy == 15'500'000'000);
  CHECK(lateness.Json().find("\"steps\": 1, \"model_seconds\": 15.5") != std::string::npos);
}

TEST_CASE("tokens depend on seed, choice and position alone") {
  TestClock clock;
  EmulatedStage stage(Emulated(&clock), {.limits = kLimits, .samples = true}, {});
  MixedStep step;
  StepOutcome first, again;
  REQUIRE(stage.Run(step.work(), &first).ok());
  clock.now = 500;
  REQUIRE(stage.Run(step.work(), &again).ok());
  REQUIRE(first.samples.size() == 2);
  CHECK(first.samples[0].token_id == again.samples[0].token_id);
  CHECK(first.samples[1].token_id == again.samples[1].token_id);
  std::set<int32_t> by_position, by_seed, by_choice;
  for (int i = 0; i < 50; ++i) {
    SampleRequest request = step.samples[0];
    request.position = i;
    by_position.insert(SeededToken(request, kVocabulary));
    request = step.samples[0];
    request.choice = i;
    by_choice.insert(SeededToken(request, kVocabulary));
    step.params.set_seed(static_cast<uint64_t>(i));
    by_seed.insert(SeededToken(step.samples[0], kVocabulary));
  }
  for (const std::set<int32_t>& drawn : {by_position, by_seed, by_choice}) {
    CHECK(drawn.size() > 25);
    CHECK(*drawn.begin() >= 0);
    CHECK(*drawn.rbegin() < kVocabulary);
  }
}

TEST_CASE("no token is drawn that the request forbids") {
  MixedStep step;
  SampleRequest request = step.samples[0];
  const std::vector<int32_t> mask = {0, 1 << 5};  // 37 alone
  request.mask = mask;
  CHECK(SeededToken(request, kVocabulary) == 37);
  const std::vector<int32_t> banned = {37};
  request.banned = banned;
  CHECK(SeededToken(request, kVocabulary) == kernels::kNothingToPick);
}

TEST_CASE("keys and values of a prompt are written layer by layer while the step runs") {
  TestClock clock;
  NotingSender sender(&clock);
  EmulatedStage stage(Emulated(&clock), {.limits = kLimits, .kv_sender = &sender}, {});
  const MixedStep step;
  const std::vector<KvPush> pushes(1);
  StepWork work = step.work();
  work.pushes = pushes;
  StepOutcome outcome;
  REQUIRE(stage.Run(work, &outcome).ok());
  CHECK(sender.begun == 1);
  CHECK(sender.layers == std::vector<double>{107.75, 115.5, 123.25, 131});
}

TEST_CASE("rows reach the next stage behind the link's time, and other ranks wait for nobody") {
  TestClock clock;
  auto pair = kernels::CreateLinkPair("the second stage", "the first stage");
  REQUIRE(pair.ok());
  EmulatedStage first(Emulated(&clock), {.limits = kLimits, .first = true},
                      {.next = pair->first.get()});
  EmulatedStageOptions behind = Emulated(&clock);
  behind.stage = 1;
  EmulatedStage second(behind, {.limits = kLimits, .samples = true},
                       {.previous = pair->second.get()});
  const MixedStep step;
  StepOutcome outcome;
  REQUIRE(first.Run(step.work(), &outcome).ok());
  CHECK(clock.now == 131);  // its own time; the link's passes beside the next step
  REQUIRE(second.Run(step.work(), &outcome).ok());
  CHECK(clock.now == 134 + 31 + 3);
  CHECK(outcome.samples.size() == 2);

  EmulatedStageOptions other = Emulated(&clock);
  other.is_first = false;
  EmulatedStage rank(other, {.limits = kLimits}, {});
  REQUIRE(rank.Run(step.work(), &outcome).ok());
  CHECK(clock.now == 168);
}

TEST_CASE("an emulated device counts its memory and takes none") {
  const auto device = CreateEmulatedDevice("H100", int64_t{80} << 30);
  REQUIRE(device.ok());
  auto pool = (*device)->Allocate(int64_t{60} << 30);
  REQUIRE(pool.ok());
  pool->data()[int64_t{59} << 30] = std::byte{1};
  CHECK(pool->data()[int64_t{58} << 30] == std::byte{0});
  CHECK(absl::IsResourceExhausted((*device)->Allocate(int64_t{21} << 30).status()));
  *pool = kernels::Buffer();
  CHECK((*device)->Allocate(int64_t{80} << 30).ok());
}

TEST_CASE("kinds are those of the catalogue") {
  CHECK(*CatalogueMemory("L4") > int64_t{20} << 30);
  const absl::Status unknown = CatalogueMemory("Abacus").status();
  CHECK(absl::IsNotFound(unknown));
  CHECK(unknown.message().find("emulated:Abacus: there is no such kind") != std::string::npos);
  v1::ConfigureRequest request;
  request.set_replica("r0");
  request.add_peers();
  request.add_peers();
  CHECK(RehearsedPlan::OfOneDevice("L4", request).status().message().find("tessera rehearse") !=
        std::string::npos);
}

}  // namespace tessera::worker
