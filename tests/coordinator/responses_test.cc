// OpenAI's Responses over the flow: what its clients send and see.

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;
using Catch::Matchers::StartsWith;

constexpr char kResponses[] = "/v1/responses";

Json Body(const Json& fields = Json::object()) {
  Json body = {{"model", "org/demo"}, {"input", "What"}};
  body.update(fields);
  return body;
}

Json Clock() {
  return {{"type", "function"},
          {"name", "clock"},
          {"parameters", {{"type", "object"}, {"properties", {{"zone", {{"type", "string"}}}}}}}};
}

Json Patch() {
  return {{"type", "custom"},
          {"name", "apply_patch"},
          {"description", "edits"},
          {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: x"}}}};
}

// Members keep their order, both ways.
Json Ask(Door& door, const Json& body) {
  const HttpReply reply = door.Post(kResponses, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body);
}

std::vector<std::pair<std::string, Json>> Events(Door& door, Json body) {
  body["stream"] = true;
  const HttpReply reply = door.Post(kResponses, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return NamedEventsOf(reply.body);
}

// Without the random parts of each response.
Json WithoutIds(Json items) {
  for (Json& item : items) {
    item.erase("id");
    item.erase("call_id");
  }
  return items;
}

std::string Call(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

const std::string kAnswer =
    "<think>\nHm.\n</think>\n\nI look.\n" + Call("clock", R"({"zone": "a"})");

}  // namespace

TEST_CASE("a response with reasoning, text and a call, whole") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says(kAnswer));
  const Json reply = Ask(door, Body({{"tools", {Clock()}}, {"temperature", 0.5}}));
  CHECK(reply["object"] == "response");
  CHECK(reply["status"] == "completed");
  CHECK(reply["store"] == false);
  CHECK(reply["temperature"] == 0.5);
  CHECK(reply["tools"][0]["name"] == "clock");
  CHECK(std::string(reply["id"]).starts_with("resp_"));
  REQUIRE(reply["output"].size() == 3);
  const Json& reasoning = reply["output"][0];
  CHECK(reasoning["type"] == "reasoning");
  CHECK(reasoning["content"] == Json::parse(R"([{"type": "reasoning_text", "text": "Hm."}])"));
  CHECK(reply["output"][1]["content"][0]["text"] == "I look.");
  const Json& call = reply["output"][2];
  CHECK(call["type"] == "function_call");
  CHECK(call["name"] == "clock");
  CHECK(Json::parse(std::string(call["arguments"])) == Json({{"zone", "a"}}));
  CHECK(call["id"] != call["call_id"]);
  const size_t prompt = door.service.last_request().prompt_token_ids.size();
  CHECK(reply["usage"]["input_tokens"] == prompt);
  CHECK(reply["usage"]["total_tokens"] == prompt + reply["usage"]["output_tokens"].get<size_t>());
  CHECK(reply["usage"]["input_tokens_details"]["cached_tokens"] == 0);
  CHECK(reply["usage"]["output_tokens_details"]["reasoning_tokens"].is_number());
}

TEST_CASE(
    "a stream: numbered events, each item opened, filled and closed, and the whole at its end") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says(kAnswer));
  const Json body = Body({{"tools", {Clock()}}});
  const auto events = Events(door, body);
  std::vector<std::string> order;
  std::string text, arguments;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& [name, data] = events[i];
    CHECK(data["sequence_number"] == i);
    if (order.empty() || order.back() != name) order.push_back(name);
    if (name == "response.output_text.delta") text += data["delta"];
    if (name == "response.function_call_arguments.delta") arguments += data["delta"];
  }
  const std::vector<std::string> expected = {"response.created",
                                             "response.in_progress",
                                             "response.output_item.added",
                                             "response.content_part.added",
                                             "response.reasoning_text.delta",
                                             "response.reasoning_text.done",
                                             "response.content_part.done",
                                             "response.output_item.done",
                                             "response.output_item.added",
                                             "response.content_part.added",
                                             "response.output_text.delta",
                                             "response.output_text.done",
                                             "response.content_part.done",
                                             "response.output_item.done",
                                             "response.output_item.added",
                                             "response.function_call_arguments.delta",
                                             "response.function_call_arguments.done",
                                             "response.output_item.done",
                                             "response.completed"};
  CHECK(order == expected);
  CHECK(text == "I look.");
  const Json& completed = events.back().second["response"];
  CHECK(arguments == completed["output"][2]["arguments"].get<std::string>());
  CHECK(events[0].second["response"]["id"] == completed["id"]);
  CHECK(events[0].second["response"]["output"].empty());
  CHECK(WithoutIds(completed["output"]) == WithoutIds(Ask(door, body)["output"]));
  Json done = Json::array();
  std::map<std::string, Json> ids;  // of open items
  for (const auto& [name, data] : events) {
    if (name == "response.output_item.added") ids[data["item"]["id"]] = data["output_index"];
    if (name == "response.output_item.done") done.push_back(data["item"]);
    if (data.contains("item_id")) CHECK(ids.at(data["item_id"]) == data["output_index"]);
  }
  CHECK(done == completed["output"]);
}

TEST_CASE("items become turns: instructions first, the assistant's items together") {
  Door door({}, {}, ToolModel());
  const Json input = Json::parse(R"([
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Dev."}]},
    {"role": "user", "content": [{"type": "input_text", "text": "Now?"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x",
     "content": [{"type": "reasoning_text", "text": "T"}]},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
     "content": [{"type": "output_text", "text": "Wait.", "annotations": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "clock",
     "arguments": "{\"zone\": \"b\", \"a\": 1}"},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** x"},
    {"type": "function_call_output", "call_id": "call_1", "output": "noon"},
    {"type": "custom_tool_call_output", "call_id": "call_2",
     "output": [{"type": "input_text", "text": "done"}]}])");
  Ask(door, Body({{"instructions", "Be brief."}, {"input", input}, {"tools", {Clock(), Patch()}}}));
  const std::string prompt = PromptOf(door);
  INFO(prompt);
  CHECK(
      prompt.find("[system]Be brief.\n\nDev.[user]Now?[assistant]Wait.<tool_call>\n"
                  "{\"name\": \"clock\", \"arguments\": {\"zone\": \"b\", \"a\": 1}}\n</tool_call>"
                  "<tool_call>\n{\"name\": \"apply_patch\", \"arguments\": {\"input\": \"*** x\"}}"
                  "\n</tool_call>[tool]noon[tool]done[assistant]") != std::string::npos);
  const auto error = [&](const char* item) {
    return door.Error(kResponses, Body({{"input", {Json::parse(item)}}}));
  };
  CHECK_THAT(error(R"({"type": "item_reference", "id": "x"})"), StartsWith("400 input input[0]: "));
  CHECK_THAT(error(R"({"role": "user", "content": [{"type": "input_image"}]})"),
             StartsWith("400 input input[0]: content: parts of the type \"input_image\""));
}

TEST_CASE("items that clients of OpenAI send back are read, or skipped and named") {
  Door door({}, {}, ToolModel());
  const Json input = Json::parse(R"([
    {"type": "additional_tools", "role": "developer", "tools": [
      {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]},
    {"role": "user", "content": "Go."},
    {"type": "web_search_call", "id": "ws_1", "status": "completed",
     "action": {"type": "search", "query": "x"}},
    {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "status": "completed",
     "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "c1", "output": "files"},
    {"type": "shell_call", "call_id": "c2", "action": {"commands": ["pwd"]}},
    {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "here"}]},
    {"type": "apply_patch_call", "call_id": "c3", "operation": {"type": "delete_file"}},
    {"type": "apply_patch_call_output", "call_id": "c3", "status": "completed"},
    {"type": "tool_search_call", "call_id": "c4", "execution": "client",
     "arguments": {"query": "clock"}},
    {"type": "tool_search_output", "call_id": "c4", "execution": "client", "tools": [
      {"type": "function", "name": "clock", "parameters": {"type": "object"}}]},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "home", "name": "read",
     "arguments": "{}", "output": "warm"},
    {"type": "agent_message", "author": "/root/a", "recipient": "/root",
     "content": [{"type": "input_text", "text": "Done."}]}])");
  door.service.SetScript(Says(Call("functions__exec", R"({"input": "1 + 1"})")));
  const HttpReply reply = door.Post(kResponses, Body({{"input", input}}).dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  CHECK(reply.head.find("x-tessera-ignored-fields: input[2]:web_search_call\r\n") !=
        std::string::npos);
  const Json output = Json::parse(reply.body)["output"];
  CHECK(output[0]["type"] == "custom_tool_call");
  CHECK(output[0]["namespace"] == "functions");
  CHECK(output[0]["input"] == "1 + 1");
  const std::string prompt = PromptOf(door);
  INFO(prompt);
  for (const char* part :
       {"\"name\": \"functions__exec\"", "{\"name\": \"clock\", \"parameters\"",
        "[user]Go.[assistant]<tool_call>\n{\"name\": \"local_shell\", \"arguments\": {\"type\": "
        "\"exec\", \"command\": [\"ls\"]}}\n</tool_call>[tool]files[assistant]",
        "\"shell\", \"arguments\": {\"commands\": [\"pwd\"]}}", "[tool][{\"stdout\":\"here\"}]",
        "\"apply_patch\", \"arguments\": {\"type\": \"delete_file\"}}", "[tool]completed",
        "\"tool_search\", \"arguments\": {\"query\": \"clock\"}}", "[tool]found: clock[",
        "\"home__read\"", "[tool]warm", "[user]Message from /root/a:\nDone.[assistant]"}) {
    INFO(part);
    CHECK(prompt.find(part) != std::string::npos);
  }
  const auto error = [&](const char* item) {
    return door.Error(kResponses, Body({{"input", {Json::parse(item)}}}));
  };
  CHECK_THAT(error(R"({"type": "compaction", "encrypted_content": "x"})"),
             StartsWith("400 input input[0]: items of the type \"compaction\" cannot be read"));
  CHECK_THAT(error(R"({"type": "computer_call"})"),
             StartsWith("400 input input[0]: items of the type \"computer_call\" are not"));
  CHECK_THAT(error(R"({"type": "additional_tools", "tools": 1})"),
             StartsWith("400 input input[0].tools: an array is expected"));
  CHECK_THAT(error(R"({"type": "shell_call", "call_id": "c", "action": "ls"})"),
             StartsWith("400 input input[0]: action: an object is expected"));
  // A probe.
  CHECK(door.Post(kResponses, Body({{"input", Json::array()}, {"instructions", "Hi."}}).dump())
            .status == 200);
  CHECK_THAT(door.Error(kResponses, Body({{"input", Json::array()}})), StartsWith("400 input "));
}

TEST_CASE("tools of a namespace and custom ones are offered, and answered as they are called") {
  Door door({}, {}, ToolModel());
  const Json space = {
      {"type", "namespace"}, {"name", "mcp__home"}, {"description", "d"}, {"tools", {Clock()}}};
  const Json tools = {space, Patch(), {{"type", "web_search"}}};
  door.service.SetScript(Says(Call("mcp__home__clock", "{}") + "\n" +
                              Call("apply_patch", R"({"input": "a\n\"b\""})")));
  const HttpReply raw = door.Post(kResponses, Body({{"tools", tools}}).dump());
  CHECK(raw.head.find("x-tessera-ignored-fields: tools[2]:web_search") != std::string::npos);
  CHECK(raw.head.find("x-tessera-not-enforced: tools[1].format") != std::string::npos);
  const Json output = Json::parse(raw.body)["output"];
  REQUIRE(output.size() == 2);
  CHECK(output[0]["type"] == "function_call");
  CHECK(output[0]["namespace"] == "mcp__home");
  CHECK(output[0]["name"] == "clock");
  CHECK(output[1]["type"] == "custom_tool_call");
  CHECK(output[1]["input"] == "a\n\"b\"");
  CHECK(PromptOf(door).find("start: x") != std::string::npos);

  std::string input;
  for (const auto& [name, data] : Events(door, Body({{"tools", tools}}))) {
    if (name == "response.custom_tool_call_input.delta") input += data["delta"];
  }
  CHECK(input == "a\n\"b\"");

  const Json history = {{{"type", "function_call"},
                         {"call_id", "c"},
                         {"namespace", "mcp__home"},
                         {"name", "clock"},
                         {"arguments", "{}"}},
                        {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "1"}}};
  const Json choice = {{"type", "function"}, {"name", "clock"}, {"namespace", "mcp__home"}};
  Ask(door, Body({{"input", history}, {"tools", tools}, {"tool_choice", choice}}));
  CHECK(PromptOf(door).find("[assistant]<tool_call>\n{\"name\": \"mcp__home__clock\"") !=
        std::string::npos);
  CHECK(PromptOf(door).ends_with("{\"name\": \"mcp__home__clock\", \"arguments\":"));
}

TEST_CASE("a search for tools that the client runs is called as such") {
  Door door({}, {}, ToolModel());
  const Json search = {{"type", "tool_search"},
                       {"execution", "client"},
                       {"description", "finds tools"},
                       {"parameters", {{"type", "object"}}}};
  door.service.SetScript(Says(Call("tool_search", R"({"query": "a"})")));
  const Json body = Body({{"tools", {search}}});
  const Json item = Ask(door, body)["output"][0];
  CHECK(PromptOf(door).find("\"description\": \"finds tools\"") != std::string::npos);
  CHECK(item["type"] == "tool_search_call");
  CHECK(item["execution"] == "client");
  CHECK(item["status"] == "completed");
  CHECK(item["arguments"] == Json({{"query", "a"}}));
  const auto events = Events(door, body);
  CHECK(WithoutIds(events.back().second["response"]["output"]) == WithoutIds(Json::array({item})));
  // Where a server searches, there is none here.
  const HttpReply reply =
      door.Post(kResponses, Body({{"tools", {{{"type", "tool_search"}}}}}).dump());
  CHECK(reply.head.find("x-tessera-ignored-fields: tools[0]:tool_search") != std::string::npos);
}

TEST_CASE("an answer that is cut is incomplete, and a call that is none is text") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says("Yes", Finish::kLength));
  const Json reply = Ask(door, Body({{"max_output_tokens", 3}}));
  CHECK(door.service.last_request().max_tokens == 3);
  CHECK(reply["status"] == "incomplete");
  CHECK(reply["incomplete_details"]["reason"] == "max_output_tokens");
  CHECK(reply["output"][0]["status"] == "incomplete");
  CHECK(Events(door, Body()).back().first == "response.incomplete");

  const std::string broken =
      "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\" oh\n</tool_call>";
  door.service.SetScript(Says(broken));
  const Json whole = Ask(door, Body({{"tools", {Clock()}}}));
  REQUIRE(whole["output"].size() == 1);
  CHECK(whole["output"][0]["content"][0]["text"] == broken);
  const auto events = Events(door, Body({{"tools", {Clock()}}}));
  CHECK(events.back().first == "response.completed");
  for (const auto& [name, data] : events) {
    const bool call_done =
        name == "response.output_item.done" && data["item"]["type"] == "function_call";
    if (call_done) CHECK(data["item"]["status"] == "incomplete");
  }
}

TEST_CASE("an error within a stream is a failed response") {
  Door door({}, {}, ToolModel());
  door.service.SetScript([](const GenerationRequest&, GenerationSink& sink, const auto&) {
    ChoiceEvent event;
    event.text = "Yes";
    sink.OnChoice(event);
    sink.OnEnd(absl::UnavailableError("no worker is left"), {}, "r");
  });
  const auto events = Events(door, Body());
  CHECK(events.back().first == "response.failed");
  CHECK(events.back().second["sequence_number"] == events.size() - 1);
  const Json& response = events.back().second["response"];
  CHECK(response["status"] == "failed");
  CHECK(response["error"] == Json({{"code", "server_error"}, {"message", "no worker is left"}}));
}

TEST_CASE("what would need a store is refused by name, and what asks for nothing is not") {
  Door door({}, {}, ToolModel());
  const auto error = [&](const Json& fields) { return door.Error(kResponses, Body(fields)); };
  CHECK_THAT(error({{"store", true}}), StartsWith("400 store store: responses are not stored"));
  CHECK_THAT(error({{"previous_response_id", "resp_1"}}), StartsWith("400 previous_response_id "));
  CHECK_THAT(error({{"conversation", "conv_1"}}), StartsWith("400 conversation "));
  CHECK_THAT(error({{"background", true}}), StartsWith("400 background "));
  CHECK_THAT(error({{"truncation", "middle"}}), StartsWith("400 truncation truncation: \"auto\""));
  CHECK_THAT(error({{"include", {"message.output_text.logprobs"}}}), StartsWith("400 include "));
  CHECK_THAT(error({{"tool_choice", {{"type", "file_search"}}}}), StartsWith("400 tool_choice "));
  CHECK_THAT(error({{"tool_choice", "required"}}), StartsWith("400 tool_choice "));
  CHECK_THAT(error({{"max_output_tokens", 100000}}), StartsWith("400 max_output_tokens "));
  CHECK_THAT(error({{"input", nullptr}}), StartsWith("400 input input: missing"));
  const Json reply = Ask(door, Body({{"store", false},
                                     {"previous_response_id", nullptr},
                                     {"background", false},
                                     {"truncation", "disabled"},
                                     {"include", {"reasoning.encrypted_content"}},
                                     {"prompt_cache_key", "k"},
                                     {"client_metadata", {{"a", "b"}}},
                                     {"text", {{"format", {{"type", "text"}}}}}}));
  CHECK(reply["text"]["format"]["type"] == "text");
}

namespace {

// Turns of about 500 tokens, the last one's answer still to come. Each calls a tool.
Json LongInput(int turns) {
  Json input = {{{"role", "developer"}, {"content", "Dev."}}};
  for (int i = 0; i < turns; ++i) {
    const std::string id = std::to_string(i);
    std::string text = "Q" + id;
    while (text.size() < 1000) text += " word";
    input.push_back({{"role", "user"}, {"content", text}});
    if (i + 1 == turns) break;
    input.push_back(
        {{"type", "function_call"}, {"call_id", id}, {"name", "clock"}, {"arguments", "{}"}});
    input.push_back({{"type", "function_call_output"}, {"call_id", id}, {"output", "O" + id}});
    input.push_back({{"role", "assistant"}, {"content", "A" + id}});
  }
  return input;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("truncation auto drops the oldest turns, so that up to a quarter of the room is free") {
  constexpr int kTurns = 24;
  constexpr int64_t kBlock = (4000 - 500) / 4;
  Door door({}, {}, ToolModel());
  const Json asked = Body({{"input", LongInput(kTurns)}, {"tools", {Clock()}}});
  CHECK_THAT(door.Error(kResponses, asked), StartsWith("400 input This model's maximum context"));
  const Json counted = Json::parse(door.Post("/v1/responses/input_tokens", asked.dump()).body);
  CHECK(counted["input_tokens"] > 4000);

  Json cut = asked;
  cut["truncation"] = "auto";
  CHECK(Ask(door, cut)["truncation"] == "auto");
  const auto kept = [&] {
    const std::string prompt = PromptOf(door);
    int first = 0;
    while (!Has(prompt, "[user]Q" + std::to_string(first) + " ")) ++first;
    CHECK(Has(prompt, "[system]Dev."));
    for (int i = 0; i < kTurns; ++i) {
      const std::string id = std::to_string(i);
      INFO(i);
      CHECK(Has(prompt, "[user]Q" + id + " ") == (i >= first));
      if (i + 1 < kTurns) CHECK(Has(prompt, "[tool]O" + id + "[") == (i >= first));
      if (i + 1 < kTurns) CHECK(Has(prompt, "[assistant]A" + id + "[") == (i >= first));
    }
    return first;
  };
  // An eighth of the context is left for the answer, and beside it no more than a turn and a
  // quarter of the rest.
  const int dropped = kept();
  CHECK(dropped > 0);
  const int64_t room = door.service.last_request().max_tokens;
  const int64_t turn = (counted["input_tokens"].get<int64_t>() - (4000 - room)) / dropped + 1;
  CHECK(room >= 500);
  CHECK(room - turn < 500 + kBlock);
  cut["max_output_tokens"] = 2000;
  Ask(door, cut);
  CHECK(kept() > dropped);
  CHECK(door.service.last_request().max_tokens == 2000);
  // What has to stay does not fit.
  cut["max_output_tokens"] = 3990;
  CHECK_THAT(door.Error(kResponses, cut), StartsWith("400 max_output_tokens "));
}

TEST_CASE("truncation auto cuts at the same turn until the context is full again") {
  constexpr int64_t kBlock = (4000 - 500) / 4;
  Door door({}, {}, ToolModel());
  std::vector<std::string> begins;  // of the prompts, up to the first turn that is left
  std::vector<int64_t> tokens;
  for (int turns = 24; turns < 40; ++turns) {
    Json asked = Body({{"input", LongInput(turns)}, {"tools", {Clock()}}});
    const HttpReply counted = door.Post("/v1/responses/input_tokens", asked.dump());
    tokens.push_back(Json::parse(counted.body)["input_tokens"]);
    asked["truncation"] = "auto";
    Ask(door, asked);
    const std::string prompt = PromptOf(door);
    std::string begin = prompt.substr(0, prompt.find(' ', prompt.find("[user]Q")));
    if (begins.empty() || begins.back() != begin) begins.push_back(std::move(begin));
  }
  CHECK(begins.size() > 1);
  CHECK(static_cast<int64_t>(begins.size()) <= (tokens.back() - tokens.front()) / kBlock + 2);
}

TEST_CASE("truncation auto drops steps of the last turn, each call with its output") {
  Door door({}, {}, ToolModel());
  const auto ask = [&](int steps) {
    Json input = {{{"role", "user"}, {"content", "First"}},
                  {{"role", "assistant"}, {"content", "Yes."}},
                  {{"role", "user"}, {"content", "Last"}}};
    for (int i = 0; i < steps; ++i) {
      const std::string id = std::to_string(i);
      input.push_back({{"type", "function_call"},
                       {"call_id", id},
                       {"name", "clock"},
                       {"arguments", "{\"zone\": \"Z" + id + "\"}"}});
      std::string text = "O" + id;
      while (text.size() < 1000) text += " word";
      input.push_back({{"type", "function_call_output"}, {"call_id", id}, {"output", text}});
    }
    Ask(door, Body({{"input", input}, {"tools", {Clock()}}, {"truncation", "auto"}}));
    return PromptOf(door);
  };
  const std::string all = ask(2);
  CHECK(Has(all, "[user]First"));
  CHECK(Has(all, "\"Z0\""));
  const std::string some = ask(24);
  CHECK_FALSE(Has(some, "[user]First"));
  CHECK(Has(some, "[user]Last"));
  CHECK_FALSE(Has(some, "\"Z0\""));
  for (int i = 0; i < 24; ++i) {
    const std::string id = std::to_string(i);
    CHECK(Has(some, "\"Z" + id + "\"") == Has(some, "[tool]O" + id + " "));
  }
  CHECK(Has(some, "\"Z23\""));
}

TEST_CASE("text.format holds the answer to a form as a chat's response_format does") {
  Door door({}, {}, ToolModel());
  const Json schema = {{"type", "object"}, {"properties", {{"b", {{"type", "integer"}}}}}};
  const Json format = {
      {"type", "json_schema"}, {"name", "n"}, {"strict", true}, {"schema", schema}};
  const Json body = Body({{"text", {{"format", format}}}});
  const HttpReply reply = door.Post(kResponses, body.dump());
  if (reply.status != 200) {  // a build without grammars
    CHECK_THAT(Door::ErrorOf(reply), StartsWith("400 text "));
    return;
  }
  CHECK_FALSE(door.service.last_request().grammar.empty());
  CHECK(Json::parse(reply.body)["text"]["format"] == format);
  const Json bad = {{"type", "json_schema"}, {"schema", {{"type", "nothing"}}}};
  CHECK_THAT(door.Error(kResponses, Body({{"text", {{"format", bad}}}})),
             StartsWith("400 text text.format.schema: "));
  const Json strange = {{"format", {{"type", "xml"}}}};
  CHECK_THAT(door.Error(kResponses, Body({{"text", strange}})),
             StartsWith("400 text text.format: "));
}

TEST_CASE("the tokens of a request are counted as its prompt has them") {
  Door door({}, {}, ToolModel());
  const Json asked = Body({{"instructions", "Be short."}, {"tools", {Clock()}}});
  const HttpReply counted = door.Post("/v1/responses/input_tokens", asked.dump());
  CHECK(counted.status == 200);
  Ask(door, asked);
  const size_t tokens = door.service.last_request().prompt_token_ids.size();
  CHECK(Json::parse(counted.body) ==
        Json({{"object", "response.input_tokens"}, {"input_tokens", tokens}}));
  CHECK(door.service.requests().size() == 1);
  const Json stored = Body({{"previous_response_id", "resp_1"}});
  CHECK_THAT(Door::ErrorOf(door.Post("/v1/responses/input_tokens", stored.dump())),
             StartsWith("400 previous_response_id "));
}

TEST_CASE("reasoning effort and sampling reach the generation") {
  Door door({}, {}, ToolModel());
  Ask(door, Body({{"reasoning", {{"effort", "none"}}}, {"seed", 7}, {"top_p", 0.25}}));
  CHECK(PromptOf(door).ends_with("<think>\n\n</think>\n\n"));
  CHECK(door.service.last_request().sampling.seed == 7);
  CHECK(door.service.last_request().sampling.top_p == 0.25f);
}

}  // namespace tessera::coordinator
