#include "coordinator/api/answer_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/answer/message_builder.h"
#include "coordinator/api/chat_messages.h"

namespace tessera::coordinator {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr char kFunction[] = "probe_function";

// The messages as the template writes them; "" where it fails.
std::string Render(const ProbedTemplate& probed, const Ordered& messages, const Ordered& tools) {
  const absl::StatusOr<Ordered> changed = ToTemplateMessages(messages, probed);
  if (!changed.ok()) return "";
  const auto segments = probed.chat_template.RenderOrdered(
      {{"messages", *changed}, {"tools", tools}}, /*now_unix_seconds=*/0);
  std::string text;
  if (segments.ok()) {
    for (const TextSegment& segment : *segments) text += segment.text;
  }
  return text;
}

// Some templates fail without a description.
Ordered Described(const char* type) { return {{"type", type}, {"description", "probed"}}; }

// False: the template writes a call that the format does not read.
bool ReadsItsOwnCall(const ProbedTemplate& probed, const CallFormat& format) {
  const Ordered arguments = {{"probe_text", "a b"}, {"probe_number", 7}};
  const Ordered tools = Ordered::array(
      {{{"type", "function"},
        {"function",
         {{"name", kFunction},
          {"description", "probes"},
          {"parameters",
           {{"type", "object"},
            {"properties",
             {{"probe_text", Described("string")}, {"probe_number", Described("integer")}}}}}}}}});
  Ordered messages = Ordered::array({{{"role", "user"}, {"content", "hi"}}});
  const std::string before = Render(probed, messages, tools);
  messages.push_back(
      {{"role", "assistant"},
       {"content", nullptr},
       {"tool_calls",
        Ordered::array({{{"id", "abcdefghi"},
                         {"type", "function"},
                         {"function", {{"name", kFunction}, {"arguments", arguments}}}}})}});
  const std::string after = Render(probed, messages, tools);
  const size_t begin =
      std::mismatch(before.begin(), before.end(), after.begin(), after.end()).first -
      before.begin();
  // A template that writes no calls cannot be judged.
  if (after.find(kFunction, begin) == std::string::npos) return true;
  auto answer = std::make_shared<AnswerFormat>();
  answer->calls = &format;
  answer->schemas = ToolSchemas(tools);
  answer->draw_id = DrawId;
  // The turn's own marks stand before the answer: it begins where a call can be read.
  for (size_t at = begin; at < after.size(); ++at) {
    MessageBuilder builder(answer);
    builder.Append(std::string_view(after).substr(at));
    builder.Finish(AnswerEnd::kStop);
    for (const ToolCall& call : builder.message().calls) {
      // Some templates sort the members.
      const auto read = nlohmann::json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
      if (call.name == kFunction && read == nlohmann::json(arguments)) return true;
    }
  }
  return false;
}

}  // namespace

absl::Status FindAnswerFormats(std::string_view parser, ServedModel& model) {
  if (!parser.empty()) {
    model.call_format = FindCallFormat(parser);
    if (model.call_format == nullptr) {
      std::set<std::string> names;
      for (const CallFormat& format : CallFormats()) names.insert(std::string(format.name));
      return absl::InvalidArgumentError(absl::StrCat("--tool-call-parser: there is no '",
                                                     std::string(parser), "'; there are ",
                                                     absl::StrJoin(names, ", ")));
    }
  }
  if (!model.chat_template.has_value()) return absl::OkStatus();
  const ChatTemplate& chat_template = model.chat_template->chat_template;
  const auto names = [&](std::string_view word) { return chat_template.NamesForTools(word); };
  if (model.call_format == nullptr) {
    const std::vector<const CallFormat*> likely = RecognizeCallFormats(names);
    const auto found = std::find_if(likely.begin(), likely.end(), [&](const CallFormat* format) {
      return ReadsItsOwnCall(*model.chat_template, *format);
    });
    if (found != likely.end()) model.call_format = *found;
  }
  model.thinking = RecognizeThinking(names);
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
