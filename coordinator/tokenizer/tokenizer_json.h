// Loaders of Hugging Face's own tokenizer files: tokenizer.json, and the older pair vocab.json and
// merges.txt. Only BPE models; what is not supported is refused by name. Pure but for reading the
// file; thread-safe.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/tokenizer_config.h"

namespace tessera::coordinator {

absl::StatusOr<TokenizerParts> LoadTokenizerJson(const std::filesystem::path& path,
                                                 const TokenizerConfig& config);

// The same for text that is already here.
absl::StatusOr<TokenizerParts> ParseTokenizerJson(std::string_view text,
                                                  const TokenizerConfig& config);

// The same for a document that was made elsewhere.
absl::StatusOr<TokenizerParts> TokenizerOfDocument(const nlohmann::json& document,
                                                   const TokenizerConfig& config);

// GPT-2's form (OPT): reads folder/vocab.json and folder/merges.txt.
absl::StatusOr<TokenizerParts> LoadVocabAndMerges(const std::filesystem::path& folder,
                                                  const TokenizerConfig& config);

}  // namespace tessera::coordinator
