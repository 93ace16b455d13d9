// The tokenizer that a GGUF file holds (tokenizer.ggml.*), handed to the loaders of Hugging Face's
// own files: byte-level BPE (model "gpt2") as a tokenizer.json, SentencePiece ("llama") as a
// tokenizer.model. How a text is split into words before BPE is known by name alone
// (tokenizer.ggml.pre); names that are not known are refused. Thread-safe.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace tessera::coordinator {

// InvalidArgument naming file and key.
absl::StatusOr<TokenizerParts> LoadGgufTokenizer(const std::filesystem::path& path);

}  // namespace tessera::coordinator
