#include "coordinator/answer/call_formats.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/answer/gemma_call_body.h"
#include "coordinator/answer/harmony_parser.h"
#include "coordinator/answer/headed_call_body.h"
#include "coordinator/answer/json_calls_body.h"
#include "coordinator/answer/python_calls_body.h"
#include "coordinator/answer/tagged_call_body.h"

namespace tessera::coordinator {
namespace {

using Parser = std::unique_ptr<CallParser>;
using Body = std::unique_ptr<CallBody>;

// {"name": "NAME", "arguments":
std::string JsonStart(std::string_view before, std::string_view function,
                      std::string_view arguments_key = "arguments") {
  std::string start = absl::StrCat(std::string(before), "{\"name\": \"");
  if (!function.empty())
    absl::StrAppend(&start, std::string(function), "\", \"", std::string(arguments_key), "\":");
  return start;
}

Parser JsonParser(CallMarkers markers, JsonCallsOptions options) {
  return MakeMarkedCallParser(std::move(markers),
                              [options](bool) { return MakeJsonCallsBody(options); });
}

Parser TaggedParser(std::string_view opening, TaggedCallOptions options,
                    const ToolSchemas& schemas) {
  return MakeMarkedCallParser({.opening = {std::string(opening)}}, [options, &schemas](bool) {
    return MakeTaggedCallBody(options, schemas);
  });
}

Parser HeadedParser(CallMarkers markers, HeadedCallOptions options) {
  return MakeMarkedCallParser(std::move(markers),
                              [options](bool) { return MakeHeadedCallBody(options); });
}

constexpr char kHermesOpening[] = "<tool_call>";
Parser Hermes(const ToolSchemas&) {
  return JsonParser({.opening = {kHermesOpening}}, {.closing = "</tool_call>"});
}
std::string HermesStart(std::string_view function) { return JsonStart("<tool_call>\n", function); }

// XML within Hermes' markers.
Parser Qwen3Coder(const ToolSchemas& schemas) {
  return TaggedParser(kHermesOpening, {.breaks_around_value = true}, schemas);
}
std::string Qwen3CoderStart(std::string_view function) {
  return absl::StrCat("<tool_call>\n<function=",
                      function.empty() ? "" : absl::StrCat(std::string(function), ">\n"));
}

constexpr char kSeedOssOpening[] = "<seed:tool_call>";
Parser SeedOss(const ToolSchemas& schemas) {
  return TaggedParser(kSeedOssOpening, {.closing = "</seed:tool_call>"}, schemas);
}
std::string SeedOssStart(std::string_view function) {
  return absl::StrCat("<seed:tool_call>\n<function=",
                      function.empty() ? "" : absl::StrCat(std::string(function), ">\n"));
}

constexpr char kMiniMaxOpening[] = "<minimax:tool_call>";
Parser MiniMax(const ToolSchemas& schemas) {
  return TaggedParser(kMiniMaxOpening,
                      {.name_opening = "<invoke name=\"",
                       .name_closing = "\">",
                       .function_closing = "</invoke>",
                       .key_opening = "<parameter name=\"",
                       .key_closing = "\">",
                       .closing = "</minimax:tool_call>"},
                      schemas);
}
std::string MiniMaxStart(std::string_view function) {
  return absl::StrCat("<minimax:tool_call>\n<invoke name=\"",
                      function.empty() ? "" : absl::StrCat(std::string(function), "\">\n"));
}

// GLM 4.5 and 4.6 with line breaks between the tags, later ones without.
Parser Glm(const ToolSchemas& schemas) {
  return TaggedParser(kHermesOpening,
                      {.name_opening = {},
                       .name_closing = {},
                       .function_closing = {},
                       .key_opening = "<arg_key>",
                       .key_closing = "</arg_key>",
                       .value_opening = "<arg_value>",
                       .value_closing = "</arg_value>"},
                      schemas);
}
std::string GlmStart(std::string_view function) {
  return absl::StrCat(kHermesOpening, std::string(function), function.empty() ? "" : "\n");
}
CallFrame GlmFrame(const std::string& line_break) {
  const std::string before = absl::StrCat("</arg_key>", line_break, "<arg_value>");
  return {.section = kHermesOpening,
          .close = "</tool_call>",
          .next = absl::StrCat(line_break, kHermesOpening),
          .tags = TaggedForm{.key_opening = "<arg_key>",
                             .before_text = before,
                             .before_json = before,
                             .value_closing = "</arg_value>",
                             .behind_value = line_break,
                             .other_closing = {"</tool_call>"}}};
}
std::string Glm47Start(std::string_view function) {
  return absl::StrCat(kHermesOpening, std::string(function));
}

constexpr char kDsmlOpening[] = "<｜DSML｜function_calls>";
constexpr char kDsmlV4Opening[] = "<｜DSML｜tool_calls>";
Parser DsmlParser(std::string_view opening, std::string_view closing, const ToolSchemas& schemas) {
  return TaggedParser(opening,
                      {.name_opening = "<｜DSML｜invoke name=\"",
                       .name_closing = "\">",
                       .function_closing = "</｜DSML｜invoke>",
                       .key_opening = "<｜DSML｜parameter name=\"",
                       .key_closing = ">",
                       .value_closing = "</｜DSML｜parameter>",
                       .closing = closing,
                       .tag_has_type = true},
                      schemas);
}
std::string DsmlStart(const char* opening, std::string_view function) {
  return absl::StrCat(opening, "\n<｜DSML｜invoke name=\"",
                      function.empty() ? "" : absl::StrCat(std::string(function), "\">\n"));
}
CallFrame DsmlFrame(const char* opening, const std::string& closing) {
  return {.section = opening,
          .close = "</｜DSML｜invoke>",
          .next = "",
          .finish = absl::StrCat("\n", closing),
          .tags = TaggedForm{.key_opening = "<｜DSML｜parameter name=\"",
                             .before_text = "\" string=\"true\">",
                             .before_json = "\" string=\"false\">",
                             .value_closing = "</｜DSML｜parameter>",
                             .behind_value = "\n",
                             .other_closing = {closing}}};
}
Parser DeepSeekV32(const ToolSchemas& schemas) {
  return DsmlParser(kDsmlOpening, "</｜DSML｜function_calls>", schemas);
}
std::string DeepSeekV32Start(std::string_view function) {
  return DsmlStart(kDsmlOpening, function);
}
Parser DeepSeekV4(const ToolSchemas& schemas) {
  return DsmlParser(kDsmlV4Opening, "</｜DSML｜tool_calls>", schemas);
}
std::string DeepSeekV4Start(std::string_view function) {
  return DsmlStart(kDsmlV4Opening, function);
}

constexpr char kGemmaOpening[] = "<|tool_call>";
Parser Gemma4(const ToolSchemas&) {
  return MakeMarkedCallParser({.opening = {kGemmaOpening}},
                              [](bool) { return MakeGemmaCallBody(); });
}
std::string Gemma4Start(std::string_view function) {
  return absl::StrCat(kGemmaOpening, "call:", std::string(function), function.empty() ? "" : "{");
}

constexpr char kDeepSeekCalls[] = "<｜tool▁calls▁begin｜>";
constexpr char kDeepSeekCallsEnd[] = "<｜tool▁calls▁end｜>";
constexpr char kDeepSeekCall[] = "<｜tool▁call▁begin｜>";
constexpr char kDeepSeekCallEnd[] = "<｜tool▁call▁end｜>";
constexpr char kDeepSeekSep[] = "<｜tool▁sep｜>";
CallMarkers DeepSeekMarkers() {
  return {.opening = {kDeepSeekCall}, .silent = {kDeepSeekCalls, kDeepSeekCallsEnd}};
}
// function<sep>NAME
Parser DeepSeekV3(const ToolSchemas&) {
  return HeadedParser(DeepSeekMarkers(),
                      {.name_of = [](std::string_view head) { return Behind(head, kDeepSeekSep); },
                       .closing = kDeepSeekCallEnd});
}
std::string DeepSeekV3Start(std::string_view function) {
  return absl::StrCat(kDeepSeekCalls, kDeepSeekCall, "function", kDeepSeekSep,
                      std::string(function), function.empty() ? "" : "\n```json\n");
}
// NAME<sep>
Parser DeepSeekV31(const ToolSchemas&) {
  return HeadedParser(DeepSeekMarkers(),
                      {.name_of = [](std::string_view head) { return Before(head, kDeepSeekSep); },
                       .closing = kDeepSeekCallEnd});
}
std::string DeepSeekV31Start(std::string_view function) {
  return absl::StrCat(kDeepSeekCalls, kDeepSeekCall, std::string(function),
                      function.empty() ? "" : kDeepSeekSep);
}

constexpr char kKimiSection[] = "<|tool_calls_section_begin|>";
constexpr char kKimiCall[] = "<|tool_call_begin|>";
constexpr char kKimiArguments[] = "<|tool_call_argument_begin|>";
constexpr char kKimiCallEnd[] = "<|tool_call_end|>";
constexpr char kKimiSectionEnd[] = "<|tool_calls_section_end|>";
// functions.NAME:INDEX
std::string_view KimiName(std::string_view head) {
  head = Before(head, kKimiArguments);
  if (head.starts_with("functions.")) head.remove_prefix(sizeof("functions.") - 1);
  return head.substr(0, head.rfind(':'));
}
Parser Kimi(const ToolSchemas&) {
  return HeadedParser({.opening = {kKimiCall}, .silent = {kKimiSection, kKimiSectionEnd}},
                      {.name_of = KimiName, .closing = kKimiCallEnd});
}
std::string KimiStart(std::string_view function) {
  return absl::StrCat(kKimiSection, kKimiCall, "functions.", std::string(function),
                      function.empty() ? "" : ":");
}

// [{"name", "arguments"}], or NAME[CALL_ID]ID[ARGS]{..}.
constexpr char kMistralOpening[] = "[TOOL_CALLS]";
class MistralBody final : public CallBody {
 public:
  State Byte(char c, AnswerEvents& out) override {
    if (body_ == nullptr) {
      if (absl::ascii_isspace(c)) return State::kOpen;
      const bool json = c == '[' || c == '{';
      body_ = json ? MakeJsonCallsBody({}) : MakeHeadedCallBody({.name_of = Name});
    }
    const State state = body_->Byte(c, out);
    unread_ = body_->unread();
    return state;
  }
  bool Finish(AnswerEvents& out) override { return body_ != nullptr && body_->Finish(out); }

 private:
  static std::string_view Name(std::string_view head) {
    return Before(Before(head, "[CALL_ID]"), "[ARGS]");
  }
  Body body_;
};
Parser Mistral(const ToolSchemas&) {
  return MakeMarkedCallParser({.opening = {kMistralOpening}},
                              [](bool) { return std::make_unique<MistralBody>(); });
}
std::string MistralListStart(std::string_view function) {
  return JsonStart("[TOOL_CALLS][", function);
}
std::string MistralStart(std::string_view function) {
  return absl::StrCat(kMistralOpening, std::string(function), function.empty() ? "" : "[ARGS]");
}

// A text that is a call from its first byte on, or one behind the marker.
constexpr char kPythonTag[] = "<|python_tag|>";
Parser LlamaJson(const ToolSchemas& schemas) {
  return JsonParser({.opening = {kPythonTag}, .bare = '{'}, {.separator = ';', .known = &schemas});
}
std::string LlamaJsonStart(std::string_view function) {
  return JsonStart("", function, "parameters");
}

Parser Pythonic(const ToolSchemas& schemas) {
  return MakeMarkedCallParser(
      {.opening = {"<|python_start|>", "<|tool_call_start|>"}, .bare = '['}, [&schemas](bool bare) {
        return MakePythonCallsBody(
            {.closing = bare ? "" : "<|python_end|>", .known = bare ? &schemas : nullptr});
      });
}
std::string PythonicStart(std::string_view function) {
  return absl::StrCat("[", std::string(function), function.empty() ? "" : "(");
}

constexpr char kNemotronOpening[] = "<TOOLCALL>";
Parser Nemotron(const ToolSchemas&) {
  return JsonParser({.opening = {kNemotronOpening}}, {.closing = "</TOOLCALL>"});
}
std::string NemotronStart(std::string_view function) { return JsonStart("<TOOLCALL>[", function); }

constexpr char kJambaOpening[] = "<tool_calls>";
Parser Jamba(const ToolSchemas&) {
  return JsonParser({.opening = {kJambaOpening}}, {.closing = "</tool_calls>"});
}
std::string JambaStart(std::string_view function) { return JsonStart("<tool_calls>[", function); }

constexpr char kCommandOpening[] = "<|START_ACTION|>";
Parser Command(const ToolSchemas&) {
  return JsonParser({.opening = {kCommandOpening}}, {.closing = "<|END_ACTION|>"});
}
std::string CommandStart(std::string_view function) {
  std::string start =
      absl::StrCat(kCommandOpening, "[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"");
  if (!function.empty()) absl::StrAppend(&start, std::string(function), "\", \"parameters\":");
  return start;
}

constexpr char kGraniteOpening[] = "<|tool_call|>";
Parser Granite(const ToolSchemas&) { return JsonParser({.opening = {kGraniteOpening}}, {}); }
std::string GraniteStart(std::string_view function) {
  return JsonStart("<|tool_call|>[", function);
}

constexpr char kPhi4Opening[] = "functools[";
Parser Phi4(const ToolSchemas&) {
  return JsonParser({.opening = {kPhi4Opening, "<|tool_call|>["}},
                    {.closing = "<|/tool_call|>", .in_list = true});
}
std::string Phi4Start(std::string_view function) { return JsonStart(kPhi4Opening, function); }

Parser Harmony(const ToolSchemas&) { return MakeHarmonyParser(); }
std::string HarmonyStart(std::string_view function) {
  return absl::StrCat("<|channel|>commentary to=functions.", std::string(function),
                      function.empty() ? "" : " <|constrain|>json<|message|>");
}

}  // namespace

std::span<const CallFormat> CallFormats() {
  // The order matters: what a format's template has besides another's words comes first.
  static const auto& formats = *new std::vector<CallFormat>{
      {"openai",
       {"<|channel|>", "<|message|>"},
       {},
       {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"},
       Harmony,
       HarmonyStart,
       CallIds::kOpenAi,
       /*has_thinking=*/true,
       CallFrame{}},
      {"minimax_m2",
       {kMiniMaxOpening},
       {kMiniMaxOpening},
       {kMiniMaxOpening, "</minimax:tool_call>"},
       MiniMax,
       MiniMaxStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = kMiniMaxOpening,
                 .close = "</invoke>",
                 .next = "",
                 .finish = "\n</minimax:tool_call>",
                 .tags = TaggedForm{.key_opening = "<parameter name=\"",
                                    .before_text = "\">",
                                    .before_json = "\">",
                                    .value_closing = "</parameter>",
                                    .behind_value = "\n",
                                    .other_closing = {"</minimax:tool_call>"}}}},
      {"seed_oss",
       {kSeedOssOpening},
       {kSeedOssOpening},
       {kSeedOssOpening, "</seed:tool_call>"},
       SeedOss,
       SeedOssStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = kSeedOssOpening,
                 .close = "</function>\n</seed:tool_call>",
                 .next = absl::StrCat("\n", kSeedOssOpening),
                 .tags = TaggedForm{.key_opening = "<parameter=",
                                    .before_text = ">",
                                    .before_json = ">",
                                    .value_closing = "</parameter>",
                                    .behind_value = "\n",
                                    .other_closing = {"</seed:tool_call>"}}}},
      {"deepseek_v32",
       {"DSML", "function_calls>"},
       {kDsmlOpening},
       {"｜DSML｜"},
       DeepSeekV32,
       DeepSeekV32Start,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       DsmlFrame(kDsmlOpening, "</｜DSML｜function_calls>")},
      {"deepseek_v4",
       {"DSML", "tool_calls>"},
       {kDsmlV4Opening},
       {"｜DSML｜"},
       DeepSeekV4,
       DeepSeekV4Start,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       DsmlFrame(kDsmlV4Opening, "</｜DSML｜tool_calls>")},
      {"gemma4",
       {"<|tool_call>call:"},
       {kGemmaOpening},
       {kGemmaOpening, "<tool_call|>", "<|\"|>"},
       Gemma4,
       Gemma4Start},
      {"kimi_k2",
       {kKimiCall},
       {kKimiSection, kKimiCall},
       {kKimiSection, kKimiCall, kKimiArguments, kKimiCallEnd, kKimiSectionEnd},
       Kimi,
       KimiStart,
       CallIds::kNamed,
       /*has_thinking=*/false,
       CallFrame{.section = kKimiSection,
                 .behind_number = kKimiArguments,
                 .close = kKimiCallEnd,
                 .next = "",
                 .finish = kKimiSectionEnd}},
      {"deepseek_v3",
       {kDeepSeekCall, "```json"},
       {kDeepSeekCalls, kDeepSeekCall},
       {kDeepSeekCalls, kDeepSeekCall, kDeepSeekSep, kDeepSeekCallEnd, kDeepSeekCallsEnd},
       DeepSeekV3,
       DeepSeekV3Start,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = absl::StrCat(kDeepSeekCalls, kDeepSeekCall),
                 .close = absl::StrCat("\n```", kDeepSeekCallEnd),
                 .next = absl::StrCat("\n", kDeepSeekCall),
                 .finish = kDeepSeekCallsEnd}},
      {"deepseek_v31",
       {kDeepSeekCall},
       {kDeepSeekCalls, kDeepSeekCall},
       {kDeepSeekCalls, kDeepSeekCall, kDeepSeekSep, kDeepSeekCallEnd, kDeepSeekCallsEnd},
       DeepSeekV31,
       DeepSeekV31Start,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = absl::StrCat(kDeepSeekCalls, kDeepSeekCall),
                 .close = kDeepSeekCallEnd,
                 .next = kDeepSeekCall,
                 .finish = kDeepSeekCallsEnd}},
      {"glm47",
       {kHermesOpening, "</arg_key><arg_value>"},
       {kHermesOpening},
       {kHermesOpening, "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
       Glm,
       Glm47Start,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       GlmFrame("")},
      {"glm45",
       {kHermesOpening, "<arg_key>"},
       {kHermesOpening},
       {kHermesOpening, "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
       Glm,
       GlmStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       GlmFrame("\n")},
      {"qwen3_coder",
       {"<function=", "<parameter="},
       {kHermesOpening},
       {kHermesOpening, "</tool_call>"},
       Qwen3Coder,
       Qwen3CoderStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = kHermesOpening,
                 .close = "</function>\n</tool_call>",
                 .next = absl::StrCat("\n", kHermesOpening),
                 .tags = TaggedForm{.key_opening = "<parameter=",
                                    .before_text = ">\n",
                                    .before_json = ">\n",
                                    .value_closing = "\n</parameter>",
                                    .behind_value = "\n",
                                    .other_closing = {"</parameter>", "</tool_call>"}}}},
      {"hermes",
       {kHermesOpening},
       {kHermesOpening},
       {kHermesOpening, "</tool_call>"},
       Hermes,
       HermesStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = kHermesOpening,
                 .close = "}\n</tool_call>",
                 .next = absl::StrCat("\n", kHermesOpening),
                 .finish = ""}},
      {"mistral",
       {kMistralOpening, "[ARGS]"},
       {kMistralOpening},
       {kMistralOpening, "[CALL_ID]", "[ARGS]"},
       Mistral,
       MistralStart,
       CallIds::kNineCharacters,
       /*has_thinking=*/false,
       CallFrame{.section = kMistralOpening, .close = "", .next = kMistralOpening, .finish = ""}},
      {"mistral_v3",
       {kMistralOpening},
       {kMistralOpening},
       {kMistralOpening},
       Mistral,
       MistralListStart,
       CallIds::kNineCharacters,
       /*has_thinking=*/false,
       CallFrame{.section = "[TOOL_CALLS][", .close = "}", .next = ", ", .finish = "]"}},
      {"command",
       {kCommandOpening},
       {kCommandOpening},
       {kCommandOpening, "<|END_ACTION|>"},
       Command,
       CommandStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = kCommandOpening,
                 .close = "}",
                 .next = std::nullopt,
                 .finish = "\n]<|END_ACTION|>"}},
      {"nemotron",
       {kNemotronOpening},
       {kNemotronOpening},
       {kNemotronOpening, "</TOOLCALL>"},
       Nemotron,
       NemotronStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = "<TOOLCALL>[", .close = "}", .next = ", ", .finish = "]</TOOLCALL>"}},
      {"jamba",
       {kJambaOpening},
       {kJambaOpening},
       {kJambaOpening, "</tool_calls>"},
       Jamba,
       JambaStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{
           .section = "<tool_calls>[", .close = "}", .next = ", ", .finish = "]</tool_calls>"}},
      {"phi4_mini_json",
       {"<|tool_call|>", "<|/tool_call|>"},
       {kPhi4Opening, "<|tool_call|>"},
       {"<|tool_call|>", "<|/tool_call|>"},
       Phi4,
       Phi4Start,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = kPhi4Opening, .close = "}", .next = ", ", .finish = "]"}},
      {"granite",
       {kGraniteOpening},
       {kGraniteOpening},
       {kGraniteOpening},
       Granite,
       GraniteStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = "<|tool_call|>[", .close = "}", .next = ", ", .finish = "]"}},
      {"llama3_json",
       {kPythonTag},
       {kPythonTag},
       {kPythonTag},
       LlamaJson,
       LlamaJsonStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = "", .close = "}", .next = std::nullopt, .finish = ""}},
      {"llama3_json",
       {"ipython", "\"parameters\": "},
       {kPythonTag},
       {kPythonTag},
       LlamaJson,
       LlamaJsonStart,
       CallIds::kOpenAi,
       /*has_thinking=*/false,
       CallFrame{.section = "", .close = "}", .next = std::nullopt, .finish = ""}},
      {"pythonic",
       {"<|python_start|>"},
       {"<|python_start|>"},
       {"<|python_start|>", "<|python_end|>"},
       Pythonic,
       PythonicStart},
      {"pythonic",
       {"[func_name1(params_name1"},
       {"<|python_start|>"},
       {"<|python_start|>", "<|python_end|>"},
       Pythonic,
       PythonicStart},
  };
  return formats;
}

const CallFormat* FindCallFormat(std::string_view name) {
  for (const CallFormat& format : CallFormats()) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

std::vector<const CallFormat*> RecognizeCallFormats(
    const std::function<bool(std::string_view)>& template_names) {
  std::vector<const CallFormat*> found;
  for (const CallFormat& format : CallFormats()) {
    if (std::all_of(format.words.begin(), format.words.end(), template_names))
      found.push_back(&format);
  }
  return found;
}

}  // namespace tessera::coordinator
