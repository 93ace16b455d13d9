#pragma once

// How a GGUF file's BPE splits a text into words, by the name in tokenizer.ggml.pre. Source of
// names and patterns: llm_tokenizer_bpe in src/llama-vocab.cpp of llama.cpp, which copies them from
// the models' tokenizer.json. Pure, thread-safe.

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

struct GgufWords {
  nlohmann::json normalizer;  // as tokenizer.json has them
  nlohmann::json pre_tokenizer;
  bool whole_words_first = false;  // a word that is a token is not merged (ignore_merges)
  bool adds_bos = false;           // where the file does not say
};

// InvalidArgument naming the known ones.
absl::StatusOr<GgufWords> FindGgufWords(std::string_view pre);

}  // namespace tessera::coordinator
