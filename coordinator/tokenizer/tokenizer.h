// A model's tokenizer: text to token ids and back, as Hugging Face's tokenizers and transformers do
// it for the same folder.
//
// Immutable after Load; every method may be called from any thread. Owns all it needs: the folder
// may go away. Encoding takes time linear in the text (n log n at worst) and does not block.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/tokenizer/text_encoder.h"
#include "coordinator/tokenizer/text_segment.h"
#include "coordinator/tokenizer/token_decoder.h"

namespace tessera::coordinator {

struct EncodeOptions {
  bool add_special_tokens = true;    // what the post-processor puts around a text, such as bos
  bool parse_special_tokens = true;  // false: transformers' split_special_tokens
};

// What a loader makes of a model folder.
struct TokenizerParts {
  std::unique_ptr<TextEncoder> encoder;
  TokenDecoder decoder;
  std::unordered_map<std::string, int32_t> ids;  // of model and added tokens
  std::vector<int32_t> prefix;                   // put before a text by add_special_tokens
  std::vector<int32_t> suffix;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
};

class Tokenizer {
 public:
  // Reads tokenizer.json, else tokenizer.model, else vocab.json with merges.txt, else tekken.json,
  // else a tiktoken file, and beside them
  // tokenizer_config.json, special_tokens_map.json and added_tokens.json. NotFound where the folder
  // has none of the first. Of a GGUF file reads its keys. InvalidArgument naming file and reason
  // where one cannot be used.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::filesystem::path& model_folder);

  explicit Tokenizer(TokenizerParts parts);

  // InvalidArgument naming the byte offset where the text is not UTF-8.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view utf8_text,
                                              const EncodeOptions& options) const;

  // No more than Encode makes of the text, found without encoding it: from the longest token. 0
  // where the model drops or joins text, so that nothing is known.
  int64_t MinTokens(std::string_view utf8_text) const;

  // The segments as one text: pre-tokenisation and merges run across their borders. Special tokens
  // are recognised only in the template's segments; added tokens that are not special everywhere.
  // With add_special_tokens, a bos that the template itself begins with is not put twice.
  absl::StatusOr<std::vector<int32_t>> EncodeSegments(absl::Span<const TextSegment> segments,
                                                      bool add_special_tokens) const;

  // The text of a whole sequence. Invalid bytes become U+FFFD; ids without a token add nothing.
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const;

  // The raw bytes of one id as it stands in output text (anywhere but first); maybe a part of a
  // character. "" outside of the vocabulary.
  std::string TokenBytes(int32_t id) const { return std::string(parts_.decoder.Bytes(id)); }
  // The vocabulary's own spelling; "" outside of it.
  std::string TokenText(int32_t id) const { return std::string(parts_.decoder.Text(id)); }

  // One more than the highest id.
  int32_t vocabulary_size() const { return parts_.decoder.size(); }
  std::optional<int32_t> TokenId(std::string_view token_text) const;
  bool IsSpecial(int32_t id) const { return parts_.decoder.IsSpecial(id); }
  std::optional<int32_t> bos_id() const { return parts_.bos_id; }
  std::optional<int32_t> eos_id() const { return parts_.eos_id; }
  // Whether add_special_tokens puts bos before a text.
  bool adds_bos() const;

  const TokenDecoder& decoder() const { return parts_.decoder; }

 private:
  absl::StatusOr<std::vector<int32_t>> EncodeView(const MarkedView& input) const;

  TokenizerParts parts_;
};

}  // namespace tessera::coordinator
