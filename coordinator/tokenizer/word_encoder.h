// The pipeline of a tokenizer.json: added tokens, normaliser, added tokens of normalised text,
// pre-tokeniser, and the words' own model. Equal to Hugging Face's TokenizerImpl::encode without
// its post-processor. Immutable, thread-safe.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/bpe.h"
#include "coordinator/tokenizer/normalizer.h"
#include "coordinator/tokenizer/text/pre_tokenizer.h"
#include "coordinator/tokenizer/text_encoder.h"
#include "coordinator/tokenizer/unigram.h"

namespace tessera::coordinator {

// What makes ids of words.
using WordModel = std::variant<Bpe, Unigram>;

class WordEncoder final : public TextEncoder {
 public:
  // `added`: all added tokens; those marked `normalized` are normalised here, as the text will be.
  static absl::StatusOr<std::unique_ptr<WordEncoder>> Make(std::vector<AddedToken> added,
                                                           Normalizer normalizer,
                                                           PreTokenizer pre_tokenizer,
                                                           WordModel model);

  // The added tokens that match normalised text, normalised themselves.
  const std::vector<AddedToken>& normalized() const { return normalized_.tokens(); }

  absl::Status Encode(const MarkedView& input, std::vector<int32_t>* ids) const override;
  TokenReach reach() const override { return reach_; }

 private:
  struct Scratch {
    Words words;
    BpeScratch bpe;
    UnigramScratch unigram;
  };

  WordEncoder(AddedTokenMatcher raw, AddedTokenMatcher normalized, Normalizer normalizer,
              PreTokenizer pre_tokenizer, WordModel model, TokenReach reach);
  void EncodeWord(std::string_view word, Scratch* scratch, std::vector<int32_t>* ids) const;
  absl::Status EncodeNormalized(const MarkedView& input, bool at_start, Scratch* scratch,
                                std::vector<int32_t>* ids) const;

  AddedTokenMatcher raw_;
  AddedTokenMatcher normalized_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  WordModel model_;
  TokenReach reach_;
};

}  // namespace tessera::coordinator
