// What a GGUF file says of how tokens are drawn, in the words of a Hugging Face folder's
// generation_config.json.
//
// Pure, thread-safe; errors name file and key.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model/gguf_header.h"

namespace tessera {

// suppress_tokens, and temperature, top_k, top_p, min_p and repetition_penalty where the file
// recommends them (general.sampling.*). InvalidArgument for a recommendation that is not
// understood and does something.
absl::StatusOr<nlohmann::json> GgufGenerationConfig(const GgufHeader& header,
                                                    std::string_view file);

}  // namespace tessera
