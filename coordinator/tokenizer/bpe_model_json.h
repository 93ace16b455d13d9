// The "model" of a tokenizer.json: a BPE vocabulary with its merges. Pure function, thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/tokenizer/bpe.h"
#include "coordinator/tokenizer/vocabulary.h"

namespace tessera::coordinator {

// What the model says beside its tokens, which go to *vocabulary. Ids in `merges` are checked.
struct BpeModelSpec {
  std::vector<BpeSpec::Merge> merges;
  bool ignore_merges = false;
  bool byte_fallback = false;
  bool fuse_unknown = false;
  std::optional<std::string> unknown_token;
};

// InvalidArgument names what is wrong or not supported (WordPiece, dropout, affixes, ...).
absl::StatusOr<BpeModelSpec> ReadBpeModel(const nlohmann::json& model, Vocabulary* vocabulary);

// The encoder's model, once all added tokens are known.
absl::StatusOr<Bpe> BuildBpe(BpeModelSpec model, bool byte_level, const Vocabulary& vocabulary);

}  // namespace tessera::coordinator
