// Any bytes as what a model writes, in any family's format: however they are cut the events are the
// same, and a call that ended has arguments that are JSON.
//
// The first byte names the format, the second the size of the pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/answer/answer_parser.h"

using Kind = tessera::coordinator::AnswerEvent::Kind;
using tessera::coordinator::AnswerEnd;
using tessera::coordinator::AnswerEvent;
using tessera::coordinator::AnswerFormat;
using tessera::coordinator::AnswerParser;
using tessera::coordinator::CallFormats;

namespace {

// Texts of one kind joined.
std::vector<AnswerEvent> Events(const AnswerFormat& format, std::string_view text, size_t piece) {
  AnswerParser parser(format);
  std::vector<AnswerEvent> all;
  const auto add = [&all](std::vector<AnswerEvent> events) {
    for (AnswerEvent& event : events) {
      const bool grows = event.kind == Kind::kText || event.kind == Kind::kThinking ||
                         event.kind == Kind::kArguments;
      if (grows && !all.empty() && all.back().kind == event.kind) {
        all.back().text += event.text;
      } else {
        all.push_back(std::move(event));
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) add(parser.Append(text.substr(at, piece)));
  add(parser.Finish(AnswerEnd::kStop));
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  static const auto& tools = *new nlohmann::ordered_json(nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "now", "parameters": {"type": "object",
          "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}}}}])"));
  AnswerFormat format;
  format.calls = &CallFormats()[data[0] % CallFormats().size()];
  format.schemas = tessera::coordinator::ToolSchemas(tools);
  format.thinking = {"<think>", "</think>"};
  const std::vector<AnswerEvent> whole = Events(format, text, size);
  const std::vector<AnswerEvent> cut = Events(format, text, 1 + data[1] % 8);
  const bool same = std::equal(whole.begin(), whole.end(), cut.begin(), cut.end(),
                               [](const AnswerEvent& a, const AnswerEvent& b) {
                                 return a.kind == b.kind && a.text == b.text;
                               });
  if (!same) std::abort();
  std::string arguments;
  for (const AnswerEvent& event : whole) {
    if (event.kind == Kind::kCall) arguments.clear();
    if (event.kind == Kind::kArguments) arguments += event.text;
    // Bytes that are no UTF-8 are passed on as they are.
    const bool is_ascii = std::all_of(arguments.begin(), arguments.end(),
                                      [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    if (event.kind == Kind::kCallEnd && is_ascii && !nlohmann::json::accept(arguments))
      std::abort();
  }
  return 0;
}
