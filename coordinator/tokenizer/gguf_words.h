// How a GGUF file's BPE splits a text into words, by the name in tokenizer.ggml.pre. Source of
// names and patterns: llm_tokenizer_bpe in src/llama-vocab.cpp of llama.cpp, which copies them from
// the models' tokenizer.json. Pure, thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

// Kimi K2 splits so: runs of Chinese characters, then words by case without them.
inline constexpr std::string_view kKimiPattern =
    R"(\p{Han}+)"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct GgufWords {
  nlohmann::json normalizer;  // as tokenizer.json has them
  nlohmann::json pre_tokenizer;
  bool whole_words_first = false;  // a word that is a token is not merged (ignore_merges)
  bool adds_bos = false;           // where the file does not say
};

// InvalidArgument naming the known ones.
absl::StatusOr<GgufWords> FindGgufWords(std::string_view pre);

}  // namespace tessera::coordinator
