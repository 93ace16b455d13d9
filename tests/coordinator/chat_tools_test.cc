// Tools and thinking of a chat, as clients send and see them.

#include "coordinator/api/chat_tools.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/coordinator/door.h"
#include "tests/temporary_folder.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kChat[] = "/v1/chat/completions";
Json Tool(const std::string& name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"parameters",
             {{"type", "object"}, {"properties", {{"zone", {{"type", "string"}}}, {"at", {}}}}}}}}};
}

Json Chat(const Json& fields = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "What"}}}},
               {"tools", {Tool("weather"), Tool("clock")}}};
  body.update(fields);
  return body;
}

// Members keep their order, both ways.
Json Ask(Door& door, const Json& body) {
  const HttpReply reply = door.Post(kChat, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body);
}

// A stream's deltas put together as OpenAI's clients do.
struct Streamed {
  std::string content, reasoning, finish;
  std::vector<Json> calls;
};
Streamed Join(const std::vector<nlohmann::json>& chunks) {
  Streamed all;
  for (const nlohmann::json& chunk : chunks) {
    const nlohmann::json& choice = chunk["choices"][0];
    const nlohmann::json& delta = choice["delta"];
    all.content += delta.value("content", "");
    all.reasoning += delta.value("reasoning_content", "");
    CHECK(delta.value("reasoning", "") == delta.value("reasoning_content", ""));
    if (!choice["finish_reason"].is_null()) all.finish = choice["finish_reason"];
    if (!delta.contains("tool_calls")) continue;
    REQUIRE(delta["tool_calls"].size() == 1);
    const nlohmann::json& call = delta["tool_calls"][0];
    const size_t index = call["index"];
    if (index == all.calls.size()) {
      CHECK(call["type"] == "function");
      CHECK(call["function"]["arguments"] == "");
      all.calls.push_back(
          {{"id", call["id"]}, {"name", call["function"]["name"]}, {"arguments", ""}});
    } else {
      REQUIRE(index + 1 == all.calls.size());
      CHECK_FALSE(call.contains("id"));
      CHECK_FALSE(call["function"].contains("name"));
      std::string& arguments = all.calls[index]["arguments"].get_ref<std::string&>();
      arguments += call["function"]["arguments"].get<std::string>();
    }
  }
  return all;
}

constexpr char kTwoCalls[] =
    "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"zone\": \"a "
    "\\\"b\\\"\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";

}  // namespace

TEST_CASE("tools reach the template as they were sent, and calls come back") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says(kTwoCalls));
  const Json reply = Ask(door, Chat());
  CHECK(PromptOf(door).find(
            "{\"type\": \"function\", \"function\": {\"name\": \"weather\", "
            "\"parameters\": {\"type\": \"object\", \"properties\": {\"zone\": {\"type\": "
            "\"string\"}, \"at\": null}}}}") == 0);
  const Json& choice = reply["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["content"] == "Let me see.");
  const Json& calls = choice["message"]["tool_calls"];
  REQUIRE(calls.size() == 2);
  CHECK(calls[0]["type"] == "function");
  CHECK(calls[0]["function"]["name"] == "weather");
  CHECK(calls[0]["function"]["arguments"] == "{\"zone\": \"a \\\"b\\\"\"}");
  CHECK(calls[1]["function"]["name"] == "clock");
  CHECK(std::string(calls[0]["id"]).starts_with("call_"));
  CHECK(calls[0]["id"] != calls[1]["id"]);

  // The next turn has the calls and their results.
  Json messages = Chat()["messages"];
  messages.push_back(choice["message"]);
  messages.push_back({{"role", "tool"}, {"tool_call_id", calls[0]["id"]}, {"content", "rain"}});
  door.service.SetScript(Says("It rains."));
  const Json next = Ask(door, Chat({{"messages", messages}}));
  CHECK(PromptOf(door).find("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"zone\": \"a "
                            "\\\"b\\\"\"}}\n</tool_call>") != std::string::npos);
  CHECK(next["choices"][0]["message"]["content"] == "It rains.");
  CHECK_FALSE(next["choices"][0]["message"].contains("tool_calls"));
  CHECK(next["choices"][0]["finish_reason"] == "stop");
}

TEST_CASE("a stream says the same as the whole answer") {
  Door door({}, {}, ToolModel());
  for (const size_t piece : {1, 4, 500}) {
    door.service.SetScript(Says(kTwoCalls, Finish::kStop, piece));
    const Streamed all = Join(door.Stream(kChat, Chat()));
    CHECK(all.content == "Let me see.");
    CHECK(all.finish == "tool_calls");
    REQUIRE(all.calls.size() == 2);
    CHECK(all.calls[0]["name"] == "weather");
    CHECK(all.calls[0]["arguments"] == "{\"zone\": \"a \\\"b\\\"\"}");
    CHECK(all.calls[1]["arguments"] == "{}");
  }
}

TEST_CASE("only calls: no content; a cut call: length") {
  Door door({}, {}, ToolModel());
  const std::string call = "<tool_call>{\"name\": \"clock\", \"arguments\": {\"at\": [1";
  door.service.SetScript(Says(call + "]}}</tool_call>"));
  const Json only = Ask(door, Chat())["choices"][0];
  CHECK(only["message"]["content"].is_null());
  CHECK(only["message"]["tool_calls"].size() == 1);
  door.service.SetScript(Says(call, Finish::kLength));
  const Json cut = Ask(door, Chat())["choices"][0];
  CHECK(cut["finish_reason"] == "length");
  CHECK(cut["message"]["tool_calls"][0]["function"]["arguments"] == "{\"at\": [1");
  door.service.SetScript(Says(call));
  const Json broken = Ask(door, Chat())["choices"][0];
  CHECK(broken["finish_reason"] == "stop");
  CHECK(broken["message"]["content"] == call);
}

TEST_CASE("tool_choice and parallel_tool_calls") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says(kTwoCalls));
  const Json none = Ask(door, Chat({{"tool_choice", "none"}}))["choices"][0];
  CHECK(none["message"]["content"] == kTwoCalls);
  CHECK(PromptOf(door).find("weather") == std::string::npos);

  const Json first = Ask(door, Chat({{"parallel_tool_calls", false}}))["choices"][0];
  CHECK(first["message"]["tool_calls"].size() == 1);
  CHECK(Join(door.Stream(kChat, Chat({{"parallel_tool_calls", false}}))).calls.size() == 1);

  // A call that is the only one ends the answer, wherever the text is cut.
  for (const size_t piece : {size_t{1}, size_t{5}, size_t{500}}) {
    const std::unique_ptr<TextEnd> end = door.service.last_request().make_text_end();
    const std::string_view text = kTwoCalls;
    size_t at = 0;
    while (at < text.size() && !end->Append(text.substr(at, piece))) at += piece;
    CHECK(at <= text.find("</tool_call>"));
    CHECK(at + piece > text.find("}}"));
  }

  door.service.SetScript(Says("clock\", \"arguments\": {\"at\": 3}}\n</tool_call>"));
  const Json required = Ask(door, Chat({{"tool_choice", "required"}}))["choices"][0];
  CHECK(PromptOf(door).ends_with("[assistant]<tool_call>\n{\"name\": \""));
  CHECK(required["message"]["tool_calls"][0]["function"]["name"] == "clock");
  CHECK_FALSE(door.service.last_request().make_text_end);

  const Json named = {{"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}}};
  door.service.SetScript(Says(" {\"at\": 3}}\n</tool_call>"));
  const Json forced = Ask(door, Chat(named))["choices"][0];
  CHECK(PromptOf(door).ends_with("<tool_call>\n{\"name\": \"weather\", \"arguments\":"));
  CHECK(forced["message"]["tool_calls"][0]["function"]["arguments"] == "{\"at\": 3}");
  CHECK(forced["finish_reason"] == "tool_calls");
  CHECK(door.service.last_request().make_text_end()->Append(" {\"at\": 3}}"));
  const Streamed streamed = Join(door.Stream(kChat, Chat(named)));
  REQUIRE(streamed.calls.size() == 1);
  CHECK(streamed.calls[0]["name"] == "weather");
  CHECK(streamed.calls[0]["arguments"] == "{\"at\": 3}");
}

TEST_CASE("tool_choice of some of the tools") {
  Door door({}, {}, ToolModel());
  const auto of = [](const std::string& mode, const std::string& name) {
    const Json tool = {{"type", "function"}, {"function", {{"name", name}}}};
    return Chat({{"tool_choice",
                  {{"type", "allowed_tools"},
                   {"allowed_tools", {{"mode", mode}, {"tools", Json::array({tool})}}}}}});
  };
  door.service.SetScript(Says("clock\", \"arguments\": {\"at\": 3}}\n</tool_call>"));
  const Json required = Ask(door, of("required", "clock"))["choices"][0];
  CHECK(PromptOf(door).find("weather") == std::string::npos);
  CHECK(PromptOf(door).ends_with("[assistant]<tool_call>\n{\"name\": \""));
  CHECK(required["message"]["tool_calls"][0]["function"]["name"] == "clock");
  door.service.SetScript(Says("No."));
  CHECK(Ask(door, of("auto", "clock"))["choices"][0]["message"]["content"] == "No.");
  CHECK(PromptOf(door).find("weather") == std::string::npos);
  CHECK(door.Error(kChat, of("auto", "f")) ==
        "400 tool_choice tool_choice: there is no function \"f\" among the tools");
  CHECK(door.Error(kChat, of("none", "clock"))
            .starts_with("400 tool_choice tool_choice: allowed_tools has a mode"));
}

TEST_CASE("tools that cannot be taken are refused by name") {
  Door door({}, {}, ToolModel());
  const auto error = [&](const Json& fields) { return door.Error(kChat, Chat(fields)); };
  CHECK(error({{"tools", {{{"type", "web_search"}}}}}) ==
        "400 tools tools[0]: only {\"type\": \"function\"} is supported yet");
  CHECK(error({{"tools", {{{"type", "function"}, {"function", {{"name", 3}}}}}}}) ==
        "400 tools tools[0]: function.name: a string is expected");
  CHECK(error({{"tools",
                {{{"type", "function"}, {"function", {{"name", "f"}, {"strict", "yes"}}}}}}}) ==
        "400 tools tools[0]: function.strict: true or false is expected");
  CHECK(door.Error("/tokenize", {{"prompt", "x"}, {"tools", {5}}}) ==
        "400 tools tools[0]: an object is expected");
  CHECK(error({{"tool_choice", {{"type", "function"}, {"function", {{"name", "f"}}}}}}) ==
        "400 tool_choice tool_choice: there is no function \"f\" among the tools");
  CHECK(error({{"tools", Json::array()}, {"tool_choice", "required"}}) ==
        "400 tool_choice tool_choice: only with tools");
  CHECK(error({{"tool_choice", "any"}}).starts_with("400 tool_choice tool_choice: \"none\""));
  Door without({}, {}, ToolModel("{% for m in messages %}{{ m.content }}{% endfor %}"));
  CHECK(without.Error(kChat, Chat()) ==
        "400 tools tools: the chat template of the model 'org/demo' does not show tools to the "
        "model");
  Door unknown({}, {}, ToolModel("{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}"));
  CHECK(unknown.Error(kChat, Chat()).find("--tool-call-parser NAME") != std::string::npos);
  ServedModel model = *DoorModel();
  CHECK(FindAnswerFormats("hermes", model).ok());
  CHECK(std::string(FindAnswerFormats("no_such", model).message()).find("hermes") !=
        std::string::npos);
}

TEST_CASE("a format that does not read what the template writes is none") {
  const auto recognized = [](const std::string& call) {
    const auto model = ToolModel(("{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
                                  "{% for c in m.tool_calls or [] %}" +
                                  call + "{% endfor %}{% endfor %}")
                                     .c_str());
    return model->call_format == nullptr ? "" : std::string(model->call_format->name);
  };
  CHECK(recognized("<tool_call>{{ c.function | tojson }}</tool_call>") == "hermes");
  CHECK(recognized("<tool_call>{\"name\": {{ c.function.name | tojson }}, \"arguments\": { "
                   "{% for k, v in c.function.arguments | dictsort %}{{ ', ' if not loop.first }}"
                   "{{ k | tojson }}: {{ v | tojson }}{% endfor %}}}</tool_call>") == "hermes");
  CHECK(recognized("]x[<tool_call>]x[<invoke name={{ c.function.name }}>") == "");
  // It writes no name: nothing can be said.
  CHECK(recognized("<tool_call>") == "hermes");
}

TEST_CASE("a strict function that no grammar can hold is refused, or the answer says so") {
  Door door({}, {}, ToolModel());
  Json tool = Tool("weather");  // one of its parameters has no schema
  tool["function"]["strict"] = true;
  const HttpReply reply = door.Post(kChat, Chat({{"tools", {tool}}}).dump());
  if (HasTokenGrammars()) {
    CHECK(reply.status == 400);
    CHECK(reply.body.find("tools[0].function.parameters: the schema of $.at") != std::string::npos);
    return;
  }
  CHECK(reply.status == 200);
  CHECK(reply.head.find("x-tessera-not-enforced: tools[0].function.strict") != std::string::npos);
}

TEST_CASE("thinking is a field of its own") {
  Door door({}, {}, ToolModel());
  const Json plain = {{"tools", nullptr}};
  door.service.SetScript(Says("<think>\nHm.\n</think>\n\nYes."));
  const Json message = Ask(door, Chat(plain))["choices"][0]["message"];
  CHECK(message["reasoning_content"] == "Hm.");
  CHECK(message["reasoning"] == "Hm.");
  CHECK(message["content"] == "Yes.");
  const Streamed all = Join(door.Stream(kChat, Chat(plain)));
  CHECK(all.reasoning == "Hm.");
  CHECK(all.content == "Yes.");
  CHECK(all.finish == "stop");

  // The prompt has opened it, or closed it.
  Json open = plain;
  open["chat_template_kwargs"] = {{"open_thinking", true}};
  door.service.SetScript(Says("Hm.</think>Yes."));
  CHECK(Ask(door, Chat(open))["choices"][0]["message"]["reasoning"] == "Hm.");
  CHECK(door.service.last_request().thinking.is_open);
  for (const Json& off : {Json{{"enable_thinking", false}}, Json{{"reasoning_effort", "none"}}}) {
    Json fields = plain;
    fields.update(off);
    door.service.SetScript(Says("Yes.</think>"));
    const Json closed = Ask(door, Chat(fields))["choices"][0]["message"];
    CHECK(closed["content"] == "Yes.</think>");
    CHECK(door.service.last_request().thinking.opening.empty());
    CHECK(PromptOf(door).ends_with("<think>\n\n</think>\n\n"));
  }
  // A call that is asked for ends it.
  open["tools"] = Chat()["tools"];
  open["tool_choice"] = "required";
  door.service.SetScript(Says("clock\"}</tool_call>"));
  CHECK(Ask(door, Chat(open))["choices"][0]["message"]["tool_calls"].size() == 1);
  CHECK(PromptOf(door).ends_with("<think>\n</think>\n\n<tool_call>\n{\"name\": \""));
}

TEST_CASE("thinking_token_budget: the end of thinking goes to the worker as ids") {
  // The shipped tokenizer, with a token that closes thinking.
  const tests::TemporaryFolder folder;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::stringstream text;
    text << std::ifstream(std::filesystem::path("deploy/demo_model/tessera-demo") / name).rdbuf();
    folder.Write(name, absl::StrReplaceAll(text.str(), {{"<|pad|>", "</think>"}}));
  }
  auto model = std::make_shared<ServedModel>(*ToolModel());
  model->tokenizer = Tokenizer::Load(folder.path()).value();
  Door door({}, {}, model);
  Json fields = {{"tools", nullptr}, {"thinking_token_budget", 5}};
  const auto budget = [&] {
    Ask(door, Chat(fields));
    return door.service.last_request().thinking_budget;
  };
  REQUIRE(budget().has_value());
  CHECK(budget()->tokens == 5);
  CHECK(budget()->closing_id == 1);
  CHECK(model->tokenizer->Decode(budget()->opening_ids, false) == "<think>");
  CHECK(model->tokenizer->Decode(budget()->end_ids, false) == "\n</think>");
  fields["chat_template_kwargs"] = {{"open_thinking", true}};
  CHECK(budget()->opening_ids.empty());
  fields["enable_thinking"] = false;
  CHECK_FALSE(budget().has_value());
  // 0 turns it off where the client does not say otherwise.
  fields = {{"tools", nullptr}, {"thinking_token_budget", 0}};
  CHECK_FALSE(budget().has_value());
  const GenerationRequest off = door.service.last_request();
  CHECK(model->tokenizer->Decode(off.prompt_token_ids, false).ends_with("\n\n</think>\n\n"));
  fields["enable_thinking"] = true;
  CHECK(budget()->tokens == 0);
  // The other doors.
  door.Ask("/v1/responses", {{"input", "What"}, {"thinking_token_budget", 6}});
  CHECK(door.service.last_request().thinking_budget->tokens == 6);
  const nlohmann::json messages = {{"max_tokens", 50},
                                   {"messages", {{{"role", "user"}, {"content", "What"}}}},
                                   {"thinking", {{"type", "enabled"}, {"budget_tokens", 7}}}};
  door.Ask("/v1/messages", messages);
  CHECK(door.service.last_request().thinking_budget->tokens == 7);

  Door without({}, {}, ToolModel());
  CHECK_THAT(
      without.Error(kChat, {{"messages", messages["messages"]}, {"thinking_token_budget", 5}}),
      Catch::StartsWith("400 thinking_token_budget ") && Catch::Contains("</think>"));
  const HttpReply reply = without.Post("/v1/messages", messages.dump());
  CHECK(reply.status == 200);
  CHECK(reply.head.find("x-tessera-not-enforced: thinking.budget_tokens") != std::string::npos);
}

TEST_CASE("a template that writes its calls otherwise gets ids of its form") {
  const char* const mistral =
      "{% for m in messages %}{{ m.role }}={{ m.tool_call_id }}{% for c in m.tool_calls or [] %}"
      "[TOOL_CALLS]{{ c.id }}{% endfor %};{% endfor %}{{ tools | length }}";
  const auto model = ToolModel(mistral);
  Door door({}, {}, model);
  door.service.SetScript(
      Says("[TOOL_CALLS][{\"name\": \"clock\", \"arguments\": {}, \"id\": \"x\"}]"));
  const Json calls = Ask(door, Chat())["choices"][0]["message"]["tool_calls"];
  CHECK(std::string(calls[0]["id"]).size() == 9);
  Json messages = Chat()["messages"];
  messages.push_back({{"role", "assistant"},
                      {"tool_calls",
                       {{{"id", "call_foreign"},
                         {"type", "function"},
                         {"function", {{"name", "clock"}, {"arguments", "{}"}}}}}}});
  messages.push_back({{"role", "tool"}, {"tool_call_id", "call_foreign"}, {"content", "1"}});
  Ask(door, Chat({{"messages", messages}}));
  const std::string prompt = PromptOf(door);
  const std::string id = prompt.substr(prompt.find("[TOOL_CALLS]") + 12, 9);
  CHECK(id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz") == std::string::npos);
  CHECK(prompt.find("tool=" + id + ";") != std::string::npos);
}

}  // namespace tessera::coordinator
