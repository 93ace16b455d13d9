// Grammars over tokens: which ids may follow in an answer that has a form. By xgrammar, which
// deploy/install_xgrammar fetches; where the build had none, HasTokenGrammars is false and every
// other call is refused (Unimplemented).
//
// A grammar is text in xgrammar's EBNF; its first rule is `root`. Compiling one takes from
// milliseconds to minutes and cannot be stopped from outside: whoever takes grammars from others
// bounds their size, and compiles on a thread that may be given up.
//
// Grammars that can read one text in very many ways make any token slow. What a matcher and a
// compile take of a core is bounded (kMaxMatcherSeconds and the constants beside it); past that
// they end with InvalidArgument.
//
// Thread rule: vocabularies and compiled grammars are immutable, for any thread; a matcher is one
// thread's. No call throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

// A matcher's call takes at most kMaxMatcherSeconds of a core, its masks kMeanMaskSeconds each over
// a long answer, and its parser looks at no more than
// kMaxMatcherStates states that it may keep, of some 50 bytes each. The
// part of a compile that tries tokens takes kMaxCompileSeconds.
inline constexpr double kMaxMatcherSeconds = 0.25;
inline constexpr double kMeanMaskSeconds = 0.025;
inline constexpr int64_t kMaxMatcherStates = 16'000'000;
inline constexpr double kMaxCompileSeconds = 60;

bool HasTokenGrammars();
// Unimplemented, and what to do: the error of every refusal.
absl::Status NoTokenGrammars();

// The bytes of each id of a tokenizer.
class TokenVocabulary {
 public:
  // `bytes`: by id, as they stand in an answer; empty: the id is in no answer that has a form.
  // `size`: ids of the model, no less; those without bytes are in none either.
  static absl::StatusOr<std::shared_ptr<const TokenVocabulary>> Create(
      const std::vector<std::string>& bytes, int64_t size);
  virtual ~TokenVocabulary() = default;
};

// Follows one answer.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  // The next id of the answer. False: the grammar has no such answer, and nothing changed; or
  // status() says why.
  virtual bool Accept(int32_t id) = 0;
  // How many of `drafts` may be next, one behind the other. Nothing changes. Once this takes
  // kMeanMaskSeconds, no further draft counts, in this call and in later ones.
  virtual size_t CountNext(std::span<const int32_t> drafts) = 0;
  // Which ids may be next: bit id % 32 of mask[id / 32]. [ceil(size / 32)]. None where a stop id
  // was accepted, and none where status() is not OK.
  virtual void FillMask(std::span<int32_t> mask) = 0;
  // The same behind `drafts`, which CountNext counted: none where it takes kMeanMaskSeconds.
  virtual void FillMaskBehind(std::span<const int32_t> drafts, std::span<int32_t> mask) = 0;
  // Why a call ended early, for good: from then on nothing is accepted.
  virtual absl::Status status() const = 0;
};

class TokenGrammar {
 public:
  static absl::StatusOr<std::shared_ptr<const TokenGrammar>> Compile(
      std::shared_ptr<const TokenVocabulary> vocabulary, const std::string& grammar);
  virtual ~TokenGrammar() = default;
  // `stop_ids` end an answer: they may come where the grammar may end, and nowhere else. At least
  // one. The matcher keeps what it needs of the grammar.
  virtual std::unique_ptr<TokenMatcher> NewMatcher(std::span<const int32_t> stop_ids) const = 0;
  virtual int64_t size_bytes() const = 0;  // roughly
};

}  // namespace tessera
