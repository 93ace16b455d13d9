// Which part of a model a worker loads, in which types, for steps of which size. Plain values.
#pragma once

#include <cstdint>
#include <filesystem>

#include "kernels/dtype.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"

namespace tessera::worker {

// How large one step may be; sizes every buffer.
struct StepLimits {
  int64_t max_tokens = 2048;            // rows in one step
  int64_t max_sequences = 256;          // sequences in one step
  int64_t max_logit_rows = 256;         // rows of one step whose logits are asked for
  int64_t max_blocks_per_sequence = 0;  // block table width = ceil(max_model_len / block_tokens)
  bool windows_apart = false;           // steps may have block tables of window layers
};

struct ModelOptions {
  std::filesystem::path folder;                         // Hugging Face folder
  v1::Model model;                                      // its shape, from proto/model/model_folder
  v1::WorkerShare share;                                // the part of it that is ours
  kernels::DType weight_dtype = kernels::DType::kBF16;  // kF32, kF16, kBF16; kI8 = int8
  kernels::DType kv_dtype = kernels::DType::kBF16;
  // kBF16, kF16: activations may be rounded to it where they meet weights of that type or int8
  // (kernels/ops.h, LinearArgs::products).
  kernels::DType product_dtype = kernels::DType::kF32;
  int64_t int8_group_size = 128;
  // The same two of the model's draft_model, where the share has it.
  kernels::DType draft_weight_dtype = kernels::DType::kBF16;
  kernels::DType draft_product_dtype = kernels::DType::kF32;
  // Longest sequence in tokens; 0: Model.max_positions. Decides which frequencies longrope has, so
  // it is the same for all workers of a replica.
  int64_t max_model_len_tokens = 0;
  // bfloat16 weights whose file is in the system's cache are not packed by Load but by PackWeights.
  bool pack_later = false;
  StepLimits limits;
};

}  // namespace tessera::worker
