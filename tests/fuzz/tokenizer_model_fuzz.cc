// Any bytes as a tokenizer.model: read, and where it is accepted, a hard text encoded and decoded.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/tokenizer/sentencepiece_tokenizer.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kText =
    "It's  <s>12 e\u0301\u0316\u2581天地 \U0001F600\n\n<|x|> aaaaaaaa</s> ";

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto parts = tessera::coordinator::ParseSentencePiece(
      std::string(reinterpret_cast<const char*>(data), size), "tokenizer.model", {});
  if (!parts.ok()) {
    Require(!parts.status().message().empty());
    return 0;
  }
  const tessera::coordinator::Tokenizer tokenizer(*std::move(parts));
  const auto ids = tokenizer.Encode(kText, {});
  if (!ids.ok()) return 0;
  for (int32_t id : *ids) Require(id >= 0 && id < tokenizer.vocabulary_size());
  Require(tessera::coordinator::FindInvalidUtf8(tokenizer.Decode(*ids, false)) ==
          std::string_view::npos);
  return 0;
}
