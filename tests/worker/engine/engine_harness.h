// An EngineCore over the toy model, stepped by hand, that collects what each choice was told.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "tests/worker/engine/submits.h"
#include "tests/worker/engine/toy_model.h"
#include "worker/engine/engine_core.h"
#include "worker/step/local_executor.h"

namespace tessera::worker {

inline kernels::Device& TestDevice() {
  static const auto device = [] {
    kernels::CpuDeviceOptions options;
    options.isa = kernels::Isa::kReference;
    options.cores_shared = true;
    options.memory_bytes = int64_t{1} << 30;
    auto created = kernels::CreateCpuDevice(options);
    REQUIRE(created.ok());
    return *std::move(created);
  }();
  return *device;
}

inline SamplerLimits SamplingOf(const EngineOptions& options) {
  return {options.limits.max_logit_rows, options.vocabulary, options.max_model_len_tokens};
}

// What one choice was told, checked for order on the way.
struct Told {
  std::vector<int32_t> tokens;
  std::vector<int64_t> positions;
  std::vector<v1::PositionLogprobs> logprobs;
  std::vector<v1::PositionLogprobs> prompt_logprobs;
  int32_t cached_tokens = 0;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::vector<int32_t> stop_token_ids;  // of each event, -1 where it has none
  std::string error;
  int32_t error_code = 0;
};

class Harness {
 public:
  explicit Harness(const EngineOptions& options, int64_t rope_original = 0)
      : options(options), model(options.vocabulary, EngineCore::LimitsOf(options), rope_original) {
    auto memory = TestDevice().Allocate(options.limits.total_blocks *
                                            model.KvBlockBytes(options.limits.block_tokens) +
                                        options.seats * model.SeatBytes());
    REQUIRE(memory.ok());
    kv = *std::move(memory);
    REQUIRE(model
                .AttachKv(kv.data(), {options.limits.total_blocks, 0, options.seats},
                          options.limits.block_tokens)
                .ok());
    auto executor =
        LocalExecutor::Create(EngineCore::LimitsOf(options), SamplingOf(options), &model,
                              &TestDevice(), nullptr, nullptr, options.snapshots);
    REQUIRE(executor.ok());
    core = std::make_unique<EngineCore>(options, *std::move(executor));
  }

  void Submit(const v1::Submit& submit) {
    core->Submit(submit, now, &events);
    Collect();
  }
  void Cancel(uint64_t id, int32_t choice = -1, uint32_t attempt = 1) {
    v1::Cancel cancel;
    cancel.set_submission_id(id);
    cancel.set_attempt(attempt);
    cancel.set_choice(choice);
    core->Cancel(cancel, &events);
    Collect();
  }
  void Step() {
    now += 1;
    core->Step([this] { return now; }, &events);
    Collect();
    REQUIRE(++steps < 100000);
  }
  void RunAll() {
    while (core->Busy()) Step();
    REQUIRE(core->sequences() == 0);
    REQUIRE(core->load().kv_blocks_used() == 0);
  }
  const Told& Of(uint64_t id, int32_t choice = 0) { return told[{id, choice}]; }

  // The greedy continuation by the model alone.
  std::vector<int32_t> Greedy(std::vector<int32_t> tokens, int64_t count,
                              int64_t rope_original = 0) const {
    const int64_t prompt = static_cast<int64_t>(tokens.size());
    for (int64_t i = 0; i < count; ++i) {
      const auto logits = ToyModel::LogitsAfter(tokens, prompt, options.vocabulary, rope_original);
      tokens.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return {tokens.begin() + prompt, tokens.end()};
  }

  EngineOptions options;
  ToyModel model;
  kernels::Buffer kv;
  std::unique_ptr<EngineCore> core;
  EngineCore::Events events;
  std::map<std::pair<uint64_t, int32_t>, Told> told;
  double now = 0;
  int64_t steps = 0;

 private:
  void Collect() {
    for (v1::TokenEvent& event : events) {
      Told& choice = told[{event.submission_id(), event.choice()}];
      REQUIRE(choice.finish == v1::FINISH_REASON_UNSPECIFIED);  // nothing after the end
      if (event.has_token()) {
        choice.tokens.push_back(event.token_id());
        choice.positions.push_back(event.position());
        choice.logprobs.push_back(event.logprobs());
        const bool stopped = event.finish() == v1::FINISH_REASON_STOP;
        choice.stop_token_ids.push_back(stopped ? event.stop_token_id() : -1);
      }
      for (const auto& position : event.prompt_logprobs()) {
        choice.prompt_logprobs.push_back(position);
      }
      choice.cached_tokens = std::max(choice.cached_tokens, event.cached_tokens());
      choice.finish = event.finish();
      choice.error = event.error();
      choice.error_code = event.error_code();
    }
    events.clear();
  }
};

}  // namespace tessera::worker
