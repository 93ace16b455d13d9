// Anthropic's Messages over the flow: what its clients send and see.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch_skip.h"
#include "tests/coordinator/door.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMessages[] = "/v1/messages?beta=true";
constexpr char kCount[] = "/v1/messages/count_tokens";

Json Body(const Json& fields = Json::object()) {
  Json body = {{"model", "org/demo"},
               {"max_tokens", 100},
               {"messages", {{{"role", "user"}, {"content", "What"}}}}};
  body.update(fields);
  return body;
}

Json Tools() {
  return {
      {{"name", "clock"},
       {"description", "tells the time"},
       {"input_schema", {{"type", "object"}, {"properties", {{"zone", {{"pattern", "(?=a)"}}}}}}}},
      {{"type", "web_search_20250305"}, {"name", "web_search"}}};
}

// Members keep their order, both ways.
Json Ask(Door& door, const Json& body, const char* path = kMessages) {
  const HttpReply reply = door.Post(path, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body);
}

// Pings aside.
std::vector<std::pair<std::string, Json>> Events(Door& door, Json body) {
  body["stream"] = true;
  const HttpReply reply = door.Post(kMessages, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  auto events = NamedEventsOf(reply.body);
  std::erase_if(events, [](const auto& event) { return event.first == "ping"; });
  return events;
}

constexpr char kAnswer[] =
    "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"clock\", \"arguments\": "
    "{\"zone\": "
    "\"a\"}}\n</tool_call>";

}  // namespace

TEST_CASE("a message with tools, whole") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says(kAnswer));
  const Json reply = Ask(door, Body({{"tools", Tools()}}));
  CHECK(reply["type"] == "message");
  CHECK(reply["role"] == "assistant");
  CHECK(std::string(reply["id"]).starts_with("msg_"));
  REQUIRE(reply["content"].size() == 3);
  CHECK(reply["content"][0]["thinking"] == "Hm.");
  CHECK(reply["content"][1] == Json({{"type", "text"}, {"text", "I look."}}));
  CHECK(reply["content"][2]["type"] == "tool_use");
  CHECK(reply["content"][2]["name"] == "clock");
  CHECK(reply["content"][2]["input"] == Json({{"zone", "a"}}));
  CHECK(reply["stop_reason"] == "tool_use");
  CHECK(reply["stop_sequence"].is_null());
  CHECK(reply["usage"]["cache_read_input_tokens"] == 0);
  CHECK(reply["usage"]["input_tokens"] == door.service.last_request().prompt_token_ids.size());
  CHECK(PromptOf(door).find("\"name\": \"clock\"") != std::string::npos);
  CHECK(PromptOf(door).find("web_search") == std::string::npos);
}

TEST_CASE("a stream has the blocks of the whole message") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says(kAnswer));
  const auto events = Events(door, Body({{"tools", Tools()}}));
  REQUIRE(events.size() > 6);
  CHECK(events[0].first == "message_start");
  CHECK(events[0].second["message"]["content"].empty());
  std::string order, thinking, text, input;
  for (const auto& [name, data] : events) {
    if (name == "content_block_start")
      order += std::to_string(data["index"].get<int>()) +
               data["content_block"]["type"].get<std::string>() + "(";
    if (name == "content_block_stop") order += std::to_string(data["index"].get<int>()) + ")";
    if (name != "content_block_delta") continue;
    const Json& delta = data["delta"];
    thinking += delta.value("thinking", "");
    text += delta.value("text", "");
    input += delta.value("partial_json", "");
  }
  CHECK(order == "0thinking(0)1text(1)2tool_use(2)");
  CHECK(thinking == "Hm.");
  CHECK(text == "I look.");
  CHECK(Json::parse(input) == Json({{"zone", "a"}}));
  CHECK(events[events.size() - 2].first == "message_delta");
  CHECK(events[events.size() - 2].second["delta"]["stop_reason"] == "tool_use");
  CHECK(events[events.size() - 2].second["usage"]["output_tokens"] > 0);
  CHECK(events.back().first == "message_stop");
}

TEST_CASE("history: blocks become turns, and a billing line stays out") {
  Door door({}, {}, ToolModel());
  const Json messages = Json::parse(R"([
    {"role": "user", "content": [{"type": "text", "text": "Now?",
      "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "T", "signature": ""},
      {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"zone": "b", "a": 1}}]},
    {"role": "user", "content": [{"type": "text", "text": "Go on."},
      {"type": "tool_result", "tool_use_id": "toolu_1",
       "content": [{"type": "text", "text": "noon"}]}]}])");
  const Json system = Json::parse(R"([
    {"type": "text", "text": "x-anthropic-billing-header: cch=4711;"},
    {"type": "text", "text": "Be brief."}])");
  Ask(door, Body({{"system", system}, {"messages", messages}, {"tools", Tools()}}));
  const std::string prompt = PromptOf(door);
  CHECK(prompt.find("4711") == std::string::npos);
  CHECK(
      prompt.find("[system]Be brief.[user]Now?[assistant]<tool_call>\n{\"name\": \"clock\", "
                  "\"arguments\": {\"zone\": \"b\", \"a\": 1}}\n</tool_call>[tool]noon[user]Go on."
                  "[assistant]") != std::string::npos);
}

TEST_CASE("an answer goes on with a last message of the assistant's") {
  Door door({}, {}, ToolModel());
  door.service.SetScript(Says("2}"));
  Json body = Body();
  body["messages"].push_back({{"role", "assistant"}, {"content", "{\"a\": "}});
  const Json reply = Ask(door, body);
  const std::string prompt = PromptOf(door);
  CHECK(prompt.ends_with("[assistant]{\"a\": "));
  CHECK(reply["content"][0]["text"] == "2}");
  Json counted = body;
  for (const char* name : {"max_tokens", "stream"}) counted.erase(name);
  const HttpReply count = door.Post("/v1/messages/count_tokens", counted.dump());
  CHECK(Json::parse(count.body)["input_tokens"] ==
        door.service.last_request().prompt_token_ids.size());
  body["tools"] = Tools();
  body["tool_choice"] = {{"type", "any"}};
  const HttpReply refused = door.Post(kMessages, body.dump());
  CHECK(refused.status == 400);
  CHECK(refused.body.find("the last message is the assistant's") != std::string::npos);
  body["output_config"] = {{"format", {{"type", "json_schema"}, {"schema", Json::object()}}}};
  body.erase("tool_choice");
  CHECK(door.Post(kMessages, body.dump()).status == 400);
  body.erase("output_config");
  // One without text, or with calls, has been ended.
  body["messages"].back()["content"] =
      Json::parse(R"([{"type": "tool_use", "id": "t", "name": "clock", "input": {}}])");
  Ask(door, body);
  CHECK(PromptOf(door).ends_with("[assistant]"));
}

TEST_CASE("blocks that clients send back are read as text, or skipped and named") {
  Door door({}, {}, ToolModel());
  const Json messages = Json::parse(R"([
    {"role": "user", "content": [
      {"type": "document", "title": "Plan", "source": {"type": "text", "data": "A plan."}},
      {"type": "search_result", "source": "a.b", "title": "Hit",
       "content": [{"type": "text", "text": "Found."}]},
      {"type": "text", "text": "Now?"}]},
    {"role": "system", "content": [{"type": "text", "text": "Agents: none."}]},
    {"role": "system", "content": [], "output_config": {"effort": "low"}},
    {"role": "assistant", "content": [
      {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
      {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
      {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
      "content": [{"type": "tool_reference", "tool_name": "clock"}]}]}])");
  const HttpReply reply = door.Post(kMessages, Body({{"messages", messages}}).dump());
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  CHECK(reply.head.find("x-tessera-ignored-fields: messages[3]:server_tool_use, "
                        "messages[3]:web_search_tool_result") != std::string::npos);
  const std::string prompt = PromptOf(door);
  INFO(prompt);
  CHECK(
      prompt.starts_with("[user]Plan\nA plan.\nHit\na.b\nFound.\nNow?[system]Agents: none."
                         "[assistant]<tool_call>"));
  CHECK(prompt.find("[tool]clock[assistant]") != std::string::npos);
}

TEST_CASE("why a message stopped") {
  Door door({}, {}, ToolModel());
  const auto reason = [&](const Json& fields) {
    const Json reply = Ask(door, Body(fields));
    return reply["stop_reason"].get<std::string>() + " " + reply["stop_sequence"].dump();
  };
  door.service.SetScript(Says("Yes."));
  CHECK(reason(Json::object()) == "end_turn null");
  door.service.SetScript(Says("Yes.", Finish::kLength));
  CHECK(reason(Json::object()) == "max_tokens null");
  CHECK(reason({{"max_tokens", 32000}}) == "model_context_window_exceeded null");
  CHECK(door.service.last_request().max_tokens < 4000);
  door.service.SetScript([](const GenerationRequest&, GenerationSink& sink, const auto&) {
    ChoiceEvent event;
    event.text = "Yes";
    event.finish = Finish::kStop;
    event.stop_reason = "END";
    sink.OnChoice(event);
    sink.OnEnd(absl::OkStatus(), {}, "r");
  });
  CHECK(reason({{"stop_sequences", {"END"}}}) == "stop_sequence \"END\"");
}

TEST_CASE("sampling reaches the generation") {
  Door door({}, {}, ToolModel());
  Ask(door, Body({{"temperature", 0.5},
                  {"top_p", 0.25},
                  {"top_k", 3},
                  {"stop_sequences", {"x", "y"}},
                  {"max_tokens", 7},
                  {"metadata", {{"user_id", "u"}}}}));
  const GenerationRequest request = door.service.last_request();
  CHECK(request.sampling.temperature == 0.5f);
  CHECK(request.sampling.top_p == 0.25f);
  CHECK(request.sampling.top_k == 3);
  CHECK(request.stop_strings == std::vector<std::string>{"x", "y"});
  CHECK(request.max_tokens == 7);
}

TEST_CASE("thinking and tool choice by their names here") {
  Door door({}, {}, ToolModel());
  Ask(door, Body({{"thinking", {{"type", "disabled"}}}}));
  CHECK(PromptOf(door).ends_with("<think>\n\n</think>\n\n"));
  Ask(door, Body({{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}}));
  CHECK(PromptOf(door).ends_with("[assistant]"));
  Ask(door, Body({{"tools", Tools()}, {"tool_choice", {{"type", "any"}}}}));
  CHECK(PromptOf(door).ends_with("<tool_call>\n{\"name\": \""));
  Door effort({}, {},
              ToolModel("{% for m in messages %}{{ m.content }}{% endfor %}"
                        "({{ reasoning_effort }})"));
  const Json high = {{"output_config", {{"effort", "high"}}}};
  Ask(effort, Body(high));
  CHECK(PromptOf(effort).ends_with("()"));
  Json adaptive = Body(high);
  adaptive["thinking"] = {{"type", "adaptive"}};
  Ask(effort, adaptive);
  CHECK(PromptOf(effort).ends_with("(high)"));
  adaptive.erase("max_tokens");
  CHECK(Ask(effort, adaptive, kCount)["input_tokens"] ==
        effort.service.last_request().prompt_token_ids.size());
  Ask(door, Body({{"tools", Tools()}, {"tool_choice", {{"type", "tool"}, {"name", "clock"}}}}));
  CHECK(PromptOf(door).ends_with("{\"name\": \"clock\", \"arguments\":"));
  for (const Json& none : {Json(), Json::array()}) {
    for (const char* type : {"any", "tool"}) {
      const Json choice = {{"type", type}, {"name", "clock"}};
      CHECK_THAT(
          door.Post("/v1/messages", Body({{"tools", none}, {"tool_choice", choice}}).dump()).body,
          Catch::Contains("need tools"));
    }
  }
  Ask(door, Body({{"tools", Tools()}, {"tool_choice", {{"type", "none"}}}}));
  CHECK(PromptOf(door).find("clock") == std::string::npos);
}

TEST_CASE("an effort that the template does not take is left out and named") {
  Json body = Body({{"output_config", {{"effort", "max"}}}});
  body["thinking"] = {{"type", "adaptive"}};
  Door checks(
      {}, {},
      ToolModel("{% if reasoning_effort is defined and reasoning_effort not in "
                "['low', 'high'] %}{{ raise_exception('no such effort') }}{% endif %}"
                "{% for m in messages %}{{ m.content }}{% endfor %}({{ reasoning_effort }})"));
  const auto names_effort = [](const HttpReply& reply) {
    INFO(reply.body);
    CHECK(reply.status == 200);
    return reply.head.find("x-tessera-not-enforced: output_config.effort") != std::string::npos;
  };
  CHECK(names_effort(checks.Post(kMessages, body.dump())));
  CHECK(PromptOf(checks).ends_with("()"));
  body["output_config"]["effort"] = "high";
  CHECK_FALSE(names_effort(checks.Post(kMessages, body.dump())));
  CHECK(PromptOf(checks).ends_with("(high)"));
  Door plain({}, {}, ToolModel("{% for m in messages %}{{ m.content }}{% endfor %}"));
  CHECK(names_effort(plain.Post(kMessages, body.dump())));
}

TEST_CASE("errors have Anthropic's form, and a key may be an x-api-key") {
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"secret", ""}});
  Door door(options, {}, ToolModel());
  const auto error = [&](const Json& body, std::string_view headers) {
    const HttpReply reply = door.Post(kMessages, body.dump(), headers);
    const Json json = Json::parse(reply.body);
    CHECK(json.value("type", "") == "error");
    CHECK(json["error"].contains("param"));
    CHECK(json["error"].contains("code"));
    return std::to_string(reply.status) + " " + json["error"]["type"].get<std::string>() + " " +
           json["error"]["message"].get<std::string>();
  };
  constexpr std::string_view kKey = "x-api-key: secret\r\n";
  CHECK(door.Post(kMessages, Body().dump(), kKey).status == 200);
  CHECK(error(Body(), "").starts_with("401 authentication_error "));
  Json body = Body();
  body.erase("max_tokens");
  CHECK(error(body, kKey) == "400 invalid_request_error max_tokens: missing");
  CHECK(error(Body({{"model", "other"}}), kKey).starts_with("404 not_found_error "));
  const Json servers = {{"mcp_servers", {{{"name", "x"}}}}};
  CHECK(error(Body(servers), kKey) == "400 invalid_request_error mcp_servers: not supported yet");
  const Json schema = {{"output_config", {{"format", {{"type", "json_schema"}}}}}};
  CHECK(error(Body(schema), kKey).starts_with("400 invalid_request_error output_config: "));
  CHECK(error(Body({{"temperature", -1}}), kKey)
            .starts_with("400 invalid_request_error temperature: "));
  const Json image = {{{"role", "user"}, {"content", {{{"type", "image"}}}}}};
  CHECK(
      error(Body({{"messages", image}}), kKey) ==
      "400 invalid_request_error messages[0]: blocks of the type \"image\" are not supported yet");
  // Paths below it that are none, and other methods.
  const Json unknown = Json::parse(door.Post("/v1/messages/batches", "{}", kKey).body);
  CHECK(unknown["type"] == "error");
  CHECK(unknown["error"]["type"] == "not_found_error");
  const HttpReply method = door.Get("/v1/messages", kKey);
  CHECK(method.status == 405);
  CHECK(Json::parse(method.body)["type"] == "error");
}

TEST_CASE("tokens are counted as the prompt has them") {
  Door door({}, {}, ToolModel());
  const Json body = Body({{"tools", Tools()}, {"system", "Be brief."}});
  Ask(door, body);
  Json asked = body;
  asked.erase("max_tokens");
  CHECK(Ask(door, asked, kCount)["input_tokens"] ==
        door.service.last_request().prompt_token_ids.size());
  // One that does not fit the context too.
  asked["system"] = std::string(100'000, 'a');
  CHECK(Ask(door, asked, kCount)["input_tokens"] > 4000);
  CHECK(door.service.requests().size() == 1);
}

TEST_CASE("an answer has the form of output_config, or the schema is refused by its place") {
  if (!HasTokenGrammars()) TESSERA_SKIP("no xgrammar: deploy/install_xgrammar");
  Door door({}, {}, ToolModel());
  const auto format = [](const Json& schema) {
    return Body({{"output_config", {{"format", {{"type", "json_schema"}, {"schema", schema}}}}}});
  };
  const Json schema = {
      {"type", "object"},
      {"properties", {{"zeta", {{"type", "integer"}}}, {"alpha", {{"type", "string"}}}}},
      {"required", {"zeta", "alpha"}}};
  Ask(door, format(schema));
  const std::string grammar = door.service.last_request().grammar;
  REQUIRE(grammar.find("zeta") != std::string::npos);
  // The last property is written first: the declared order is kept.
  CHECK(grammar.find("alpha") < grammar.find("zeta"));
  Ask(door, Body({{"output_format", {{"type", "json_schema"}, {"schema", schema}}}}));
  CHECK(door.service.last_request().grammar == grammar);
  Ask(door, Body({{"output_config", {{"effort", "high"}}}}));
  CHECK(door.service.last_request().grammar.empty());
  const HttpReply refused =
      door.Post(kMessages, format({{"type", "array"}, {"uniqueItems", true}}).dump());
  CHECK(refused.status == 400);
  CHECK(std::string(Json::parse(refused.body)["error"]["message"])
            .starts_with("output_config: format.schema: the schema of $: uniqueItems"));
}

}  // namespace tessera::coordinator
