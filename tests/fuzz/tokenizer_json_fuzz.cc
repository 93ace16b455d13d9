// Any bytes as a tokenizer.json: read, and where it is accepted, a hard text encoded and decoded.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/tokenizer/incremental_decoder.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "coordinator/tokenizer/tokenizer_json.h"

namespace {

using tessera::coordinator::FindInvalidUtf8;
using tessera::coordinator::IncrementalDecoder;
using tessera::coordinator::ParseTokenizerJson;
using tessera::coordinator::TextSegment;
using tessera::coordinator::Tokenizer;

constexpr std::string_view kText =
    "It's  <s>12 e\u0301\u0316\u2581天地 \U0001F600\n\n<|x|> aaaaaaaa</s> ";

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckIds(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  IncrementalDecoder decoder(tokenizer, false);
  std::string text;
  for (const int32_t id : ids) {
    Require(id >= 0 && id < tokenizer.vocabulary_size());
    const std::string part = decoder.Append(id);
    Require(FindInvalidUtf8(part) == std::string::npos);
    text += part;
  }
  Require(text + decoder.Flush() == tokenizer.Decode(ids, false));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto parts = ParseTokenizerJson({reinterpret_cast<const char*>(data), size}, {});
  if (!parts.ok()) {
    Require(parts.status().code() == absl::StatusCode::kInvalidArgument ||
            parts.status().code() == absl::StatusCode::kResourceExhausted);
    Require(!parts.status().message().empty());
    return 0;
  }
  const Tokenizer tokenizer(*std::move(parts));
  for (const bool parse : {true, false}) {
    const auto ids = tokenizer.Encode(kText, {.parse_special_tokens = parse});
    if (ids.ok()) CheckIds(tokenizer, *ids);
  }
  const std::vector<TextSegment> client = {{std::string(kText), false}};
  const auto ids = tokenizer.EncodeSegments(client, false);
  if (ids.ok()) CheckIds(tokenizer, *ids);
  return 0;
}
