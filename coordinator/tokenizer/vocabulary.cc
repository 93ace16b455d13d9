#include "coordinator/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/token_limits.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

absl::Status CheckSize(std::string_view text, size_t limit) {
  if (!text.empty() && text.size() <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("token ", Excerpt(text), " has ", text.size(), " bytes; allowed is 1 to ", limit));
}

}  // namespace

absl::Status Vocabulary::CheckId(std::string_view text, int64_t id) const {
  const int64_t limit =
      std::min<int64_t>(kMaxTokenId, static_cast<int64_t>(2 * announced_ + kMaxUnusedIds));
  if (id >= 0 && id <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("token ", Excerpt(text), " has id ", id,
                                           "; allowed is 0 to ", limit,
                                           " for a vocabulary of this size"));
}

absl::Status Vocabulary::AddModelToken(std::string_view text, int64_t id) {
  if (auto status = CheckId(text, id); !status.ok()) return status;
  if (auto status = CheckSize(text, kMaxTokenBytes); !status.ok()) return status;
  if (static_cast<size_t>(id) >= model_tokens_.size()) model_tokens_.resize(id + 1);
  std::string& slot = model_tokens_[id];
  if (!slot.empty()) {
    return absl::InvalidArgumentError(
        StrCat("tokens ", Excerpt(slot), " and ", Excerpt(text), " have the same id ", id));
  }
  slot = text;
  ids_.emplace(text, static_cast<int32_t>(id));
  ++model_count_;
  return absl::OkStatus();
}

int32_t Vocabulary::NextAddedId() const {
  int32_t next = static_cast<int32_t>(model_count_);
  for (const AddedToken& token : added_) next = std::max(next, token.id + 1);
  while (next < static_cast<int32_t>(model_tokens_.size()) && !model_tokens_[next].empty()) ++next;
  return next;
}

absl::Status Vocabulary::AddAddedToken(AddedToken token) {
  if (added_by_text_.contains(token.content)) return absl::OkStatus();
  if (auto status = CheckSize(token.content, kMaxAddedTokenBytes); !status.ok()) return status;
  const auto known = ids_.find(token.content);
  if (known != ids_.end()) {
    if (token.id >= 0 && token.id != known->second) {
      return absl::InvalidArgumentError(StrCat("added token ", Excerpt(token.content), " has id ",
                                               token.id, " but the model's vocabulary says ",
                                               known->second));
    }
    token.id = known->second;
  } else {
    if (token.id < 0) token.id = NextAddedId();
    if (auto status = CheckId(token.content, token.id); !status.ok()) return status;
    const bool model_has =
        static_cast<size_t>(token.id) < model_tokens_.size() && !model_tokens_[token.id].empty();
    if (model_has || added_by_id_.contains(token.id)) {
      return absl::InvalidArgumentError(StrCat("added token ", Excerpt(token.content), " has id ",
                                               token.id, ", which another token has"));
    }
    ids_.emplace(token.content, token.id);
  }
  added_by_text_.emplace(token.content, added_.size());
  added_by_id_.emplace(token.id, added_.size());
  added_.push_back(std::move(token));
  return absl::OkStatus();
}

std::optional<int32_t> Vocabulary::Find(std::string_view text) const {
  const auto it = ids_.find(std::string(text));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::vector<bool> Vocabulary::SpecialModelTokens() const {
  std::vector<bool> special(model_tokens_.size(), false);
  for (const AddedToken& token : added_) {
    if (token.special && static_cast<size_t>(token.id) < special.size()) special[token.id] = true;
  }
  return special;
}

std::vector<TokenDecoder::Entry> Vocabulary::Entries() const {
  std::vector<TokenDecoder::Entry> entries(model_tokens_.size());
  for (size_t id = 0; id < model_tokens_.size(); ++id) entries[id].text = model_tokens_[id];
  for (const AddedToken& token : added_) {
    if (static_cast<size_t>(token.id) >= entries.size()) entries.resize(token.id + 1);
    entries[token.id] = {token.content, token.special};
  }
  return entries;
}

}  // namespace tessera::coordinator
