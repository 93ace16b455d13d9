// What the keys of a GGUF file say, in the words of a Hugging Face folder: config.json and
// tokenizer_config.json as they would stand beside the same model. From here on the families, the
// tokenizer and the chat template read a GGUF file as they read a folder.
//
// What a file does not say stands beside the family (GgufFacts). Keys of the architecture that are
// not understood are refused by name. Pure, thread-safe; errors name file and key.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/model/gguf_header.h"

namespace tessera {

// `rope_factors` of tensors: divisors of the rope's frequencies, empty where the file has none.
struct GgufRopeFactors {
  std::vector<double> all;            // rope_freqs.weight (Llama 3.1)
  std::vector<double> short_, long_;  // rope_factors_short.weight, rope_factors_long.weight
};

absl::StatusOr<nlohmann::json> GgufConfig(const GgufHeader& header, const GgufRopeFactors& factors,
                                          std::string_view file);

// bos_token, eos_token, unk_token, add_bos_token, add_eos_token, add_prefix_space, chat_template.
nlohmann::json GgufTokenizerConfig(const GgufHeader& header);

}  // namespace tessera
