// Activations and workspaces of one worker's forward pass, allocated once for the largest step.
//
// Sizes are in elements of f32, the type activations have on every device so far. Buffers whose
// lives do not overlap share memory: qkv and the ffn's inner columns, attention's output and the
// activated columns. Ownership: everything but the attention workspace lives in `memory`.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "worker/model/model.h"
#include "worker/weights/weights.h"

namespace tessera::worker {

struct RopeBuffers {
  kernels::TensorView cos_sin;      // [tokens, rotary_dim]
  kernels::TensorView frequencies;  // [rotary_dim / 2]
};

struct ModelBuffers {
  kernels::TensorView hidden;      // [tokens, hidden] the residual stream
  kernels::TensorView normed;      // [tokens, hidden] input of a block
  kernels::TensorView block_out;   // [tokens, hidden] output of a block, not yet added
  kernels::TensorView wide;        // [elements] qkv, or gate_up of the ffn's rows
  kernels::TensorView inner;       // [elements] attention output, or activated ffn columns
  kernels::TensorView narrow;      // [tokens, embedding width], where it is not hidden
  std::vector<RopeBuffers> ropes;  // of each of the model's unlike ropes

  kernels::TensorView shared_gate;     // [tokens, 1]
  kernels::TensorView router_logits;   // [tokens, experts]
  kernels::TensorView expert_weights;  // [tokens, per token]
  kernels::TensorView expert_slots;    // [tokens, per token] i32
  kernels::TensorView source_rows;     // [tokens * per token] i32
  kernels::TensorView expert_offsets;  // [experts + 1] i32
  kernels::TensorView expert_out;      // [tokens * per token, hidden]
  // Where layers need them, else empty.
  kernels::TensorView per_layer;    // [tokens, layers * width] what layers have of a token
  kernels::TensorView apart;        // [tokens, hidden] router's input, then output of experts
  kernels::TensorView ones;         // [elements] 1, for norms without weights and as weights
  kernels::TensorView own_numbers;  // [tokens, or heads of them] i32: 0, 1, ...

  kernels::TensorView logit_hidden;  // [logit rows, hidden] of the residual stream
  kernels::TensorView logit_narrow;  // [logit rows, embedding width], where it is not hidden
  kernels::TensorView logits;        // [logit rows, vocabulary]; on rank 0
  kernels::TensorView rank_sizes;  // [1 + kMaxGroupSize] i32: ids of own part, then of each rank's
  // Where ranks have parts of the vocabulary, else empty.
  kernels::TensorView logit_part;   // [logit rows, own part of the vocabulary]
  kernels::TensorView logit_parts;  // [elements] all parts, one behind the other; on rank 0
  kernels::TensorView row_numbers;  // [logit rows] i32: 0, 1, ...; on rank 0
  kernels::TensorView workspace;    // [bytes] of the linears

  kernels::Buffer memory;
  int64_t bytes = 0;
};

// The first rows * columns elements of a shared buffer, as a matrix.
inline kernels::TensorView Matrix(const kernels::TensorView& buffer, int64_t rows,
                                  int64_t columns) {
  return kernels::TensorView(buffer.data, buffer.dtype, {rows, columns});
}

absl::StatusOr<ModelBuffers> AllocateBuffers(const ModelOptions& options,
                                             const ModelWeights& weights, kernels::Device& device);

// The largest kernels::StagedGroup::StagingBytes of what the ranks of a stage do with them.
int64_t GroupStagingBytes(const ModelBuffers& buffers);

}  // namespace tessera::worker
