// Filling in the middle: a completion with a `suffix`, for models whose tokenizers mark what stands
// before and behind the gap (Qwen2.5-Coder, StarCoder2, DeepSeek-Coder, CodeLlama, ...).
//
// Thread rule: pure functions. Errors: InvalidArgument naming the field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {

struct Infill {
  std::vector<int32_t> prompt;    // prefix, suffix and the marks
  std::vector<int32_t> stop_ids;  // what else ends the middle: marks of another gap or file
};

// `prefix` and `suffix` are a client's text: what is spelled like a mark in them is none. Begins
// with bos where `add_special_tokens` and the tokenizer puts one before texts.
absl::StatusOr<Infill> EncodeInfill(const ServedModel& model, const std::string& prefix,
                                    const std::string& suffix, bool add_special_tokens);

}  // namespace tessera::coordinator
