// The engine over real checkpoints of every architecture, on the CPU and on the emulated GPU:
// batching, chunks, preemption and the prefix cache leave tokens as transformers has them, and in
// float32 every logprob the same to the last bit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "kernels/cuda/emulation/runtime.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/kernels/device_under_test.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/engine/scripted_drafts.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/engine/engine_core.h"
#include "worker/engine/engine_setup.h"

namespace tessera::worker {
namespace {

// What differs between two runs of the same work.
struct Circumstances {
  int64_t max_batched_tokens = 256;
  int64_t total_blocks = 200;
  bool prefix_cache = true;
  bool crowded = false;    // other prompts beside the golden ones
  bool twice = false;      // everything again, behind the first
  int64_t snapshots = 64;  // where layers keep states
  // Layers with a window keep blocks of their own, enough for so many sequences; 0: they do not.
  int64_t windows = 0;
  DraftSourceFactory drafts = nullptr;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

constexpr uint64_t kChoice = 100000;

struct Outcome {
  // Golden prompt i as id i, its repetition as 100 + i; choice c as that + c * kChoice.
  std::map<uint64_t, Answer> answers;
  int64_t preemptions = 0;
  int64_t hit_tokens = 0;
  int64_t accepted_drafts = 0;  // at the first place
};

class RealEngine {
 public:
  RealEngine(kernels::Device& device, const std::string& name, const Circumstances& circumstances) {
    const auto shape = ReadModelFolder(GoldenFolder(name).string());
    REQUIRE(shape.ok());
    v1::ConfigureRequest request;
    request.set_model_folder(GoldenFolder(name).string());
    *request.mutable_model() = *shape;
    *request.mutable_share() = WholeShare(*shape);
    request.set_weight_dtype(v1::DATA_TYPE_FLOAT32);
    request.set_block_tokens(8);
    request.set_max_sequences(8);
    request.set_max_batched_tokens(static_cast<int32_t>(circumstances.max_batched_tokens));
    request.set_max_model_len_tokens(120);
    request.set_prefix_cache(circumstances.prefix_cache);
    auto options = ReadEngineOptions(request);
    REQUIRE(options.ok());
    options->limits.total_blocks = circumstances.total_blocks;
    if (circumstances.drafts) {
      options->limits.max_logit_rows = 40;
      options->draft_source = circumstances.drafts;
      options->all_drafts = true;
    }
    KvBlocks blocks = circumstances.total_blocks;
    if (KeepsStates(*shape)) {
      blocks.seats = options->seats = options->limits.max_sequences;
      options->snapshots = circumstances.snapshots;
    }
    if (circumstances.windows > 0) {
      const KvLimits limits = {8, LongestWindow(*shape), 120, 8, circumstances.max_batched_tokens};
      blocks.window = WindowBlocksFor(circumstances.windows, limits);
      options->window = {limits.window_tokens, blocks.window};
    }
    auto model_options = ReadModelOptions(request);
    REQUIRE(model_options.ok());
    model_options->limits = EngineCore::LimitsOf(*options);
    auto model = Model::Load(*model_options, device, [](int64_t, int64_t) {});
    REQUIRE(model.ok());
    model_ = *std::move(model);
    const KvBlockBytes bytes =
        BlockBytesOf(*shape, request.share(), /*element_bytes=*/4, 8, circumstances.windows > 0);
    kv_ = *device.Allocate(BytesOf(blocks, bytes));
    std::memset(kv_.data(), 0xff, kv_.size_bytes());  // NaN: what was there before must not matter
    REQUIRE(model_->AttachKv(kv_.data(), blocks, 8).ok());
    core_ = std::make_unique<EngineCore>(
        *options, *LocalExecutor::Create(model_options->limits, SamplingOf(*options), model_.get(),
                                         &device, nullptr, nullptr, options->snapshots));
  }

  void Submit(uint64_t id, const std::vector<int32_t>& prompt, int32_t max_tokens,
              int32_t choices = 1) {
    v1::Submit submit = MakeSubmit(id, prompt, max_tokens);
    submit.set_choice_count(choices);
    submit.set_ignore_eos(true);
    submit.set_top_logprobs(0);
    core_->Submit(std::move(submit), 0, &events_);
  }

  void RunAll(Outcome* outcome) {
    for (int step = 0; core_->Busy(); ++step) {
      REQUIRE(step < 10000);
      core_->Step([] { return 0.0; }, &events_);
    }
    for (const v1::TokenEvent& event : events_) {
      REQUIRE(event.finish() != v1::FINISH_REASON_ERROR);
      Answer& answer = outcome->answers[event.submission_id() + kChoice * event.choice()];
      answer.tokens.push_back(event.token_id());
      answer.logprobs.push_back(event.logprobs().chosen().logprob());
    }
    events_.clear();
    outcome->preemptions = core_->load().preemptions();
    outcome->hit_tokens = core_->load().prefix_hits_tokens();
    if (core_->load().accepted_draft_tokens_size() > 0) {
      outcome->accepted_drafts = core_->load().accepted_draft_tokens(0);
    }
  }

 private:
  kernels::Buffer kv_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<EngineCore> core_;
  EngineCore::Events events_;
};

Outcome RunGolden(kernels::Device& device, const std::string& name,
                  const std::vector<GoldenRun>& runs, const Circumstances& circumstances) {
  RealEngine engine(device, name, circumstances);
  Outcome outcome;
  if (circumstances.crowded) {  // a short answer: others are expected to be so, and preempted
    engine.Submit(5000, Prompt(3, 7, 90), 1);
    engine.RunAll(&outcome);
  }
  for (int round = 0; round < (circumstances.twice ? 2 : 1); ++round) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (circumstances.crowded) {
        engine.Submit(1000 + 10 * round + i, Prompt(13 + 20 * i, round + i, 90), 30);
      }
      engine.Submit(100 * round + i, runs[i].prompt, static_cast<int32_t>(runs[i].tokens.size()));
    }
    engine.RunAll(&outcome);
  }
  return outcome;
}

// Fewer, of 8 tokens, than what is submitted at a time takes.
int64_t CrowdedBlocks(const std::vector<GoldenRun>& runs) {
  size_t tokens = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    tokens += 13 + 20 * i + 30 + runs[i].prompt.size() + runs[i].tokens.size();
  }
  return static_cast<int64_t>(tokens * 11 / 16 / 8);
}

void CheckSame(const Outcome& outcome, const Outcome& alone, const std::vector<GoldenRun>& runs,
               bool twice) {
  for (uint64_t round = 0; round < (twice ? 2 : 1); ++round) {
    for (uint64_t i = 0; i < runs.size(); ++i) {
      const Answer& answer = outcome.answers.at(100 * round + i);
      const Answer& expected = alone.answers.at(i);
      CHECK(answer.tokens == runs[i].tokens);
      REQUIRE(answer.logprobs.size() == expected.logprobs.size());
      CHECK(std::memcmp(answer.logprobs.data(), expected.logprobs.data(),
                        answer.logprobs.size() * sizeof(float)) == 0);
    }
  }
}

// Right ones and wrong ones, by turns.
DraftSourceFactory DraftsFor(const std::vector<GoldenRun>& runs) {
  KnownStreams streams;
  for (const GoldenRun& run : runs) {
    streams.push_back(run.prompt);
    streams.back().insert(streams.back().end(), run.tokens.begin(), run.tokens.end());
  }
  return ScriptedDraftsOf(std::move(streams), DraftScript::kSome, 90);
}

// In all circumstances.
void CheckGolden(kernels::Device& device, const std::string& name, int64_t windows = 0) {
  INFO(name << ", " << windows << " windows");
  std::vector<GoldenRun> runs = ReadGolden(name);
  if (std::all_of(runs.begin(), runs.end(),
                  [](const GoldenRun& run) { return run.long_tokens.size() == 32; })) {
    for (GoldenRun& run : runs) run.tokens = run.long_tokens;
  }
  const Outcome alone = RunGolden(device, name, runs, {});
  CheckSame(alone, alone, runs, false);

  Circumstances circumstances;
  circumstances.windows = windows;
  circumstances.crowded = true;
  circumstances.twice = true;
  circumstances.max_batched_tokens = 11;  // chunks that end anywhere
  circumstances.total_blocks = CrowdedBlocks(runs);
  const Outcome crowded = RunGolden(device, name, runs, circumstances);
  CheckSame(crowded, alone, runs, true);
  CHECK(crowded.preemptions > 0);
  if (windows > 0) {
    circumstances.windows = 1;
    CheckSame(RunGolden(device, name, runs, circumstances), alone, runs, true);
  }

  if (!KeepsStates(*ReadModelFolder(GoldenFolder(name).string()))) {
    circumstances.drafts = DraftsFor(runs);
    circumstances.max_batched_tokens = 64;
    const Outcome drafted = RunGolden(device, name, runs, circumstances);
    CheckSame(drafted, alone, runs, true);
    CHECK(drafted.accepted_drafts > 0);
  }

  circumstances = {};
  circumstances.windows = windows;
  circumstances.twice = true;
  const Outcome cached = RunGolden(device, name, runs, circumstances);
  CheckSame(cached, alone, runs, true);
  CHECK(cached.hit_tokens > 0);
  // Nothing of a prompt is shared where its state is not.
  circumstances.snapshots = 0;
  if (KeepsStates(*ReadModelFolder(GoldenFolder(name).string()))) {
    const Outcome without = RunGolden(device, name, runs, circumstances);
    CheckSame(without, alone, runs, true);
    CHECK(without.hit_tokens == 0);
  }
  circumstances.prefix_cache = false;
  const Outcome uncached = RunGolden(device, name, runs, circumstances);
  CheckSame(uncached, alone, runs, true);
  CHECK(uncached.hit_tokens == 0);
}

TEST_CASE(
    "every architecture gives transformers' tokens in any circumstances, bit for bit in f32") {
  for (const std::string& name : GoldenModels()) CheckGolden(TestDevice(), name);
}

TEST_CASE("so it does where layers with a window keep blocks of their own") {
  int models = 0;
  for (const std::string& name : GoldenModels()) {
    const auto shape = ReadModelFolder(GoldenFolder(name).string());
    REQUIRE(shape.ok());
    if (LongestWindow(*shape) == 0 || LongestWindow(*shape) > 60) continue;
    CheckGolden(TestDevice(), name, /*windows=*/8);
    ++models;
  }
  CHECK(models >= 4);  // Mistral, Qwen2, SmolLM3 and EXAONE 4 at least
}

TEST_CASE("choices of one prompt have states of their own, and seats for a part of them at once") {
  const std::vector<GoldenRun> runs = ReadGolden("qwen3_5");
  Outcome outcome;
  RealEngine engine(TestDevice(), "qwen3_5", {});
  engine.Submit(0, runs[0].prompt, static_cast<int32_t>(runs[0].tokens.size()), /*choices=*/11);
  engine.RunAll(&outcome);
  CHECK(outcome.answers.size() == 11);
  for (const auto& [id, answer] : outcome.answers) CHECK(answer.tokens == runs[0].tokens);
}

TEST_CASE("the emulated GPU gives them, too") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  kernels::cuda::emulated::Inject({.vary_schedules = true});
  const auto made = kernels::cuda::MakeCudaUnderTest(int64_t{256} << 20);
  REQUIRE(made.ok());
  // One of each kind, as the emulator is slow; model_golden_test has all.
  for (const char* name :
       {"llama", "mistral_window", "llama_gptq", "mixtral_awq_bf16", "qwen3_next"}) {
    CheckGolden(*made->device, name);
  }
  CheckGolden(*made->device, "qwen2_window", /*windows=*/8);
  CheckGolden(*made->device, "llama4", /*windows=*/8);
  CheckGolden(*made->device, "gemma4_per_layer", /*windows=*/8);
  kernels::cuda::emulated::Inject({});
#endif
}

}  // namespace
}  // namespace tessera::worker
