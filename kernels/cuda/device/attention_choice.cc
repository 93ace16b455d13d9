#include "kernels/cuda/device/attention_choice.h"

#include "kernels/cuda/launch/attention_shapes.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int64_t kCopyBytes = 16;  // of one asynchronous copy
static_assert(kFewRows == kFewSequenceRows);

// The start of every row.
bool IsAligned(const TensorView& view, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(view.data) % bytes == 0 &&
         view.row_stride * SizeInBytes(view.dtype) % bytes == 0;
}

bool IsPaired(const TensorView& view) { return IsAligned(view, 2 * SizeInBytes(view.dtype)); }

}  // namespace

AttentionChoice ChooseAttention(const AttentionArgs& args, int capability) {
  const DType cached = args.cache.keys.dtype;
  const bool multiplied =
      (cached == DType::kBF16 && capability >= 80) || (cached == DType::kF16 && capability >= 75);
  const bool typed =
      args.products == cached && (args.q.dtype == cached || args.q.dtype == DType::kF32);
  if (!multiplied || !typed) return AttentionChoice::kPlainType;
  const int64_t head_dim = args.q.shape[2];
  if (!HasTensorAttention(head_dim) && !HasWideAttention(head_dim, capability)) {
    return AttentionChoice::kPlainHead;
  }
  const bool aligned = IsAligned(args.cache.keys, kCopyBytes) &&
                       IsAligned(args.cache.values, kCopyBytes) && IsPaired(args.q) &&
                       IsPaired(args.out);
  return aligned ? AttentionChoice::kTensorCores : AttentionChoice::kPlainAlignment;
}

int64_t TensorAttentionWorkspaceBytes(const AttentionShape& shape) {
  if (!HasTensorAttention(shape.head_dim) && !IsWideHead(shape.head_dim)) return 0;
  if (shape.tokens < 1 || shape.sequences < 1 || shape.heads < 1) return 0;
  return PartialBytes({shape.tokens, shape.sequences, shape.heads, shape.kv_heads, shape.head_dim,
                       shape.max_context_tokens});
}

}  // namespace tessera::kernels::cuda
