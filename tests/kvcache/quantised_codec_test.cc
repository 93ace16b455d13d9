#include "kvcache/quantised_codec.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kvcache/raw_codec.h"
#include "scheduler/cost/cost_model.h"

namespace tessera::kvcache {
namespace {

constexpr int64_t kBlockTokens = 16;

struct Pool {
  Pool(kernels::DType type, int64_t blocks, int64_t head_dim, int planes = kKvPlanes) {
    view = {nullptr, {{0, 2}, {0, 3}}, type, blocks, kBlockTokens, head_dim, planes};
    memory.assign(static_cast<size_t>(view.bytes()), std::byte{0xee});
    view.memory = memory.data();
  }
  float Get(const std::byte* at) const {
    uint32_t bits = 0;
    if (view.type == kernels::DType::kF32) std::memcpy(&bits, at, 4);
    if (view.type == kernels::DType::kBF16)
      std::memcpy(reinterpret_cast<std::byte*>(&bits) + 2, at, 2);
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  void Set(std::byte* at, float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (view.type == kernels::DType::kF32) std::memcpy(at, &bits, 4);
    if (view.type == kernels::DType::kBF16) {
      bits = (bits + 0x8000) & 0xffff0000;
      std::memcpy(at, reinterpret_cast<std::byte*>(&bits) + 2, 2);
    }
  }
  std::vector<std::byte> memory;
  KvPool view;
};

std::vector<int32_t> Shuffled(int64_t blocks, std::mt19937* random) {
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  for (int32_t i = 0; i < blocks; ++i) table[static_cast<size_t>(i)] = i;
  std::shuffle(table.begin(), table.end(), *random);
  return table;
}

// Half a step, of the 64 elements that share one, beside what float16 rounds of zero and scale, and
// what the receiver's type rounds.
float Bound(float least, float most, int bits, kernels::DType type) {
  const float step = (most - least) / static_cast<float>((1 << bits) - 1);
  const float size = std::max(std::abs(least), std::abs(most));
  return 0.5f * step + 0.002f * size + (type == kernels::DType::kBF16 ? 0.004f * size : 0.0f);
}

TEST_CASE("elements arrive within half a step of their group, and nothing else is written") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const int bits = round % 2 == 0 ? 8 : 4;
    const auto type = [&] {
      return random() % 2 == 0 ? kernels::DType::kF32 : kernels::DType::kBF16;
    };
    const int64_t head_dim = std::vector<int64_t>{3, 32, 64, 80, 128}[random() % 5];
    const auto tokens = static_cast<int64_t>(1 + random() % 150);
    const int planes = round % 3 == 0 ? 1 : kKvPlanes;
    Pool from(type(), 10, head_dim, planes), to(type(), 12, head_dim, planes);
    std::normal_distribution<float> normal(0, 1);
    const std::vector<int32_t> from_table = Shuffled(10, &random), to_table = Shuffled(12, &random);
    const auto from_slots = SlotRuns(from_table, kBlockTokens, 5, 5 + tokens);
    const auto to_slots = SlotRuns(to_table, kBlockTokens, 5, 5 + tokens);
    for (int64_t at = 0; at < from.view.bytes(); at += kernels::SizeInBytes(from.view.type)) {
      const float channel =
          at / kernels::SizeInBytes(from.view.type) % head_dim == 1 ? 50.0f : 1.0f;
      from.Set(from.memory.data() + at, channel * normal(random));
    }
    const IndexRange layers = {0, 2}, heads = {1, 3};
    std::vector<std::byte> wire(
        static_cast<size_t>(QuantisedBytes(layers, heads, tokens, head_dim, bits, planes)) + 8,
        std::byte{0xaa});
    EncodeQuantised(from.view, layers, heads, from_slots, bits, wire.data());
    CHECK(std::all_of(wire.end() - 8, wire.end(), [](auto b) { return b == std::byte{0xaa}; }));
    DecodeQuantised(std::span(wire).first(wire.size() - 8), bits, layers, heads, to_slots, to.view);

    const auto slot = [](const std::vector<int32_t>& table, int64_t t) {
      return table[static_cast<size_t>(t / kBlockTokens)] * kBlockTokens + t % kBlockTokens;
    };
    bool near = true;
    int64_t written = 0;
    for (int32_t layer = 0; layer < 2; ++layer) {
      for (int plane = 0; plane < planes; ++plane) {
        for (int32_t head = 1; head < 3; ++head) {
          const auto sent = [&](int64_t t, int64_t c) {
            return from.Get(from.view.At(layer, plane, head, slot(from_table, 5 + t)) +
                            c * kernels::SizeInBytes(from.view.type));
          };
          for (int64_t t = 0; t < tokens; ++t) {
            for (int64_t c = 0; c < head_dim; ++c, ++written) {
              float least = sent(t, c), most = least;
              const auto widen = [&](int64_t other, int64_t channel) {
                least = std::min(least, sent(other, channel));
                most = std::max(most, sent(other, channel));
              };
              const int64_t group = t / 64 * 64, chunk = c / 64 * 64;
              for (int64_t i = 0; i < 64; ++i) {
                if (plane == 0 && group + i < tokens) widen(group + i, c);
                if (plane == 1 && chunk + i < head_dim) widen(t, chunk + i);
              }
              const float got = to.Get(to.view.At(layer, plane, head, slot(to_table, 5 + t)) +
                                       c * kernels::SizeInBytes(to.view.type));
              near &= std::abs(got - sent(t, c)) <= Bound(least, most, bits, to.view.type);
            }
          }
        }
      }
    }
    CHECK(near);
    const int64_t touched = std::count_if(to.memory.begin(), to.memory.end(),
                                          [](std::byte b) { return b != std::byte{0xee}; });
    CHECK(touched <= written * kernels::SizeInBytes(to.view.type));
  }
}

TEST_CASE("bytes are those that plans count with") {
  for (const auto& [bits, codec] :
       {std::pair(8, scheduler::KvCodec::kInt8), std::pair(4, scheduler::KvCodec::kInt4)}) {
    for (const kernels::DType type : {kernels::DType::kF32, kernels::DType::kBF16}) {
      const double raw = static_cast<double>(RawBytes({0, 4}, {0, 2}, 640, 128, type));
      const double ratio =
          scheduler::KvCodecRatio(codec, static_cast<double>(kernels::SizeInBytes(type)));
      CHECK(static_cast<double>(QuantisedBytes({0, 4}, {0, 2}, 640, 128, bits)) ==
            Approx(raw * ratio));
    }
  }
}

TEST_CASE("constant groups are exact, and what is not finite arrives as not finite") {
  Pool from(kernels::DType::kF32, 4, 64), to(kernels::DType::kF32, 4, 64);
  for (int64_t at = 0; at < from.view.bytes(); at += 4) from.Set(from.memory.data() + at, 0.75f);
  from.Set(from.view.At(0, 1, 0, 3), std::numeric_limits<float>::infinity());
  const std::vector<SlotRun> slots = {{0, 40}};
  std::vector<std::byte> wire(static_cast<size_t>(QuantisedBytes({0, 1}, {0, 1}, 40, 64, 8)));
  EncodeQuantised(from.view, {0, 1}, {0, 1}, slots, 8, wire.data());
  DecodeQuantised(wire, 8, {0, 1}, {0, 1}, slots, to.view);
  CHECK(to.Get(to.view.At(0, 0, 0, 3)) == 0.75f);
  CHECK(to.Get(to.view.At(0, 1, 0, 2)) == 0.75f);
  CHECK(std::isnan(to.Get(to.view.At(0, 1, 0, 3))));
}

}  // namespace
}  // namespace tessera::kvcache
