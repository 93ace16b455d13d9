// Stages that hand rows on by their devices, each with a stream: in as many pieces as they need,
// and through the hosts where that would be too many.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/collectives/group_maker.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/links/shared_memory.h"
#include "tests/kernels/cuda/test_device.h"
#include "worker/step/stage_runner.h"
#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/runtime.h"
#endif

namespace tessera::worker {
namespace {

namespace cuda = kernels::cuda::TESSERA_CUDA_PLATFORM;

constexpr int64_t kMaxRows = 7, kHidden = 40'000;
constexpr StepLimits kLimits = {
    .max_tokens = kMaxRows, .max_sequences = 1, .max_logit_rows = 1, .max_blocks_per_sequence = 1};

std::unique_ptr<kernels::Device> MakeGpu(const std::string& uuid) {
  auto device = cuda::CreateCudaDevice({.memory_bytes = 16 << 20, .uuid = uuid});
  REQUIRE(device.status().message() == "");
  return *std::move(device);
}

#ifdef TESSERA_CUDA_EMULATED
constexpr bool kCountsLaunches = true;
int64_t Meetings() { return cuda::LaunchesFrom("mapped_sum.cu"); }
#else
constexpr bool kCountsLaunches = false;
int64_t Meetings() { return 0; }
#endif

// Rows that a number makes: the first stage's model writes them, the last one's reads them.
class CountingModel : public Model {
 public:
  CountingModel(kernels::Device& device, bool first) : first_(first) {
    auto memory = device.Allocate(kMaxRows * kHidden * int64_t{sizeof(float)});
    auto host = device.AllocateHost(kMaxRows * kHidden * int64_t{sizeof(float)});
    REQUIRE(memory.ok());
    REQUIRE(host.ok());
    memory_ = *std::move(memory);
    host_ = *std::move(host);
  }

  float* values() { return reinterpret_cast<float*>(host_.data()); }

  absl::Status Forward(const StepInputs& step, kernels::Stream& stream) override {
    const int64_t bytes = step.token_ids.rows() * kHidden * int64_t{sizeof(float)};
    return first_ ? stream.CopyToDevice(memory_.data(), host_.data(), bytes)
                  : stream.CopyToHost(host_.data(), memory_.data(), bytes);
  }
  absl::Status JoinRanks(kernels::Group*, kernels::Stream&) override { return absl::OkStatus(); }
  int64_t group_staging_bytes() const override { return 0; }
  kernels::TensorView stage_rows() const override {
    return kernels::TensorView(memory_.data(), kernels::DType::kF32, {kMaxRows, kHidden});
  }
  kernels::TensorView logits() const override { return {}; }
  int64_t KvBlockBytes(int64_t) const override { return 0; }
  absl::Status AttachKv(std::byte*, KvBlocks, int64_t) override { return absl::OkStatus(); }
  int64_t weight_bytes() const override { return 0; }
  int64_t activation_bytes() const override { return 0; }

 private:
  const bool first_;
  kernels::Buffer memory_;
  kernels::HostBuffer host_;
};

// A prompt of one sequence.
void Fill(int32_t rows, StepArrays* arrays) {
  const std::vector<int32_t> zeros(static_cast<size_t>(rows), 0),
      reach(static_cast<size_t>(rows), rows);
  std::vector<int32_t> places;
  for (int32_t i = 0; i < rows; ++i) places.push_back(i);
  const std::vector<int32_t> lengths = {rows}, starts = {0, rows}, one = {1}, table = {0};
  REQUIRE(arrays
              ->Assign({.token_ids = zeros,
                        .positions = places,
                        .rope_lengths = reach,
                        .slots = places,
                        .query_starts = starts,
                        .context_lengths = lengths,
                        .table_widths = one,
                        .tables = table,
                        .logit_rows = {}},
                       /*kv_blocks=*/1, /*block_tokens=*/8)
              .message() == "");
}

TEST_CASE("rows go by the devices, in pieces, or through the hosts where those are too many") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  if (!cuda::HasDevice()) TESSERA_SKIP("no CUDA device; the kernels were compiled and linked");
  const auto gpu = MakeGpu("GPU-0"), other = MakeGpu("GPU-1");
  auto link = kernels::CreateLinkPair("the stage behind", "the stage before");
  REQUIRE(link.ok());
  const int64_t memory_bytes = gpu->group_maker()->SumsMemoryBytes(2);
  auto memory = kernels::CreateSharedMemory(memory_bytes);
  REQUIRE(memory.status().message() == "");
  REQUIRE(link->first->SendDescriptor(memory->file.get(), 10).ok());
  auto same = kernels::ReceiveSharedMemory(*link->second, memory_bytes, 10);
  REQUIRE(same.status().message() == "");
  absl::StatusOr<std::unique_ptr<kernels::DeviceSums>> gives = nullptr, takes = nullptr;
  std::thread joins([&] { takes = other->group_maker()->MapSums(1, 2, same->memory, {}); });
  gives = gpu->group_maker()->MapSums(0, 2, memory->memory, {});
  joins.join();
  REQUIRE(gives.status().message() == "");
  REQUIRE(takes.status().message() == "");
  const int64_t piece_bytes = (*gives)->max_bytes();
  const DeviceHops to = {.next = gives->get(), .piece_bytes = piece_bytes};
  const DeviceHops from = {.previous = takes->get(), .piece_bytes = piece_bytes};

  CountingModel writes(*gpu, true), reads(*other, false);
  const auto first = StageRunner::Create(
      {.limits = kLimits, .sampler = {}, .first = true, .wait_seconds = 60},
      {.next = link->first.get(), .has_other_stages = true, .hops = &to}, &writes, gpu.get());
  const auto last =
      StageRunner::Create({.limits = kLimits, .sampler = {}, .wait_seconds = 60},
                          {.previous = link->second.get(), .has_other_stages = true, .hops = &from},
                          &reads, other.get());
  REQUIRE(first.status().message() == "");
  REQUIRE(last.status().message() == "");
  StepArrays arrays(kLimits);
  int steps = 0;
  for (const int32_t rows : {2, 5, 1, 7, 3}) {
    INFO(rows << " rows");
    Fill(rows, &arrays);
    const StepWork work = {.arrays = &arrays};
    const int64_t count = rows * kHidden, bytes = count * int64_t{sizeof(float)};
    const int64_t pieces = (bytes + piece_bytes - 1) / piece_bytes;
    // The first step loads kernels.
    const bool on_devices = steps++ > 0 && pieces <= DeviceHops::kMaxPieces;
    CHECK(on_devices == (rows != 2 && rows != 7));
    CHECK((*first)->RunsAhead(work) == on_devices);
    CHECK((*last)->RunsAhead(work) == on_devices);
    for (int64_t i = 0; i < count; ++i) writes.values()[i] = static_cast<float>(i % 9973 + rows);
    std::memset(reads.values(), 0, static_cast<size_t>(bytes));
    const int64_t before = Meetings();
    StepOutcome outcome, other_outcome;
    absl::Status taken;
    std::thread behind([&] { taken = (*last)->Run(work, &other_outcome); });
    CHECK((*first)->Run(work, &outcome).message() == "");
    behind.join();
    CHECK(taken.message() == "");
    CHECK(std::memcmp(reads.values(), writes.values(), static_cast<size_t>(bytes)) == 0);
    CHECK(Meetings() - before == (kCountsLaunches && on_devices ? 2 * pieces : 0));
  }
#endif
}

}  // namespace
}  // namespace tessera::worker
