// /apply-template and /tokenizer_info; /tokenize and /detokenize are in openai_fields_test.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::StartsWith;

constexpr char kApply[] = "/apply-template";

const Json kChat = {{"messages", {{{"role", "user"}, {"content", "What"}}}},
                    {"tools", {{{"type", "function"}, {"function", {{"name", "clock"}}}}}}};

Json With(const Json& fields) {
  Json body = kChat;
  body.update(fields);
  return body;
}

}  // namespace

TEST_CASE("/apply-template says what a chat of the same fields is generated from") {
  Door door({}, {}, ToolModel());
  for (const Json& fields :
       {Json::object(), Json{{"tool_choice", "none"}}, Json{{"tool_choice", "required"}},
        Json{{"enable_thinking", false}}, Json{{"reasoning_effort", "none"}},
        Json{{"add_generation_prompt", false}},
        Json{{"chat_template_kwargs", {{"open_thinking", true}}}}}) {
    INFO(fields);
    const std::string prompt = door.Ask(kApply, With(fields))["prompt"];
    door.Ask("/v1/chat/completions", With(fields));
    CHECK(prompt == PromptOf(door));
    const Json tokens = door.Ask("/tokenize", With(fields))["tokens"];
    CHECK(tokens == Json(door.service.last_request().prompt_token_ids));
  }
  CHECK_THAT(door.Error(kApply, Json::object()), StartsWith("400 messages messages: missing"));
  CHECK_THAT(door.Error(kApply, With({{"model", "x"}})), StartsWith("404 model "));
  CHECK_THAT(door.Error(kApply, With({{"chat_template", "x"}})), StartsWith("400 chat_template "));
  const HttpReply odd = door.Post(kApply, With({{"odd", 1}}).dump());
  CHECK(odd.head.find("x-tessera-ignored-fields: odd") != std::string::npos);
}

TEST_CASE("/tokenizer_info names special tokens and the template") {
  HttpApiOptions options;
  options.keys = KeyRing(std::vector<ApiKey>{{"secret", ""}});
  Door door(options, {}, ToolModel());
  CHECK(door.Get("/tokenizer_info").status == 401);
  const Json info =
      Json::parse(door.Get("/tokenizer_info", "Authorization: Bearer secret\r\n").body);
  CHECK(info["bos_token"] == "<|begin|>");
  CHECK(info["eos_token"] == "<|end|>");
  CHECK(info["vocab_size"] == 512);
  CHECK(info["model_max_length"] == 4000);
  CHECK(info["chat_template"] == ToolModel()->chat_template->chat_template.source());
  CHECK(std::string(info["chat_template"]).find("add_generation_prompt") != std::string::npos);
}

}  // namespace tessera::coordinator
