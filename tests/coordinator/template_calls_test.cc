// What each family's own chat template writes for calls is read back as those calls: published
// templates, which are not part of the project, rendered and parsed here.
//
// They stand in a folder of .jinja files that TESSERA_CHAT_TEMPLATES names, or where
// tests/bench/peers/llama_cpp has put the sources of llama.cpp.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/answer/message_builder.h"
#include "coordinator/api/answer_formats.h"
#include "coordinator/api/chat_messages.h"
#include "tests/catch_skip.h"
#include "tests/coordinator/peer_sources.h"
#include "tests/temporary_folder.h"

namespace tessera::coordinator {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
// (name, arguments) of calls; members in any order, as some templates sort them.
using Calls = std::vector<std::pair<std::string, nlohmann::json>>;

fs::path TemplateFolder() {
  if (const char* named = std::getenv("TESSERA_CHAT_TEMPLATES")) return named;
  return tests::PeerFolder("models/templates");
}

std::vector<fs::path> Templates() {
  std::vector<fs::path> files;
  std::error_code error;
  const fs::path folder = TemplateFolder();
  if (folder.empty()) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

const Json& Tools() {
  static const Json& tools = *new Json(Json::parse(R"([
    {"type": "function", "function": {"name": "save_file", "description": "Saves a file.",
      "parameters": {"type": "object", "properties": {
        "path": {"type": "string", "description": "where"},
        "text": {"type": "string", "description": "what"},
        "mode": {"type": "integer", "description": "rights"},
        "force": {"type": "boolean", "description": "overwrite"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "labels"},
        "owner": {"type": "object", "properties": {"id": {"type": "integer"}},
          "description": "who"}},
        "required": ["path", "text"]}}},
    {"type": "function", "function": {"name": "look_up", "description": "Looks up.",
      "parameters": {"type": "object", "properties": {
        "query": {"type": "string", "description": "words"}}, "required": ["query"]}}}])"));
  return tools;
}

// What values are hard for: quotes, line breaks, tags, text that looks like another type.
const std::pair<const char*, const char*> kValues[] = {
    {"plain", R"({"path": "a/b.txt", "text": "one two", "mode": 7, "force": true})"},
    {"quotes and lines", R"({"path": "C:\\x", "text": "he said \"no\"\n\tthen it's done\n"})"},
    {"beyond ASCII", R"({"path": "größe/文件 🦜", "text": "<b>&amp;</b> {\"a\": [1, 2]}"})"},
    {"looks like another type", R"({"path": "007", "text": "true"})"},
    {"nested", R"({"path": "p", "text": "t", "tags": ["x", "y z"], "owner": {"id": 3}})"},
};

Json Call(const std::string& name, const Json& arguments, int index) {
  return {{"id", "callabc0" + std::to_string(index)},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", arguments}}}};
}

// "" where the template refuses the messages.
std::string Render(const ServedModel& model, const Json& messages, bool to_answer) {
  const absl::StatusOr<Json> changed =
      ToTemplateMessages(messages, *model.chat_template, model.call_format->ids);
  if (!changed.ok()) return "";
  const auto segments =
      model.chat_template->chat_template.RenderOrdered({{"messages", *changed},
                                                        {"tools", Tools()},
                                                        {"bos_token", "<s>"},
                                                        {"eos_token", "</s>"},
                                                        {"add_generation_prompt", to_answer}},
                                                       1700000000);
  std::string text;
  if (segments.ok()) {
    for (const TextSegment& segment : *segments) text += segment.text;
  }
  return text;
}

Calls Read(const std::shared_ptr<const AnswerFormat>& format, std::string_view text, size_t piece) {
  MessageBuilder builder(format);
  for (size_t at = 0; at < text.size(); at += piece) builder.Append(text.substr(at, piece));
  builder.Finish(AnswerEnd::kStop);
  Calls calls;
  for (const ToolCall& call : builder.message().calls) {
    calls.emplace_back(call.name, nlohmann::json::parse(call.arguments, nullptr, false));
  }
  return calls;
}

// Where the template's turn goes on behind a prompt that it opened for the answer, or behind the
// messages alone. `npos`: it is written in another way.
size_t AnswerBegin(const ServedModel& model, const Json& messages, const std::string& after) {
  for (const bool to_answer : {true, false}) {
    const std::string before = Render(model, messages, to_answer);
    if (!before.empty() && after.starts_with(before)) return before.size();
  }
  return std::string::npos;
}

enum class Outcome { kRead, kRefused, kWrong };

// Templates that write history in ways that the sandbox of transformers refuses too.
constexpr std::string_view kRefused[] = {"Kimi-K2-Instruct.jinja", "Kimi-K2-Thinking.jinja",
                                         "llama-cpp-deepseek-r1.jinja"};

// What is found, where the template is there.
constexpr std::pair<std::string_view, std::string_view> kFound[] = {
    {"Apriel-1.6-15b-Thinker-fixed.jinja", "jamba"},
    {"ByteDance-Seed-OSS.jinja", "seed_oss"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "command"},
    {"GLM-4.6.jinja", "glm45"},
    {"GLM-4.7-Flash.jinja", "glm47"},
    {"MiniMax-M2.jinja", "minimax_m2"},
    {"Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistral"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", "qwen3_coder"},
    {"NVIDIA-Nemotron-Nano-v2.jinja", "nemotron"},
    {"Qwen-Qwen2.5-7B-Instruct.jinja", "hermes"},
    {"Qwen-Qwen3-0.6B.jinja", "hermes"},
    {"Qwen3-Coder.jinja", "qwen3_coder"},
    {"Qwen3.5-4B.jinja", "qwen3_coder"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek_v3"},
    {"deepseek-ai-DeepSeek-V3.1.jinja", "deepseek_v31"},
    {"deepseek-ai-DeepSeek-V3.2.jinja", "deepseek_v32"},
    {"deepseek-ai-DeepSeek-V4.jinja", "deepseek_v4"},
    {"google-gemma-4-31B-it.jinja", "gemma4"},
    {"ibm-granite-granite-3.3-2B-Instruct.jinja", "granite"},
    {"ibm-granite-granite-4.0.jinja", "hermes"},
    {"meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3_json"},
    {"mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral"},
    {"mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral_v3"},
    {"moonshotai-Kimi-K2.jinja", "kimi_k2"},
    {"openai-gpt-oss-120b.jinja", "openai"},
    {"unsloth-Apriel-1.5.jinja", "jamba"},
    // Their forms of calls are not among those that are read.
    {"Apertus-8B-Instruct.jinja", ""},
    {"meetkai-functionary-medium-v3.1.jinja", ""},
};

// `wrong`: what was read, or why nothing could be.
Outcome ReadsBack(const ServedModel& model, const Json& calls, std::string* wrong) {
  Json messages = Json::array({{{"role", "user"}, {"content", "Please do."}}});
  const Json question = messages;
  messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}});
  const std::string after = Render(model, messages, false);
  if (after.empty()) return Outcome::kRefused;
  const size_t begin = AnswerBegin(model, question, after);
  if (begin == std::string::npos) {
    *wrong = "does not go on behind the question: " + after;
    return Outcome::kWrong;
  }
  const std::string_view text = std::string_view(after).substr(begin);
  Calls expected;  // those that the template writes: some write the first one alone, or none
  for (const Json& call : calls) {
    if (text.find(call["function"]["name"].get<std::string>()) == std::string_view::npos) continue;
    expected.emplace_back(call["function"]["name"].get<std::string>(),
                          nlohmann::json(call["function"]["arguments"]));
  }
  const auto format = std::make_shared<AnswerFormat>();
  format->calls = model.call_format;
  format->schemas = ToolSchemas(Tools());
  format->draw_id = DrawId;
  // Marks of the turn may stand before the answer.
  for (size_t at = 0; at < text.size(); ++at) {
    if (Read(format, text.substr(at), text.size()) != expected) continue;
    if (Read(format, text.substr(at), 1) == expected) return Outcome::kRead;
    *wrong = "one byte at a time differs: " + std::string(text.substr(at));
    return Outcome::kWrong;
  }
  *wrong = std::string(text);
  for (const auto& [name, arguments] : Read(format, text, text.size()))
    *wrong += "\n  read: " + name + " " + arguments.dump();
  return Outcome::kWrong;
}

// Where the text does not have these words in their order, what it is.
std::string Disorder(const std::string& text, const std::vector<std::string>& words) {
  size_t at = 0;
  for (const std::string& word : words) {
    at = text.find(word, at);
    if (at == std::string::npos) return word + " is not at its place: " + text;
    if (text.find(word, at + 1) != std::string::npos) return word + " stands twice: " + text;
  }
  return "";
}

// One line for each conversation as agents have them that the model is not shown as it was sent.
// Where the first system message stands, and whether calls of the past are shown, is the
// template's.
std::string LostTurns(const ServedModel& model) {
  const auto turn = [](const char* role, const char* text) -> Json {
    return {{"role", role}, {"content", text}};
  };
  const auto result = [](int index, const char* text) -> Json {
    return {{"role", "tool"},
            {"tool_call_id", "callabc0" + std::to_string(index)},
            {"name", index == 1 ? "save_file" : "look_up"},
            {"content", text}};
  };
  const Json calls = {{"role", "assistant"},
                      {"content", ""},
                      {"tool_calls",
                       {Call("save_file", {{"path", "path_word"}, {"text", "x"}}, 1),
                        Call("look_up", {{"query", "query_word"}}, 2)}}};
  const Json rule = turn("system", "rule_word"), late = turn("system", "late_word");
  const Json ask = turn("user", "ask_word"), more = turn("user", "more_word");
  const Json done = turn("assistant", "done_word");
  const Json first = result(1, "first_word"), second = result(2, "second_word");
  std::vector<std::pair<Json, std::vector<std::string>>> conversations = {
      {Json::array({rule, ask, late, done, more}),
       {"ask_word", "late_word", "done_word", "more_word"}},
      {Json::array({rule, ask, done, late, more}),
       {"ask_word", "done_word", "late_word", "more_word"}},
      {Json::array({rule, ask, more, done}), {"ask_word", "more_word", "done_word"}}};
  Json one = calls;
  one["tool_calls"].erase(1);
  if (Disorder(Render(model, Json::array({ask, one, first}), false), {"path_word"}).empty()) {
    conversations.push_back({Json::array({ask, calls, first, second, late}),
                             {"ask_word", "path_word", "first_word", "second_word", "late_word"}});
    conversations.push_back({Json::array({ask, calls, first, second, late}),
                             {"ask_word", "query_word", "second_word", "late_word"}});
    conversations.push_back({Json::array({ask, calls, first, second, more, done, rule, ask}),
                             {"path_word", "second_word", "more_word", "done_word"}});
  }
  std::string lost;
  for (const auto& [messages, words] : conversations) {
    const std::string disorder = Disorder(Render(model, messages, false), words);
    if (!disorder.empty()) lost += "  " + disorder + "\n";
  }
  return lost;
}

// One line for each kind of values that is not read back.
std::string Faults(const ServedModel& model) {
  std::string faults;
  for (const auto& [name, arguments] : kValues) {
    const Json first = Call("save_file", Json::parse(arguments), 1);
    const Json second = Call("look_up", {{"query", "what?"}}, 2);
    std::string wrong;
    Outcome outcome = Outcome::kRefused;
    // Some take one call a turn.
    if (model.chat_template->forms.takes_two_calls)
      outcome = ReadsBack(model, Json::array({first, second}), &wrong);
    if (outcome == Outcome::kRefused) outcome = ReadsBack(model, Json::array({first}), &wrong);
    if (outcome == Outcome::kRefused) return "refused";
    if (outcome != Outcome::kRead) faults += std::string("  ") + name + ": " + wrong + "\n";
  }
  return faults;
}

}  // namespace

TEST_CASE("calls that published templates write are read back") {
  const std::vector<fs::path> files = Templates();
  if (files.empty()) {
    TESSERA_SKIP(
        "no chat templates: TESSERA_CHAT_TEMPLATES names no folder of them, and "
        "tests/bench/peers/llama_cpp has not fetched llama.cpp");
  }
  const tests::TemporaryFolder folder;
  folder.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  int read = 0;
  for (const fs::path& file : files) {
    absl::StatusOr<ChatTemplate> parsed = ChatTemplate::LoadFile(file, folder.path());
    INFO(file.filename().string());
    CHECKED_IF(parsed.ok()) {
      ServedModel model;
      model.chat_template = *std::move(parsed);
      REQUIRE(FindAnswerFormats("", model).ok());
      const std::string_view found =
          model.call_format == nullptr ? std::string_view() : model.call_format->name;
      const auto known = std::find_if(std::begin(kFound), std::end(kFound), [&](const auto& row) {
        return row.first == file.filename().string();
      });
      if (known != std::end(kFound)) CHECK(found == known->second);
      if (found.empty()) continue;
      ++read;
      INFO("format " << found);
      const bool refused = std::find(std::begin(kRefused), std::end(kRefused),
                                     file.filename().string()) != std::end(kRefused);
      CHECK(Faults(model) == (refused ? "refused" : ""));
      if (!refused) CHECK(LostTurns(model) == "");
    }
  }
  CHECK(read > 0);
}

}  // namespace tessera::coordinator
