// A key group's state is the same bytes on its way, whatever ranks hold it.
#include "kvcache/state_layout.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace tessera::kvcache {
namespace {

constexpr StateShape kShape = {.conv_rows = 3, .key_dim = 5, .value_dim = 7, .value_heads = 2};
constexpr int32_t kGroups = 4, kPlaces = 3;

// One rank's part of a layer, and its pool.
struct Rank {
  explicit Rank(IndexRange groups)
      : conv(kShape.conv_rows * groups.size() * kShape.ConvColumns()),
        delta(groups.size() * kShape.value_heads * kShape.key_dim * kShape.value_dim),
        pool(StatePool(kShape, {{2, 3}, groups}, kPlaces)),
        memory(pool.bytes()) {
    pool.memory = memory.data();
  }
  LayerState state() { return {conv.data(), delta.data()}; }

  std::vector<float> conv, delta;
  KvPool pool;
  std::vector<std::byte> memory;
};

// All that travels of one key group in `place`.
std::vector<float> Wire(const Rank& rank, int32_t group, int32_t place) {
  std::vector<float> elements;
  for (const int plane : {0, 1}) {
    const auto* first = reinterpret_cast<const float*>(
        rank.pool.At(2, plane, group, place * rank.pool.block_tokens));
    elements.insert(elements.end(), first, first + rank.pool.block_tokens * rank.pool.head_dim);
  }
  return elements;
}

TEST_CASE("states of one rank come to two, and come back, value for value") {
  Rank whole({0, kGroups}), first({0, 1}), second({1, kGroups}), back({0, kGroups});
  std::iota(whole.conv.begin(), whole.conv.end(), 1.0f);
  std::iota(whole.delta.begin(), whole.delta.end(), 1e4f);
  PackState(kShape, whole.state(), 2, 1, whole.pool);
  for (int32_t group = 0; group < kGroups; ++group) {
    Rank& holder = group == 0 ? first : second;
    const std::vector<float> wire = Wire(whole, group, 1);
    CHECK(wire[0] == whole.conv[static_cast<size_t>(group * 14)]);  // its values come first
    for (const int plane : {0, 1}) {
      const int64_t half = holder.pool.block_tokens * holder.pool.head_dim;
      std::copy_n(
          wire.begin() + plane * half, half,
          reinterpret_cast<float*>(holder.pool.At(2, plane, group, 2 * holder.pool.block_tokens)));
    }
  }
  for (Rank* rank : {&first, &second}) {
    UnpackState(kShape, rank->pool, 2, 2, rank->state());
    PackState(kShape, rank->state(), 2, 0, rank->pool);
  }
  for (int32_t group = 0; group < kGroups; ++group) {
    CHECK(Wire(group == 0 ? first : second, group, 0) == Wire(whole, group, 1));
  }
  UnpackState(kShape, whole.pool, 2, 1, back.state());
  CHECK(back.conv == whole.conv);
  CHECK(back.delta == whole.delta);
  // A rank has its key groups' columns side by side: values, queries, keys.
  CHECK(first.conv[0] == whole.conv[0]);
  CHECK(first.conv[14] == whole.conv[4 * 14]);
  CHECK(first.conv[19] == whole.conv[4 * 14 + 4 * 5]);
}

}  // namespace
}  // namespace tessera::kvcache
