// Tokenizers that are a list of byte strings by rank, of which byte-pair encoding makes the lowest
// rank first: Mistral's tekken.json, which says how it splits text and what its special tokens are,
// and tiktoken files, which say neither: Kimi's, whose pattern is known and whose special tokens
// are in tokenizer_config.json. They are handed to the loader of tokenizer.json, with the merges
// that the ranks amount to. Pure but for reading the file; thread-safe.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/tokenizer_config.h"

namespace tessera::coordinator {

// InvalidArgument naming file and reason.
absl::StatusOr<TokenizerParts> LoadTekken(const std::filesystem::path& path,
                                          const TokenizerConfig& config);
absl::StatusOr<TokenizerParts> LoadTiktoken(const std::filesystem::path& path,
                                            const TokenizerConfig& config);

}  // namespace tessera::coordinator
