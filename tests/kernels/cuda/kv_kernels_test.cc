// KV's codecs on the device against those of the CPU, byte for byte: random pools, layers, heads,
// runs of tokens and types. What lies outside of the rectangle stays as it is.
#include "kernels/cuda/kv/kv_kernels.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/half_floats.h"
#include "kvcache/kv_layout.h"
#include "kvcache/quantised_codec.h"
#include "kvcache/raw_codec.h"
#include "tests/kernels/cuda/test_device.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using kvcache::KvPool;
using Bytes = std::vector<uint8_t>;

void Store(float value, kernels::DType type, uint8_t* to) {
  const BFloat16 brain = FromFloat<BFloat16>(value);
  const Float16 half = FromFloat<Float16>(value);
  if (type == kernels::DType::kF32) std::memcpy(to, &value, sizeof value);
  if (type == kernels::DType::kBF16) std::memcpy(to, &brain, sizeof brain);
  if (type == kernels::DType::kF16) std::memcpy(to, &half, sizeof half);
}

// A rectangle of a pool, and tokens of a sequence in it.
class Case {
 public:
  explicit Case(uint32_t seed) : random_(seed) {
    const int32_t layer = From(0, 3), head = From(0, 5);
    pool = {nullptr,    {{layer, layer + From(1, 2)}, {head, head + From(1, 3)}}, Type(),
            From(3, 6), From(0, 1) == 0 ? From(1, 9) : 16 * From(1, 3),           HeadDim()};
    layers = Within(pool.share.layers);
    heads = Within(pool.share.kv_heads);
    std::vector<int32_t> table(static_cast<size_t>(pool.blocks));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random_);
    const int64_t most = pool.blocks * pool.block_tokens;
    first = From(0, static_cast<int>(most) - 1);
    end = From(static_cast<int>(first) + 1, static_cast<int>(most));
    runs = kvcache::SlotRuns(table, pool.block_tokens, first, end);
    for (const kvcache::SlotRun& run : runs) {
      for (int64_t i = 0; i < run.tokens; ++i) slots.push_back(static_cast<int32_t>(run.slot + i));
    }
    wire_type = Type();
  }

  int From(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  kernels::DType Type() { return static_cast<kernels::DType>(From(0, 2)); }

  // Of every size, with zeros of both signs, in some pools nothing else, and, in few groups, what
  // is not finite.
  Bytes RandomPool() {
    Bytes bytes(static_cast<size_t>(pool.bytes()));
    const int64_t size = kernels::SizeInBytes(pool.type);
    const bool wild = From(0, 2) == 0, zeros = From(0, 5) == 0;
    for (int64_t i = 0; i < pool.bytes() / size; ++i) {
      const float scale = std::ldexp(1.0f, From(-16, 4));
      float value = scale * static_cast<float>(From(-1000, 1000));
      if (zeros || From(0, 9) == 0) value = From(0, 1) == 0 ? 0.0f : -0.0f;
      if (wild && From(0, 400) == 0) {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        const float what[] = {kInfinity, -kInfinity, std::nanf(""), -std::nanf("7")};
        value = what[From(0, 3)];
      }
      Store(value, pool.type, bytes.data() + i * size);
    }
    return bytes;
  }

  // Where the rectangle's first plane begins, in bytes; `skipped` planes are not of it.
  int64_t Start(int64_t skipped) const {
    KvPool at_zero = pool;
    std::byte nothing{};
    at_zero.memory = &nothing;
    return at_zero.At(layers.begin, static_cast<int>(skipped), heads.begin, 0) - &nothing;
  }

  KvWireParams Params(uint8_t* cache, const int32_t* slots_on_device, uint8_t* wire,
                      KvWireCoding coding, int64_t skipped) const {
    const int64_t head_stride = pool.blocks * pool.block_tokens * pool.head_dim;
    return {.cache = cache + Start(skipped),
            .slots = slots_on_device,
            .wire = wire,
            .planes = 2 * layers.size() - skipped,
            .kv_heads = heads.size(),
            .tokens = end - first,
            .head_dim = pool.head_dim,
            .plane_stride = pool.share.kv_heads.size() * head_stride,
            .head_stride = head_stride,
            .values_first = skipped == 1,
            .coding = coding,
            .dtype = pool.type,
            .wire_dtype = wire_type};
  }

  KvPool pool;
  IndexRange layers, heads;
  int64_t first = 0, end = 0;
  std::vector<kvcache::SlotRun> runs;
  std::vector<int32_t> slots;
  kernels::DType wire_type;  // of raw elements that come

 private:
  IndexRange Within(const IndexRange& whole) {
    const int32_t begin = From(whole.begin, whole.end - 1);
    return {begin, From(begin + 1, whole.end)};
  }
  int64_t HeadDim() {
    constexpr int kSizes[] = {1, 3, 8, 16, 64, 65, 80, 129};
    return kSizes[From(0, 7)];
  }

  std::mt19937 random_;
};

KvPool Over(const KvPool& pool, Bytes& memory) {
  KvPool view = pool;
  view.memory = reinterpret_cast<std::byte*>(memory.data());
  return view;
}

Bytes EncodeOnCpu(const Case& one, Bytes memory, KvWireCoding coding) {
  const KvPool pool = Over(one.pool, memory);
  const int64_t tokens = one.end - one.first;
  const int bits = coding == KvWireCoding::kRaw ? 0 : CodeBits(coding);
  Bytes wire(static_cast<size_t>(
      bits == 0 ? kvcache::RawBytes(one.layers, one.heads, tokens, pool.head_dim, pool.type)
                : kvcache::QuantisedBytes(one.layers, one.heads, tokens, pool.head_dim, bits)));
  auto* out = reinterpret_cast<std::byte*>(wire.data());
  bits == 0 ? kvcache::EncodeRaw(pool, one.layers, one.heads, one.runs, out)
            : kvcache::EncodeQuantised(pool, one.layers, one.heads, one.runs, bits, out);
  return wire;
}

Bytes DecodeOnCpu(const Case& one, const Bytes& wire, Bytes memory, KvWireCoding coding) {
  const KvPool pool = Over(one.pool, memory);
  const std::span<const std::byte> in(reinterpret_cast<const std::byte*>(wire.data()), wire.size());
  coding == KvWireCoding::kRaw
      ? kvcache::DecodeRaw(in, one.wire_type, one.layers, one.heads, one.runs, pool)
      : kvcache::DecodeQuantised(in, CodeBits(coding), one.layers, one.heads, one.runs, pool);
  return memory;
}

int64_t PlaneBytes(const Case& one, KvWireCoding coding, int64_t element_bytes) {
  return KvPlanesBytes(false, 1, one.heads.size(), one.end - one.first, one.pool.head_dim, coding,
                       element_bytes);
}

// As many as keep a test short; each size of head and each type comes several times.
constexpr uint32_t kCases = 60;

TEST_CASE("EncodeKv writes the bytes of the CPU's codecs, and nothing else") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const KvWireCoding coding =
      GENERATE(KvWireCoding::kRaw, KvWireCoding::kInt8, KvWireCoding::kInt4);
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    CAPTURE(static_cast<int>(coding), seed);
    Case one(seed);
    const Bytes memory = one.RandomPool();
    const int64_t skipped = one.From(0, 1);  // of keys, where values come first
    const Bytes wire = EncodeOnCpu(one, memory, coding);
    const int64_t begin = skipped * PlaneBytes(one, coding, kernels::SizeInBytes(one.pool.type));
    const auto size = static_cast<int64_t>(wire.size()) - begin;
    const Bytes written = RunEverySchedule<uint8_t>([&](TestDevice& device) {
      uint8_t* const cache = device.Upload(memory);
      auto* const out = device.Allocate<uint8_t>(size);
      device.Check(LaunchEncodeKv(one.Params(cache, device.Upload(one.slots), out, coding, skipped),
                                  device.stream()));
      CHECK(device.Download(cache, static_cast<int64_t>(memory.size())) == memory);
      return device.Download(out, size);
    });
    REQUIRE(written == Bytes(wire.begin() + begin, wire.end()));
  }
}

TEST_CASE("DecodeKv puts each element at its slot, as the CPU's codecs do, and writes no other") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const KvWireCoding coding =
      GENERATE(KvWireCoding::kRaw, KvWireCoding::kInt8, KvWireCoding::kInt4);
  for (uint32_t seed = 1000; seed < 1000 + kCases; ++seed) {
    CAPTURE(static_cast<int>(coding), seed);
    Case one(seed);
    Case sender = one;  // the same tokens in a pool of the type that comes
    if (coding == KvWireCoding::kRaw) sender.pool.type = one.wire_type;
    const Bytes wire = EncodeOnCpu(sender, sender.RandomPool(), coding);
    const Bytes before(static_cast<size_t>(one.pool.bytes()), 0xee);
    const Bytes expected = DecodeOnCpu(one, wire, before, coding);
    CHECK(RunEverySchedule<uint8_t>([&](TestDevice& device) {
            uint8_t* const cache = device.Upload(before);
            device.Check(LaunchDecodeKv(
                one.Params(cache, device.Upload(one.slots), device.Upload(wire), coding, 0),
                device.stream()));
            return device.Download(cache, static_cast<int64_t>(before.size()));
          }) == expected);
  }
}

TEST_CASE("KV of no tokens launches nothing") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  TestDevice device;
  for (const KvWireCoding coding : {KvWireCoding::kRaw, KvWireCoding::kInt8}) {
    const KvWireParams nothing = {.planes = 2, .kv_heads = 1, .head_dim = 8, .coding = coding};
    device.Check(LaunchEncodeKv(nothing, device.stream()));
    device.Check(LaunchDecodeKv(nothing, device.stream()));
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
