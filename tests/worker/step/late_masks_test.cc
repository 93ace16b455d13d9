// Masks of a step are made while its forward pass runs, and are there when it samples.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/links/link.h"
#include "worker/formation/group_executor.h"
#include "worker/step/stage_runner.h"
#include "worker/step/step_wire.h"

namespace tessera::worker {
namespace {

using kernels::TensorView;

constexpr int64_t kVocabulary = 40;
constexpr StepLimits kLimits = {
    .max_tokens = 1, .max_sequences = 1, .max_logit_rows = 1, .max_blocks_per_sequence = 1};
constexpr std::chrono::seconds kPatience(20);

// Its pass waits until the masks are made.
class WaitingModel final : public Model {
 public:
  absl::Status Forward(const StepInputs&, kernels::Stream& stream) override {
    return kernels::EnqueueHost<WaitingModel*>(
        stream,
        [](WaitingModel* const& model) {
          model->began.set_value();
          model->gave_up =
              model->made.get_future().wait_for(kPatience) != std::future_status::ready;
          for (int64_t i = 0; i < kVocabulary; ++i) model->logits_[i] = static_cast<float>(i);
          return absl::OkStatus();
        },
        this);
  }
  TensorView stage_rows() const override { return {}; }
  TensorView logits() const override {
    return TensorView(logits_, kernels::DType::kF32, {1, kVocabulary});
  }
  int64_t KvBlockBytes(int64_t) const override { return 0; }
  absl::Status AttachKv(std::byte*, KvBlocks, int64_t) override { return absl::OkStatus(); }
  int64_t weight_bytes() const override { return 0; }
  int64_t activation_bytes() const override { return 0; }

  std::promise<void> began, made;
  std::atomic<bool> gave_up = false;

 private:
  alignas(64) mutable float logits_[kVocabulary] = {};
};

struct MaskedStep {
  MaskedStep() {
    const std::vector<int32_t> zeros = {0}, ones = {1}, starts = {0, 1};
    REQUIRE(arrays
                .Assign({.token_ids = zeros,
                         .positions = zeros,
                         .rope_lengths = ones,
                         .slots = zeros,
                         .query_starts = starts,
                         .context_lengths = ones,
                         .table_widths = ones,
                         .tables = zeros,
                         .logit_rows = zeros},
                        /*kv_blocks=*/1, /*block_tokens=*/1)
                .message() == "");
    params.set_top_p(1);
    params.set_repetition_penalty(1);
    samples[0].params = &params;
    samples[0].mask = mask;
  }

  v1::SamplingParams params;  // greedy
  StepArrays arrays{kLimits};
  std::vector<int32_t> mask = {0, 0};
  std::vector<SampleRequest> samples{1};
};

}  // namespace

TEST_CASE("the mask is made while the forward pass runs, and the token is drawn by it") {
  const auto device =
      kernels::CreateCpuDevice({.memory_bytes = 16 << 20, .cores_shared = true}).value();
  WaitingModel model;
  const auto runner = StageRunner::Create(
      {.limits = kLimits,
       .sampler = {.max_rows = 1, .vocabulary = kVocabulary, .max_sequence_tokens = 4},
       .first = true,
       .samples = true},
      {}, &model, device.get());
  REQUIRE(runner.status().message() == "");
  MaskedStep step;
  bool runs = false;
  const std::function<void()> make = [&] {
    runs = model.began.get_future().wait_for(kPatience) == std::future_status::ready;
    step.mask[0] = 1 << 5;
    model.made.set_value();
  };
  StepOutcome outcome;
  const StepWork work = {.arrays = &step.arrays, .samples = step.samples, .make_masks = &make};
  REQUIRE((*runner)->Run(work, &outcome).message() == "");
  CHECK(runs);
  CHECK_FALSE(model.gave_up);
  REQUIRE(outcome.samples.size() == 1);
  CHECK(outcome.samples[0].token_id == 5);
}

TEST_CASE("masks that another worker draws by are made once all have the step, and follow it") {
  const auto device =
      kernels::CreateCpuDevice({.memory_bytes = 16 << 20, .cores_shared = true}).value();
  auto [leader, member] = kernels::CreateLinkPair("leader", "member").value();
  WaitingModel model;
  auto runner = StageRunner::Create({.limits = kLimits, .first = true}, {}, &model, device.get());
  REQUIRE(runner.status().message() == "");
  MaskedStep step;
  GroupExecutor executor({.members = {{"member", 1, leader.get()}}, .sampler = 0},
                         *std::move(runner));
  ReceivedStep received(kLimits, KvBlocks(1), /*block_tokens=*/1);
  std::string payload;
  uint16_t type = 0;
  bool runs = false;
  const std::function<void()> make = [&] {
    type = member->ReceiveAny(1 << 20, &payload, kPatience.count()).value_or(0);
    runs = model.began.get_future().wait_for(kPatience) == std::future_status::ready;
    step.mask[0] = 1 << 5;
    step.samples[0].banned = {};
    model.made.set_value();
  };
  const std::vector<int32_t> banned = {5};
  step.samples[0].banned = banned;
  const StepWork work = {.arrays = &step.arrays, .samples = step.samples, .make_masks = &make};
  REQUIRE(executor.Begin(work).message() == "");
  CHECK(runs);
  CHECK_FALSE(model.gave_up);
  CHECK(type == static_cast<uint16_t>(FrameType::kMasklessStep));
  REQUIRE(received.descriptor()->ParseFromString(payload));
  REQUIRE(received.Check().message() == "");
  CHECK(received.work().samples[0].mask.empty());
  CHECK(received.work().samples[0].banned.empty());

  const auto then = member->ReceiveAny(1 << 20, &payload, kPatience.count());
  REQUIRE(then.status().message() == "");
  CHECK(*then == static_cast<uint16_t>(FrameType::kStepMasks));
  REQUIRE(received.TakeMasks(payload).message() == "");
  const SampleRequest& row = received.work().samples[0];
  CHECK(std::vector<int32_t>(row.mask.begin(), row.mask.end()) == std::vector<int32_t>{1 << 5, 0});
  CHECK(row.banned.empty());
  received.descriptor()->set_step(received.descriptor()->step() + 1);
  CHECK(absl::IsInvalidArgument(received.TakeMasks(payload)));
}

TEST_CASE("masks that are not made are not sent, nor are bans that they may undo") {
  MaskedStep step;
  const std::vector<int32_t> banned = {3};
  step.samples[0].banned = banned;
  const std::function<void()> make = [] {};
  v1::StepDescriptor message;
  StepWork work = {.arrays = &step.arrays, .samples = step.samples, .make_masks = &make};
  WriteDescriptor(work, &message);
  CHECK(message.samples(0).mask_size() == 0);
  CHECK(message.samples(0).banned_ids_size() == 0);
  work.make_masks = nullptr;
  WriteDescriptor(work, &message);
  CHECK(message.samples(0).mask_size() == 2);
  CHECK(message.samples(0).banned_ids_size() == 1);
}

}  // namespace tessera::worker
