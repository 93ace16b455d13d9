// Any bytes as a tekken.json where they begin with a brace, else as a tiktoken file of Kimi's: an
// error that names the file, or a hard text encoded and decoded.

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "coordinator/tokenizer/rank_tokenizer.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "tests/fuzz/folder_under_test.h"

namespace {

using tessera::coordinator::LoadTekken;
using tessera::coordinator::LoadTiktoken;
using tessera::coordinator::Tokenizer;
using tessera::coordinator::TokenizerConfig;

constexpr std::string_view kText =
    "It's  <s>12 e\u0301\u0316\u2581天地 \U0001F600\n\n[INST]<|x|> aaaaaaaa</s> ";

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tessera::tests::FolderUnderTest folder;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool tekken = input.starts_with('{');
  const std::string_view name = tekken ? "tekken.json" : "tiktoken.model";
  folder.Write(name, input);
  TokenizerConfig config;
  if (!tekken) config.tokenizer_class = "TikTokenTokenizer";
  auto parts = tekken ? LoadTekken(folder.path() / name, config)
                      : LoadTiktoken(folder.path() / name, config);
  if (!parts.ok()) {
    Require(parts.status().code() == absl::StatusCode::kInvalidArgument ||
            parts.status().code() == absl::StatusCode::kResourceExhausted);
    Require(parts.status().message().find(name.data()) != absl::string_view::npos);
    return 0;
  }
  const Tokenizer tokenizer(*std::move(parts));
  for (const bool parse : {true, false}) {
    const auto ids = tokenizer.Encode(kText, {.parse_special_tokens = parse});
    if (!ids.ok()) continue;
    for (const std::int32_t id : *ids) Require(id >= 0 && id < tokenizer.vocabulary_size());
    Require(tessera::coordinator::FindInvalidUtf8(tokenizer.Decode(*ids, false)) ==
            std::string_view::npos);
  }
  return 0;
}
