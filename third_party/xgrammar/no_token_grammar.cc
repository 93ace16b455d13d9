// For builds without xgrammar.
#include "third_party/xgrammar/token_grammar.h"

namespace tessera {

bool HasTokenGrammars() { return false; }

absl::StatusOr<std::shared_ptr<const TokenVocabulary>> TokenVocabulary::Create(
    const std::vector<std::string>&, int64_t) {
  return NoTokenGrammars();
}

absl::StatusOr<std::shared_ptr<const TokenGrammar>> TokenGrammar::Compile(
    std::shared_ptr<const TokenVocabulary>, const std::string&) {
  return NoTokenGrammars();
}

}  // namespace tessera
