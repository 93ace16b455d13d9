// Renders chat templates for tests/bench/templates: one JSON object per line in, one per line out.
//
// In: {"template": source, "context": {...}, "now": seconds}, or "folder" instead of "template".
// Out: {"segments": [[text, from_template], ...]}, or {"error": message, "parse": whether it was
// refused before rendering}.

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/jinja/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;
using tessera::coordinator::ChatTemplate;

Json Error(const absl::Status& status, bool parse) {
  return {{"error", std::string(status.message())}, {"parse", parse}};
}

Json Render(const Json& request) {
  const absl::StatusOr<ChatTemplate> parsed =
      request.contains("folder") ? ChatTemplate::Load(request["folder"].get<std::string>())
                                 : ChatTemplate::Parse(request["template"].get<std::string>());
  if (!parsed.ok()) {
    return Error(parsed.status(), true);
  }
  const auto rendered = parsed->RenderOrdered(request["context"], request["now"].get<int64_t>());
  if (!rendered.ok()) {
    return Error(rendered.status(), false);
  }
  Json segments = Json::array();
  for (const auto& segment : *rendered) {
    segments.push_back({segment.text, segment.from_template});
  }
  return {{"segments", segments}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!request.is_object()) {
      std::cerr << "chat_template_lines: a line is not a JSON object\n";
      return 2;
    }
    std::cout << Render(request).dump() << '\n' << std::flush;
  }
  return 0;
}
