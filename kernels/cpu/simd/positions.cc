// Rotary positions, and writing keys and values to their slots.
#include "kernels/cpu/simd/kv_codes.h"
#include "kernels/cpu/simd/row_tasks.h"
#include "kernels/cpu/simd/simd_kernels.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

template <typename T>
void RotateHead(T* x, const float* cos_sin, int64_t half) {
  ForVectors(half, [&](int64_t i, int64_t n) {
    const Vec a = LoadUpTo(x + i, n), b = LoadUpTo(x + half + i, n);
    const Vec cosine = LoadUpTo(cos_sin + i, n), sine = LoadUpTo(cos_sin + half + i, n);
    StoreUpTo(x + i, Fma(a, cosine, Sub(Zero(), Mul(b, sine))), n);
    StoreUpTo(x + half + i, Fma(b, cosine, Mul(a, sine)), n);
  });
}

template <typename From, typename To>
void CopyHead(const From* in, int64_t head_dim, To* out) {
  ForVectors(head_dim, [&](int64_t i, int64_t n) { StoreUpTo(out + i, LoadUpTo(in + i, n), n); });
}

// put(in, cache, head, slot) for the keys and values of all tokens that have a slot.
template <typename Put>
void ForHeads(const KvWriteArgs& args, ThreadPool& pool, const Put& put) {
  const int64_t kv_heads = args.k.shape[1], head_dim = args.k.shape[2];
  WithActivationType(args.k.dtype, [&](auto from) {
    using From = decltype(from);
    ForRows(pool, args.k.rows(), 2 * kv_heads * head_dim, [&](int64_t token) {
      const int64_t slot = args.slots.As<int32_t>()[token];
      if (slot < 0) return;
      const From* k = args.k.Row<const From>(token);
      const From* v = args.v.Row<const From>(token);
      for (int64_t h = 0; h < kv_heads; ++h) {
        put(k + h * head_dim, args.cache.keys, h, slot);
        put(v + h * head_dim, args.cache.values, h, slot);
      }
    });
  });
}

}  // namespace

void Rope(const RopeArgs& args, ThreadPool& pool) {
  const int64_t half = args.cos_sin.shape[1] / 2;
  const int64_t q_heads = args.q.shape[1], k_heads = args.k.shape[1], head_dim = args.q.shape[2];
  WithActivationType(args.q.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, args.q.rows(), (q_heads + k_heads) * 2 * half, [&](int64_t token) {
      const float* cos_sin = args.cos_sin.Row<float>(token);
      T* q = args.q.Row<T>(token);
      T* k = args.k.Row<T>(token);
      for (int64_t h = 0; h < q_heads; ++h) RotateHead(q + h * head_dim, cos_sin, half);
      for (int64_t h = 0; h < k_heads; ++h) RotateHead(k + h * head_dim, cos_sin, half);
    });
  });
}

void KvWrite(const KvWriteArgs& args, ThreadPool& pool) {
  const int64_t head_dim = args.k.shape[2];
  const DType type = args.cache.keys.dtype;
  if (HasKvScales(type)) {
    const int64_t row_bytes = KvRowElements(type, head_dim);
    ForHeads(args, pool, [&](const auto* in, const TensorView& cache, int64_t head, int64_t slot) {
      WriteRow(in, head_dim, type, cache.Row<std::byte>(head) + slot * row_bytes);
    });
    return;
  }
  WithActivationType(type, [&](auto to) {
    using To = decltype(to);
    ForHeads(args, pool, [&](const auto* in, const TensorView& cache, int64_t head, int64_t slot) {
      CopyHead(in, head_dim, cache.Row<To>(head) + slot * head_dim);
    });
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
