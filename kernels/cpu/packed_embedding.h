// Embedding from packed weights: rows of a linear, looked up by id.
#pragma once

#include <cstring>

#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace tessera::kernels {

// `unpack` as in LinearKernels. EmbeddingArgs::packed is given, `out` is f32.
template <void (*unpack)(const PackedWeights& weights, int64_t first_row,
                         const TensorView& out_f32)>
void PackedEmbedding(const EmbeddingArgs& args, ThreadPool& pool) {
  const PackedWeights& weights = *args.packed;
  pool.ParallelFor(args.ids.rows(), [&](int64_t i, int) {
    const int64_t row = args.ids.As<int32_t>()[i] - args.vocabulary_begin;
    TensorView out = args.out.Rows(1);
    out.data = reinterpret_cast<std::byte*>(args.out.Row<float>(i));
    if (row < 0 || row >= weights.spec.out_features) {
      std::memset(out.data, 0, weights.spec.in_features * sizeof(float));
    } else {
      unpack(weights, row, out);
    }
  });
}

}  // namespace tessera::kernels
