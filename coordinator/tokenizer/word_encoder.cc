#include "coordinator/tokenizer/word_encoder.h"

#include <algorithm>
#include <utility>

namespace tessera::coordinator {

namespace {

TokenReach ReachOf(const std::vector<AddedToken>& added, const Normalizer& normalizer,
                   const PreTokenizer& pre_tokenizer, const WordModel& model) {
  TokenReach reach;
  const int64_t most = std::visit([](const auto& of) { return of.max_token_bytes(); }, model);
  if (pre_tokenizer.drops_text() || most == 0) return reach;
  reach.max_bytes = most;
  for (const AddedToken& token : added) {
    reach.max_bytes = std::max(reach.max_bytes, static_cast<int64_t>(token.content.size()));
    reach.swallows_space = reach.swallows_space || token.lstrip || token.rstrip;
  }
  reach.max_bytes *= normalizer.max_shrink();
  return reach;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WordEncoder>> WordEncoder::Make(std::vector<AddedToken> added,
                                                               Normalizer normalizer,
                                                               PreTokenizer pre_tokenizer,
                                                               WordModel model) {
  const TokenReach reach = ReachOf(added, normalizer, pre_tokenizer, model);
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken& token : added) {
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    MarkedText content{token.content, SpecialTokens::kEverywhere, ""};
    if (auto status = normalizer.Apply(&content); !status.ok()) return status;
    token.content = std::move(content.text);
    normalized.push_back(std::move(token));
  }
  return std::unique_ptr<WordEncoder>(
      new WordEncoder(AddedTokenMatcher(std::move(raw)), AddedTokenMatcher(std::move(normalized)),
                      std::move(normalizer), std::move(pre_tokenizer), std::move(model), reach));
}

WordEncoder::WordEncoder(AddedTokenMatcher raw, AddedTokenMatcher normalized, Normalizer normalizer,
                         PreTokenizer pre_tokenizer, WordModel model, TokenReach reach)
    : raw_(std::move(raw)),
      normalized_(std::move(normalized)),
      normalizer_(std::move(normalizer)),
      pre_tokenizer_(std::move(pre_tokenizer)),
      model_(std::move(model)),
      reach_(reach) {}

absl::Status WordEncoder::Encode(const MarkedView& input, std::vector<int32_t>* ids) const {
  Scratch scratch;
  for (const AddedTokenMatcher::Piece& piece : raw_.Split(input)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
      continue;
    }
    const MarkedView text = input.Slice(piece.begin, piece.end);
    absl::Status status;
    if (normalizer_.empty()) {
      status = EncodeNormalized(text, piece.begin == 0, &scratch, ids);
    } else {
      MarkedText changed{std::string(text.text), text.specials, std::string(text.mask)};
      status = normalizer_.Apply(&changed);
      if (status.ok()) status = EncodeNormalized(changed.View(), piece.begin == 0, &scratch, ids);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void WordEncoder::EncodeWord(std::string_view word, Scratch* scratch,
                             std::vector<int32_t>* ids) const {
  if (const Bpe* bpe = std::get_if<Bpe>(&model_)) return bpe->Encode(word, &scratch->bpe, ids);
  std::get<Unigram>(model_).Encode(word, &scratch->unigram, ids);
}

absl::Status WordEncoder::EncodeNormalized(const MarkedView& input, bool at_start, Scratch* scratch,
                                           std::vector<int32_t>* ids) const {
  for (const AddedTokenMatcher::Piece& piece : normalized_.Split(input)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
      continue;
    }
    const auto text = input.text.substr(piece.begin, piece.end - piece.begin);
    const bool first = at_start && piece.begin == 0;
    if (auto status = pre_tokenizer_.Split(text, first, &scratch->words); !status.ok()) {
      return status;
    }
    for (const std::string_view word : scratch->words.views) {
      EncodeWord(word, scratch, ids);
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
