// Any bytes as a chat template: parsed, and rendered with a small conversation under tight limits.

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "coordinator/jinja/chat_template.h"

namespace {

using tessera::coordinator::ChatTemplate;
using tessera::coordinator::RenderLimits;
using tessera::coordinator::TextSegment;

constexpr RenderLimits kLimits{.max_steps = 20'000, .max_output_bytes = 1 << 16};

const nlohmann::ordered_json& Context() {
  static const auto* context = new nlohmann::ordered_json(nlohmann::ordered_json::parse(R"({
    "bos_token": "<s>", "x": "äb <|y|>", "n": 3, "f": 2.5, "none_": null, "add_generation_prompt": true,
    "messages": [{"role": "user", "content": "Hi\nthere"},
                 {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}]
  })"));
  return *context;
}

void Require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = ChatTemplate::Parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) {
    Require(parsed.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  const auto segments = parsed->RenderOrdered(Context(), 1773065106, kLimits);
  if (!segments.ok()) {
    Require(segments.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  std::size_t total_bytes = 0;
  for (std::size_t i = 0; i < segments->size(); ++i) {
    const TextSegment& segment = (*segments)[i];
    Require(!segment.text.empty());
    Require(i == 0 || segment.from_template != (*segments)[i - 1].from_template);
    // Printing as JSON fails on text that is not valid UTF-8.
    Require(nlohmann::json(segment.text)
                .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) ==
            nlohmann::json(segment.text).dump());
    total_bytes += segment.text.size();
  }
  Require(total_bytes <= static_cast<std::size_t>(kLimits.max_output_bytes));
  return 0;
}
