// Any text as tokenizer_config.json and, after zero bytes, as special_tokens_map.json and
// added_tokens.json, beside a tokenizer.json: an error that says something, or a tokenizer and a
// chat template that work.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/jinja/chat_template.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "tests/fuzz/folder_under_test.h"

namespace {

using tessera::coordinator::ChatTemplate;
using tessera::coordinator::TextSegment;
using tessera::coordinator::Tokenizer;

constexpr std::string_view kTokenizer = R"({
  "added_tokens": [{"id": 5, "content": "<|end|>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<": 3, "s": 4},
            "merges": ["a b"]}
})";

void Require(bool holds) {
  if (!holds) std::abort();
}

const tessera::tests::FolderUnderTest& Folder() {
  static const tessera::tests::FolderUnderTest folder;
  static const bool written = [] {
    folder.Write("tokenizer.json", kTokenizer);
    return true;
  }();
  (void)written;
  return folder;
}

bool Refused(const absl::Status& status) {
  if (status.ok()) return false;
  Require(!status.message().empty());
  Require(status.code() == absl::StatusCode::kInvalidArgument ||
          status.code() == absl::StatusCode::kResourceExhausted ||
          status.code() == absl::StatusCode::kNotFound);
  return true;
}

void WriteFiles(std::string_view input) {
  constexpr std::array<const char*, 3> kNames = {"tokenizer_config.json", "special_tokens_map.json",
                                                 "added_tokens.json"};
  for (const char* name : kNames) {
    const std::size_t end = input.find('\0');
    const std::string_view text = input.substr(0, end);
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
    Folder().Write(name, text.empty() ? "{}" : text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  WriteFiles({reinterpret_cast<const char*>(data), size});
  std::vector<TextSegment> segments = {{"ab<|end|>sa", true}, {"<|end|>", false}};
  const auto chat = ChatTemplate::Load(Folder().path());
  if (!Refused(chat.status())) {
    const nlohmann::ordered_json context = {
        {"messages", {{{"role", "user"}, {"content", "ab <s>"}}}}};
    auto rendered =
        chat->RenderOrdered(context, 0, {.max_steps = 20'000, .max_output_bytes = 1 << 16});
    if (!Refused(rendered.status())) segments = *std::move(rendered);
  }
  const auto tokenizer = Tokenizer::Load(Folder().path());
  if (Refused(tokenizer.status())) return 0;
  const auto ids = (*tokenizer)->EncodeSegments(segments, true);
  if (Refused(ids.status())) return 0;
  for (const std::int32_t id : *ids) {
    Require(id >= 0 && id < (*tokenizer)->vocabulary_size());
  }
  Require(tessera::coordinator::FindInvalidUtf8((*tokenizer)->Decode(*ids, false)) ==
          std::string_view::npos);
  return 0;
}
