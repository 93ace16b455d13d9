// The "post_processor" of a tokenizer.json, as far as ids go: what is put around a text.
//
// Understood: TemplateProcessing with one $A, RobertaProcessing, BertProcessing, ByteLevel (which
// changes offsets only) and a Sequence of them. Any other is refused by name. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;

  // null: puts nothing. Ids must lie below vocabulary_size.
  static absl::StatusOr<PostProcessor> FromJson(const nlohmann::json& spec,
                                                int32_t vocabulary_size);
};

}  // namespace tessera::coordinator
