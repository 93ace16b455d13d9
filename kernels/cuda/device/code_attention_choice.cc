#include "kernels/cuda/device/code_attention_choice.h"

#include "kernels/cuda/launch/code_attention_shapes.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kCopyBytes = 16;  // of one asynchronous copy

bool IsAligned(const TensorView& cache) {
  return reinterpret_cast<uintptr_t>(cache.data) % kCopyBytes == 0 &&
         cache.row_stride % kCopyBytes == 0;
}

}  // namespace

bool TakesCodeAttention(const AttentionArgs& args, int capability) {
  const KvCacheView& cache = args.cache;
  const bool multiplied = (args.products == DType::kBF16 && capability >= 80) ||
                          (args.products == DType::kF16 && capability >= 75);
  const int64_t head_dim = args.q.shape[2];
  return HasKvScales(cache.keys.dtype) && multiplied &&
         HasCodeAttention(head_dim, cache.keys.shape[2]) && CodeSlots(head_dim, capability) > 0 &&
         IsAligned(cache.keys) && IsAligned(cache.values);
}

int64_t CodeAttentionWorkspaceBytes(const AttentionShape& shape) {
  if (!HasCodeAttention(shape.head_dim, kCodeTileKeys)) return 0;
  return CodePartialBytes({.rows = shape.tokens,
                           .sequences = shape.sequences,
                           .heads = shape.heads,
                           .kv_heads = shape.kv_heads,
                           .head_dim = shape.head_dim,
                           .max_context = shape.max_context_tokens});
}

}  // namespace tessera::kernels::cuda
