// A Llama, or a Qwen3 with experts, with random weights as a Hugging Face folder, written as fast
// as the disk takes it, by nothing but C++: for machines that have no Python. Its tokenizer is the
// shipped model's with made-up tokens behind.
//
// Thread rule: pure functions of their arguments, but for the files. Errors name the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::bench {

struct ModelShape {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  int64_t vocabulary = 0, context = 0;
  // Experts of each layer, of `ffn` columns, and those that a row uses; 0: a Llama. In bfloat16.
  int64_t experts = 0, experts_used = 0;
};

// "8b" (Llama-3-8B's), "1b" (TinyLlama's), "30b-a3b" (Qwen3-30B-A3B's), "tiny", "tiny-experts".
// InvalidArgument: another name.
absl::StatusOr<ModelShape> NamedShape(std::string_view name);

enum class Weights {
  kBFloat16,
  kInt4,  // AWQ, in groups of 128; embeddings, norms and head in bfloat16
};

// Files are complete once it returns; what stands in `folder` is overwritten. `tokenizer` is a
// folder with tokenizer.json, tokenizer_config.json, generation_config.json and config.json of a
// Llama. Weights are of a normal distribution (0.02), those of int4 of a uniform one as wide, the
// same in each run; norms are 1.
absl::Status WriteRandomCheckpoint(const ModelShape& shape, Weights weights,
                                   const std::filesystem::path& tokenizer,
                                   const std::filesystem::path& folder);

}  // namespace tessera::bench
