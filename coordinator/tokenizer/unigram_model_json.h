// The "model" of a tokenizer.json where it is a unigram model. Pure functions, thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/unigram.h"
#include "coordinator/tokenizer/vocabulary.h"

namespace tessera::coordinator {

// What the model says beside its pieces, which go to *vocabulary.
struct UnigramModelSpec {
  std::vector<double> scores;  // by id
  int32_t unknown = 0;         // an id
  bool byte_fallback = false;
};

// Whether it is one.
bool IsUnigramModel(const nlohmann::json& model);

// InvalidArgument names what is wrong, or not supported.
absl::StatusOr<UnigramModelSpec> ReadUnigramModel(const nlohmann::json& model,
                                                  Vocabulary* vocabulary);

// The encoder's model, once all added tokens are known.
absl::StatusOr<Unigram> BuildUnigram(UnigramModelSpec model, const Vocabulary& vocabulary);

}  // namespace tessera::coordinator
