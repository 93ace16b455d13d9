// A stage on a device whose memory the host cannot read: rows come, are worked on there, and go on.
#include "worker/step/stage_runner.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/collectives/loopback_group.h"
#include "kernels/cpu/device/cpu_device.h"
#include "tests/fakes/far_device.h"

namespace tessera::worker {
namespace {

using kernels::TensorView;

constexpr int64_t kRows = 3, kHidden = 5;
constexpr StepLimits kLimits = {
    .max_tokens = kRows, .max_sequences = 2, .max_logit_rows = 2, .max_blocks_per_sequence = 1};

std::unique_ptr<kernels::Device> MakeCpu() {
  auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 20, .cores_shared = true});
  REQUIRE(device.ok());
  return *std::move(device);
}

// Doubles the rows in the device's memory.
class DoublingModel : public Model {
 public:
  explicit DoublingModel(kernels::Device& device) {
    auto memory = device.Allocate(kRows * kHidden * int64_t{sizeof(float)});
    REQUIRE(memory.ok());
    memory_ = *std::move(memory);
  }

  absl::Status Forward(const StepInputs& step, kernels::Stream& stream) override {
    struct Rows {
      float* values;
      int64_t count;
    };
    return kernels::EnqueueHost<Rows>(
        stream,
        [](const Rows& rows) {
          for (int64_t i = 0; i < rows.count; ++i) rows.values[i] *= 2;
          return absl::OkStatus();
        },
        {reinterpret_cast<float*>(ToNear(memory_.data())), step.token_ids.rows() * kHidden});
  }
  absl::Status JoinRanks(kernels::Group* group, kernels::Stream&) override {
    transport = group == nullptr ? "none" : group->transport();
    return absl::OkStatus();
  }
  int64_t group_staging_bytes() const override { return 192; }
  TensorView stage_rows() const override {
    return TensorView(memory_.data(), kernels::DType::kF32, {kRows, kHidden});
  }
  TensorView logits() const override { return {}; }
  int64_t KvBlockBytes(int64_t) const override { return 0; }
  absl::Status AttachKv(std::byte*, KvBlocks, int64_t) override { return absl::OkStatus(); }
  int64_t weight_bytes() const override { return 0; }
  int64_t activation_bytes() const override { return 0; }

  std::string transport;

 private:
  kernels::Buffer memory_;
};

// A step of two tokens, each of a sequence of its own.
void Fill(StepArrays* arrays) {
  const std::vector<int32_t> zeros = {0, 0}, ones = {1, 1}, starts = {0, 1, 2};
  REQUIRE(arrays
              ->Assign({.token_ids = zeros,
                        .positions = zeros,
                        .rope_lengths = ones,
                        .slots = zeros,
                        .query_starts = starts,
                        .context_lengths = ones,
                        .table_widths = ones,
                        .tables = zeros,
                        .logit_rows = {}},
                       /*kv_blocks=*/1, /*block_tokens=*/1)
              .message() == "");
}

TEST_CASE("rows go through host memory where the host does not read the device's") {
  const auto device = MakeFar(MakeCpu());
  DoublingModel model(*device);
  auto before = kernels::CreateLinkPair("this stage", "the stage before");
  auto behind = kernels::CreateLinkPair("the stage behind", "this stage");
  REQUIRE(before.ok());
  REQUIRE(behind.ok());
  const auto runner = StageRunner::Create(
      {.limits = kLimits, .sampler = {}},
      {.previous = before->second.get(), .next = behind->first.get()}, &model, device.get());
  REQUIRE(runner.status().message() == "");
  CHECK(model.transport == "none");
  StepArrays arrays(kLimits);
  Fill(&arrays);
  for (const float first : {1.0F, 100.0F}) {  // the second step's rows take the first one's place
    std::vector<float> rows(2 * kHidden);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = first + static_cast<float>(i);
    const auto type = static_cast<uint16_t>(FrameType::kActivations);
    REQUIRE(
        before->first
            ->Send(type,
                   {reinterpret_cast<const std::byte*>(rows.data()), rows.size() * sizeof(float)},
                   10)
            .ok());
    StepOutcome outcome;
    const absl::Status ran = (*runner)->Run({&arrays, {}, {}, {}}, &outcome);
    REQUIRE(ran.message() == "");
    std::vector<float> got(rows.size());
    const auto received = behind->second->Receive(
        type,
        absl::Span<std::byte>(reinterpret_cast<std::byte*>(got.data()), got.size() * sizeof(float)),
        10);
    REQUIRE(received.status().message() == "");
    for (float& value : rows) value *= 2;
    CHECK(got == rows);
  }
}

TEST_CASE("a model gets a staged group only where the host does not read its device's memory") {
  const auto groups = kernels::CreateLoopbackGroups(2);
  REQUIRE(groups.ok());
  const StageLinks links = {.group = (*groups)[0].get()};
  for (const bool far : {false, true}) {
    const auto device = far ? MakeFar(MakeCpu()) : MakeCpu();
    DoublingModel model(*device);
    const auto runner = StageRunner::Create({.limits = kLimits, .sampler = {}, .first = true},
                                            links, &model, device.get());
    REQUIRE(runner.status().message() == "");
    CHECK(model.transport ==
          (far ? "staged through 192 bytes of host memory, then shared memory" : "shared memory"));
  }
}

}  // namespace
}  // namespace tessera::worker
