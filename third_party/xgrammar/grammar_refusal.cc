#include "third_party/xgrammar/token_grammar.h"

namespace tessera {

absl::Status NoTokenGrammars() {
  return absl::UnimplementedError(
      "this build has no structured output: run deploy/install_xgrammar and build again");
}

}  // namespace tessera
