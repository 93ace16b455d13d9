// Which attention runs where: as a pure function, and counted on the emulated device.
#include "kernels/cuda/device/attention_choice.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "tests/kernels/conformance/attention_case.h"

namespace tessera::kernels::cuda {
namespace {

alignas(64) std::byte memory[64];

AttentionArgs Arguments(DType cached, int64_t head_dim) {
  AttentionArgs args;
  args.q = args.out = TensorView(memory, DType::kF32, {3, 8, head_dim});
  args.cache.keys = args.cache.values = TensorView(memory, cached, {2, 5, 16, head_dim});
  args.products = cached;
  return args;
}

bool IsTensorAttention(const AttentionArgs& args, int capability) {
  return ChooseAttention(args, capability) == AttentionChoice::kTensorCores;
}

TEST_CASE("attention on tensor cores: types and capabilities") {
  for (const int64_t head_dim : {64, 72, 80, 96, 112, 120, 128, 160, 192, 256}) {
    CHECK(IsTensorAttention(Arguments(DType::kBF16, head_dim), 90));
    CHECK(IsTensorAttention(Arguments(DType::kBF16, head_dim), 80));
    CHECK_FALSE(IsTensorAttention(Arguments(DType::kBF16, head_dim), 75));
    CHECK(IsTensorAttention(Arguments(DType::kF16, head_dim), 75));
    CHECK_FALSE(IsTensorAttention(Arguments(DType::kF32, head_dim), 90));
  }
  for (const int64_t head_dim : {512, 576}) {
    CHECK(IsTensorAttention(Arguments(DType::kBF16, head_dim), 80));
    CHECK(IsTensorAttention(Arguments(DType::kF16, head_dim), 120));
    CHECK_FALSE(IsTensorAttention(Arguments(DType::kF16, head_dim), 75));
  }
  for (const int64_t head_dim : {16, 20, 32, 68, 264, 520}) {
    CHECK_FALSE(IsTensorAttention(Arguments(DType::kBF16, head_dim), 90));
  }
}

TEST_CASE("attention on tensor cores: what does not fit is left to the plain kernel") {
  const auto takes = [](const std::function<void(AttentionArgs&)>& change) {
    AttentionArgs args = Arguments(DType::kBF16, 64);
    change(args);
    return IsTensorAttention(args, 90);
  };
  CHECK(takes([](AttentionArgs&) {}));
  CHECK(takes([](AttentionArgs& a) { a.q.dtype = a.out.dtype = DType::kBF16; }));
  CHECK(takes([](AttentionArgs& a) { a.q.row_stride += 2; }));
  CHECK(takes([](AttentionArgs& a) { a.cache.keys.row_stride += 8; }));
  CHECK(takes([](AttentionArgs& a) { a.soft_cap = 50; }));
  CHECK(takes([](AttentionArgs& a) { a.window = 8, a.chunked = true; }));
  CHECK_FALSE(takes([](AttentionArgs& a) { a.products = DType::kF32; }));
  CHECK_FALSE(takes([](AttentionArgs& a) { a.q.dtype = a.out.dtype = DType::kF16; }));
  CHECK_FALSE(takes([](AttentionArgs& a) { a.q.row_stride += 1; }));
  CHECK_FALSE(takes([](AttentionArgs& a) { a.out.data += 4; }));
  CHECK_FALSE(takes([](AttentionArgs& a) { a.cache.keys.row_stride += 4; }));
  CHECK_FALSE(takes([](AttentionArgs& a) { a.cache.values.data += 8; }));
}

TEST_CASE("the emulated device attends 16-bit KV on tensor cores, and f32 with the plain kernel") {
  conformance::Path* const path = conformance::CudaEmulated();
  if (path == nullptr) return;  // as in a build for TSan
  struct Launches {
    int64_t prefill = emulated::LaunchesFrom("prefill.cu");
    int64_t decode = emulated::LaunchesFrom("decode.cu");
    int64_t combine = emulated::LaunchesFrom("combine.cu");
    int64_t plain = emulated::LaunchesFrom("attention.cu");
  };
  conformance::AttentionCase c = {.sequences = {{12, 19, 1}, {1, 3, 2}}};
  const Launches before;
  c.cache = c.products = DType::kBF16;
  conformance::RunAttention(*path, c);
  c.cache = c.products = c.activation = DType::kF16;
  conformance::RunAttention(*path, c);
  const Launches tensor;
  CHECK(tensor.prefill == before.prefill + 2);
  CHECK(tensor.decode == before.decode + 2);  // of one split each
  CHECK(tensor.plain == before.plain);
  conformance::AttentionCase longer = c;
  longer.sequences = {{1, kSplitKeys + 1, 1}};
  conformance::RunAttention(*path, longer);
  const Launches split;
  CHECK(split.prefill == tensor.prefill);  // no sequence has many rows
  CHECK(split.decode == tensor.decode + 1);
  CHECK(split.combine == tensor.combine + 1);
  c.cache = c.products = c.activation = DType::kF32;
  conformance::RunAttention(*path, c);
  const Launches after;
  CHECK(after.plain == tensor.plain + 1);
  CHECK(after.prefill == split.prefill);
  CHECK(after.decode == split.decode);
}

TEST_CASE("the emulated device leaves out the kernel that would find no row") {
  conformance::Path* const path = conformance::CudaEmulated();
  if (path == nullptr) return;  // as in a build for TSan
  const auto launches = [&](RowsPerSequence rows, const std::vector<conformance::Sequence>& of) {
    conformance::AttentionCase c = {.sequences = of};
    c.cache = c.products = DType::kBF16;
    const std::vector<float> expected = conformance::RunAttention(*path, c);
    c.rows_per_sequence = rows;
    const int64_t prefill = emulated::LaunchesFrom("prefill.cu");
    const int64_t decode = emulated::LaunchesFrom("decode.cu");
    CHECK(conformance::RunAttention(*path, c) == expected);
    return std::pair(emulated::LaunchesFrom("prefill.cu") - prefill,
                     emulated::LaunchesFrom("decode.cu") - decode);
  };
  CHECK(launches(RowsPerSequence::kOne, {{1, 9, 1}, {0, 0, 2}, {1, 3, 3}}) == std::pair(0l, 1l));
  CHECK(launches(RowsPerSequence::kMany, {{9, 9, 1}, {0, 3, 2}}) == std::pair(1l, 0l));
  CHECK(launches(RowsPerSequence::kOneOrMany, {{9, 9, 1}, {1, 3, 2}}) == std::pair(1l, 1l));
  CHECK(launches(RowsPerSequence::kAny, {{5, 9, 1}, {12, 13, 2}}) == std::pair(1l, 1l));
  CHECK(launches(RowsPerSequence::kAny, {{5, 9, 1}, {2, 3, 2}}) == std::pair(0l, 1l));
}

}  // namespace
}  // namespace tessera::kernels::cuda
