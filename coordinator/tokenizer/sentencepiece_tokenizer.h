// tokenizer.model: a SentencePiece model (unigram or BPE), encoded by libsentencepiece itself, with
// added tokens around it as transformers' slow LlamaTokenizer handles them, in its `legacy` form
// (the default) and the later one. Thread-safe.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/tokenizer_config.h"

namespace tessera::coordinator {

absl::StatusOr<TokenizerParts> LoadSentencePiece(const std::filesystem::path& path,
                                                 const TokenizerConfig& config);

// The same for a file's bytes that are already here; `name` is used in errors.
absl::StatusOr<TokenizerParts> ParseSentencePiece(std::string bytes, std::string_view name,
                                                  const TokenizerConfig& config);

}  // namespace tessera::coordinator
