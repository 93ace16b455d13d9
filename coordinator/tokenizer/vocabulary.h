// The tokens of a model while its files are read: the model's own and the added ones, with every
// rule about their ids. Not thread-safe; made and used by one loader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/token_decoder.h"

namespace tessera::coordinator {

class Vocabulary {
 public:
  // So many tokens will come: ids may lie at most twice as high, and 65536, so that a small file
  // cannot ask for a large table.
  void Announce(size_t tokens) { announced_ += tokens; }

  // A token of the model. InvalidArgument where the id is out of range or taken.
  absl::Status AddModelToken(std::string_view text, int64_t id);

  // An added token. One that is there already stays as it is. A text of the model keeps the model's
  // id; a new text takes token.id or, where that is -1, the next free id, as Hugging Face counts.
  // InvalidArgument where the ids contradict each other.
  absl::Status AddAddedToken(AddedToken token);

  std::optional<int32_t> Find(std::string_view text) const;
  // The model's tokens by id, without those that were only added.
  const std::vector<std::string>& model_tokens() const { return model_tokens_; }
  const std::vector<AddedToken>& added() const { return added_; }
  // By id, as long as model_tokens.
  std::vector<bool> SpecialModelTokens() const;
  // All tokens by id.
  std::vector<TokenDecoder::Entry> Entries() const;
  std::unordered_map<std::string, int32_t> TakeIds() { return std::move(ids_); }

 private:
  int32_t NextAddedId() const;
  absl::Status CheckId(std::string_view text, int64_t id) const;

  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::string> model_tokens_;  // "" where the model has no such id
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, size_t> added_by_text_;
  std::unordered_map<int32_t, size_t> added_by_id_;
  size_t model_count_ = 0;
  size_t announced_ = 0;
};

}  // namespace tessera::coordinator
