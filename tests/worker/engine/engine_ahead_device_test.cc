// Steps ahead on the emulated GPU: the tokens of every choice are those of steps one at a time,
// whatever is in them, and the next step is enqueued before the host has read this one's tokens.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "proto/model/model_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/engine/engine_core.h"
#include "worker/engine/engine_setup.h"

namespace tessera::worker {
namespace {

namespace emulated = kernels::cuda::emulated;

constexpr int64_t kBlocks = 9, kBlockTokens = 8;
constexpr uint64_t kStopped = 6, kEnded = 7, kCancelled = 8;

// Counts, and may keep the engine from running ahead.
class WatchedExecutor final : public StepExecutor {
 public:
  WatchedExecutor(std::unique_ptr<StepExecutor> inner, bool ahead)
      : inner_(std::move(inner)), ahead_(ahead) {}

  bool runs_ahead() const override { return ahead_ && inner_->runs_ahead(); }
  bool MayRunAhead() const override { return ahead_ && inner_->MayRunAhead(); }
  absl::Status Begin(const StepWork& work) override {
    begun_ahead += in_flight_ > 0 ? 1 : 0;
    fed_rows += work.arrays->fed_rows();
    ++in_flight_;
    return inner_->Begin(work);
  }
  absl::Status Take(StepOutcome* outcome) override {
    --in_flight_;
    return inner_->Take(outcome);
  }
  absl::Status Broken() override { return inner_->Broken(); }
  int64_t device_bytes() const override { return inner_->device_bytes(); }

  int64_t begun_ahead = 0, fed_rows = 0;

 private:
  const std::unique_ptr<StepExecutor> inner_;
  const bool ahead_;
  int64_t in_flight_ = 0;
};

class EmulatedEngine {
 public:
  EmulatedEngine(bool ahead, int32_t eos) {
    auto device = emulated::CreateCudaDevice({.memory_bytes = int64_t{256} << 20});
    REQUIRE(device.ok());
    device_ = *std::move(device);
    v1::ConfigureRequest request;
    const std::string folder = GoldenFolder("llama").string();
    request.set_model_folder(folder);
    *request.mutable_model() = ReadModelFolder(folder).value();
    *request.mutable_share() = WholeShare(request.model());
    request.set_weight_dtype(v1::DATA_TYPE_FLOAT32);
    request.set_block_tokens(kBlockTokens);
    request.set_max_sequences(8);
    request.set_max_batched_tokens(16);
    request.set_max_model_len_tokens(64);
    request.set_prefix_cache(true);
    if (eos >= 0) request.add_eos_token_ids(eos);
    auto options = ReadEngineOptions(request);
    REQUIRE(options.ok());
    options->limits.total_blocks = kBlocks;
    auto model_options = ReadModelOptions(request);
    REQUIRE(model_options.ok());
    model_options->limits = EngineCore::LimitsOf(*options);
    model_ = Model::Load(*model_options, *device_, [](int64_t, int64_t) {}).value();
    kv_ = device_->Allocate(kBlocks * model_->KvBlockBytes(kBlockTokens)).value();
    REQUIRE(model_->AttachKv(kv_.data(), kBlocks, kBlockTokens).ok());
    auto executor = std::make_unique<WatchedExecutor>(
        LocalExecutor::Create(model_options->limits, SamplingOf(*options), model_.get(),
                              device_.get())
            .value(),
        ahead);
    watched = executor.get();
    core = std::make_unique<EngineCore>(*options, std::move(executor));
  }

  void Submit(v1::Submit submit) { core->Submit(std::move(submit), 0, &events_); }
  void Step() {
    core->Step([] { return 0.0; }, &events_);
    for (v1::TokenEvent& event : events_) {
      Told& choice = told[{event.submission_id(), event.choice()}];
      REQUIRE(choice.finish == v1::FINISH_REASON_UNSPECIFIED);
      if (event.has_token()) {
        CHECK((choice.positions.empty() || event.position() == choice.positions.back() + 1));
        choice.tokens.push_back(event.token_id());
        choice.positions.push_back(event.position());
        choice.logprobs.push_back(event.logprobs());
      }
      choice.finish = event.finish();
      choice.error = event.error();
    }
    events_.clear();
  }
  void Cancel(uint64_t id) {
    v1::Cancel cancel;
    cancel.set_submission_id(id);
    cancel.set_attempt(1);
    cancel.set_choice(-1);
    core->Cancel(cancel, &events_);
  }

  WatchedExecutor* watched = nullptr;
  std::map<std::pair<uint64_t, int32_t>, Told> told;

 private:
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<Model> model_;
  kernels::Buffer kv_;

 public:
  std::unique_ptr<EngineCore> core;  // ends before what it runs on

 private:
  EngineCore::Events events_;
};

v1::Submit Greedy(uint64_t id, int64_t prompt, int32_t tokens) {
  v1::Submit submit = MakeSubmit(id, Prompt(prompt, id, 90), tokens);
  submit.set_ignore_eos(true);
  return submit;
}

v1::Submit Sampled(uint64_t id, int64_t prompt, int32_t tokens) {
  v1::Submit submit = Greedy(id, prompt, tokens);
  submit.mutable_sampling()->set_temperature(1.2F);
  submit.mutable_sampling()->set_top_k(20);
  submit.mutable_sampling()->set_top_p(0.9F);
  submit.mutable_sampling()->set_seed(id);
  return submit;
}

// Ids that end submissions; -1: none.
struct Ends {
  int32_t stop = -1, eos = -1;
};

void SubmitAll(EmulatedEngine& engine, const Ends& ends) {
  engine.Submit(Greedy(1, 5, 14));
  engine.Submit(Sampled(2, 7, 12));
  v1::Submit two = Sampled(3, 18, 9);
  two.set_choice_count(2);
  engine.Submit(two);
  engine.Submit(Greedy(4, 40, 16));  // pieces of a prompt, beside rows of the others
  v1::Submit logprobs = Greedy(5, 6, 3);
  logprobs.set_top_logprobs(2);
  engine.Submit(logprobs);
  v1::Submit stopped = Sampled(kStopped, 9, 16);
  if (ends.stop >= 0) stopped.add_stop_token_ids(ends.stop);
  engine.Submit(stopped);
  v1::Submit ended = Sampled(kEnded, 4, 16);
  ended.set_ignore_eos(ends.eos < 0);
  engine.Submit(ended);
  engine.Submit(Greedy(kCancelled, 20, 30));
  v1::Submit penalised = Sampled(9, 8, 4);
  penalised.mutable_sampling()->set_presence_penalty(1.0F);
  engine.Submit(penalised);
}

struct Outcome {
  std::map<std::pair<uint64_t, int32_t>, Told> told;
  int64_t begun_ahead = 0, fed_rows = 0, preemptions = 0;
};

Outcome RunAll(bool ahead, const Ends& ends) {
  EmulatedEngine engine(ahead, ends.eos);
  for (uint64_t id = 100; id < 110; ++id) {  // others are expected to be as short, and preempted
    engine.Submit(Greedy(id, 3, 1));
  }
  while (engine.core->Busy()) engine.Step();
  SubmitAll(engine, ends);
  bool cancelled = false;
  for (int steps = 0; engine.core->Busy(); ++steps) {
    REQUIRE(steps < 1000);
    engine.Step();
    if (!cancelled && engine.told[{kCancelled, 0}].tokens.size() == 3) {
      engine.Cancel(kCancelled);
      cancelled = true;
    }
  }
  engine.Step();  // tells of what was cancelled last
  CHECK(engine.core->sequences() == 0);
  CHECK(engine.core->load().kv_blocks_used() == 0);
  CHECK(emulated::CheckMemoryGuards().message() == "");
  return {engine.told, engine.watched->begun_ahead, engine.watched->fed_rows,
          static_cast<int64_t>(engine.core->load().preemptions())};
}

TEST_CASE("steps ahead give the tokens of steps one at a time") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  emulated::Inject({.vary_schedules = true});
  const Outcome unended = RunAll(false, {});
  const Ends ends = {.stop = unended.told.at({kStopped, 0}).tokens[5],
                     .eos = unended.told.at({kEnded, 0}).tokens[7]};
  const Outcome one_by_one = RunAll(false, ends);
  const Outcome ahead = RunAll(true, ends);
  emulated::Inject({});

  CHECK(one_by_one.begun_ahead == 0);
  CHECK(one_by_one.fed_rows == 0);
  CHECK(ahead.begun_ahead > 20);
  CHECK(ahead.fed_rows > 40);
  CHECK(one_by_one.preemptions > 0);
  CHECK(ahead.preemptions > 0);
  REQUIRE(ahead.told.size() == one_by_one.told.size());
  for (const auto& [choice, expected] : one_by_one.told) {
    INFO("submission " << choice.first << " choice " << choice.second);
    const Told& got = ahead.told.at(choice);
    CHECK(got.finish == expected.finish);
    if (choice.first == kCancelled) {
      const std::vector<int32_t>& all = unended.told.at(choice).tokens;
      CHECK(got.finish == v1::FINISH_REASON_CANCELLED);
      CHECK(got.tokens == expected.tokens);
      CHECK(std::equal(got.tokens.begin(), got.tokens.end(), all.begin()));
      continue;
    }
    CHECK(got.tokens == expected.tokens);
    REQUIRE(got.logprobs.size() == expected.logprobs.size());
    for (size_t i = 0; i < got.logprobs.size(); ++i) {
      CHECK(got.logprobs[i].SerializeAsString() == expected.logprobs[i].SerializeAsString());
    }
  }
  CHECK(ahead.told.at({kStopped, 0}).finish == v1::FINISH_REASON_STOP);
  CHECK(ahead.told.at({kStopped, 0}).tokens.size() <= 6);
  CHECK(ahead.told.at({kEnded, 0}).finish == v1::FINISH_REASON_STOP);
  CHECK(ahead.told.at({kEnded, 0}).tokens.size() <= 8);
#endif
}

TEST_CASE("an engine that ends with steps in flight leaves nothing behind") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  {
    EmulatedEngine engine(true, -1);
    engine.Submit(Greedy(1, 5, 14));
    EngineCore::Events events;
    engine.core->BeginSteps(0, &events);
    CHECK(engine.watched->begun_ahead == 1);
  }
  CHECK(emulated::PinnedBytes() == 0);
  CHECK(emulated::CheckMemoryGuards().message() == "");
#endif
}

}  // namespace
}  // namespace tessera::worker
