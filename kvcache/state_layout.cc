#include "kvcache/state_layout.h"

#include <algorithm>
#include <cstring>

namespace tessera::kvcache {
namespace {

// Elements of one plane of one token: small enough that a piece of a connection has whole tokens of
// many key groups.
constexpr int64_t kSlice = 256;

// Calls visit(rank's elements, pool's elements, count) for all of one layer and place.
template <typename Visit>
void ForRuns(const StateShape& shape, const LayerState& rank, int32_t layer, int32_t place,
             const KvPool& pool, const Visit& visit) {
  const int64_t groups = pool.share.kv_heads.size();
  const int64_t of_plane = pool.block_tokens * pool.head_dim;
  for (int64_t group = 0; group < groups; ++group) {
    int64_t at = 0;  // element of the key group on its way
    const auto run = [&](float* from, int64_t count) {
      while (count > 0) {
        const int64_t now = std::min(count, of_plane - at % of_plane);
        auto* plane = reinterpret_cast<float*>(pool.At(
            layer, static_cast<int>(at / of_plane),
            pool.share.kv_heads.begin + static_cast<int32_t>(group), place * pool.block_tokens));
        visit(from, plane + at % of_plane, now);
        from += now;
        at += now;
        count -= now;
      }
    };
    const int64_t values = shape.value_heads * shape.value_dim, keys = shape.key_dim;
    for (int64_t row = 0; row < shape.conv_rows; ++row) {
      float* columns = rank.conv + row * groups * shape.ConvColumns();
      run(columns + group * values, values);
      run(columns + groups * values + group * keys, keys);
      run(columns + groups * (values + keys) + group * keys, keys);
    }
    const int64_t matrices = shape.value_heads * shape.key_dim * shape.value_dim;
    run(rank.delta + group * matrices, matrices);
  }
}

void Copy(const float* from, float* to, int64_t count) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

KvPool StatePool(const StateShape& shape, const KvShare& share, int64_t places) {
  KvPool pool;
  pool.share = share;
  pool.type = kernels::DType::kF32;
  pool.blocks = places;
  pool.block_tokens = (shape.Elements() + 2 * kSlice - 1) / (2 * kSlice);
  pool.head_dim = kSlice;
  pool.in_host_memory = true;
  return pool;
}

void PackState(const StateShape& shape, const LayerState& from, int32_t layer, int32_t place,
               const KvPool& to) {
  ForRuns(shape, from, layer, place, to,
          [](const float* rank, float* pool, int64_t count) { Copy(rank, pool, count); });
}

void UnpackState(const StateShape& shape, const KvPool& from, int32_t layer, int32_t place,
                 const LayerState& to) {
  ForRuns(shape, to, layer, place, from,
          [](float* rank, const float* pool, int64_t count) { Copy(pool, rank, count); });
}

}  // namespace tessera::kvcache
