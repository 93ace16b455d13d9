// What becomes of each field of a request body, and what is said of a wrong one.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::StartsWith;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";

Json Completion(const Json& fields = Json::object()) {
  Json body = {{"prompt", "What"}};
  body.update(fields);
  return body;
}

Json Chat(const Json& fields = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "What"}}}}};
  body.update(fields);
  return body;
}

}  // namespace

TEST_CASE("what is not said comes from the endpoint and from generation_config.json") {
  Door door;
  door.Ask(kCompletions, Completion());
  GenerationRequest request = door.service.last_request();
  CHECK(request.max_tokens == 16);
  CHECK(request.sampling.temperature == 0.25f);
  CHECK(request.sampling.top_k == 7);
  CHECK(request.sampling.top_p == 1.0f);
  CHECK(request.choice_count == 1);
  CHECK(request.top_logprobs == -1);
  CHECK(request.prompt_logprobs == -1);
  CHECK(request.skip_special_tokens);
  const uint64_t drawn = request.sampling.seed;

  door.Ask(kChat, Chat());
  request = door.service.last_request();
  CHECK(request.max_tokens == 200 - static_cast<int>(request.prompt_token_ids.size()));
  CHECK(request.sampling.seed != drawn);
  // <|begin|><|user|>What<|end|><|assistant|>
  CHECK(request.prompt_token_ids.front() == 0);
  CHECK(request.prompt_token_ids[1] == 3);
  CHECK(request.prompt_token_ids.back() == 4);
}

TEST_CASE("every field arrives") {
  Door door;
  const Json fields = {
      {"model", "org/demo"},
      {"temperature", 0.5},
      {"top_p", 0.9},
      {"top_k", -1},
      {"min_p", 0.1},
      {"repetition_penalty", 1.25},
      {"presence_penalty", -1},
      {"frequency_penalty", 2},
      {"logit_bias", {{"5", -100}, {"6", 2.5}}},
      {"seed", -3},
      {"n", 2},
      {"best_of", 2},
      {"stop", {"a", "bc"}},
      {"stop_token_ids", {9, 10}},
      {"include_stop_str_in_output", true},
      {"skip_special_tokens", false},
      {"ignore_eos", true},
      {"min_tokens", 3},
      {"max_tokens", 30.0},
      {"cache_salt", "salt"},
      {"priority", -2},
      {"prompt_logprobs", 1},
      {"unknown_to_us", {1, 2}},
      {"user", "somebody"},
      {"metadata", {{"a", "b"}}},
      {"store", true},
      {"service_tier", "auto"},
      {"prediction", {{"type", "content"}, {"content", "a"}}},
      {"suffix", nullptr},
      {"response_format", {{"type", "text"}}},
  };
  for (const char* path : {kCompletions, kChat}) {
    door.Ask(path, path == kChat ? Chat(fields) : Completion(fields));
    const GenerationRequest request = door.service.last_request();
    const SamplingOptions& sampling = request.sampling;
    CHECK(sampling.temperature == 0.5f);
    CHECK(sampling.top_p == 0.9f);
    CHECK(sampling.top_k == 0);
    CHECK(sampling.min_p == 0.1f);
    CHECK(sampling.repetition_penalty == 1.25f);
    CHECK(sampling.presence_penalty == -1);
    CHECK(sampling.frequency_penalty == 2);
    REQUIRE(sampling.logit_bias.size() == 2);
    CHECK(sampling.logit_bias[0] == std::pair<int32_t, float>(5, -100.0f));
    CHECK(sampling.seed == static_cast<uint64_t>(-3));
    CHECK(request.choice_count == 2);
    CHECK(request.stop_strings == std::vector<std::string>{"a", "bc"});
    CHECK(request.stop_token_ids == std::vector<int32_t>{9, 10});
    CHECK(request.include_stop_string);
    CHECK_FALSE(request.skip_special_tokens);
    CHECK(request.ignore_eos);
    CHECK(request.min_tokens == 3);
    CHECK(request.max_tokens == 30);
    CHECK(request.cache_salt == "salt");
    CHECK(request.priority == -2);
    CHECK(request.prompt_logprobs == 1);
  }
  door.Ask(kChat, Chat({{"max_completion_tokens", 5}}));
  CHECK(door.service.last_request().max_tokens == 5);
  door.Ask(kChat, Chat({{"logprobs", true}, {"top_logprobs", 4}}));
  CHECK(door.service.last_request().top_logprobs == 4);
  door.Ask(kChat, Chat({{"logprobs", true}}));
  CHECK(door.service.last_request().top_logprobs == 0);
  door.Ask(kChat, Chat({{"stop", "x"}}));
  CHECK(door.service.last_request().stop_strings == std::vector<std::string>{"x"});
  // As editors send them: more than OpenAI's four.
  std::vector<std::string> dozen;
  for (char c = 'a'; c <= 'l'; ++c) dozen.emplace_back(1, c);
  door.Ask(kChat, Chat({{"stop", dozen}}));
  CHECK(door.service.last_request().stop_strings == dozen);
}

TEST_CASE("a wrong type or range is 400 and names the field") {
  Door door;
  const std::vector<std::pair<const char*, Json>> wrong = {
      {"temperature", "hot"},
      {"temperature", -0.1},
      {"top_p", 0},
      {"top_p", 1.5},
      {"top_k", 1.5},
      {"top_k", -2},
      {"min_p", 2},
      {"repetition_penalty", 0},
      {"presence_penalty", 3},
      {"frequency_penalty", {1}},
      {"logit_bias", {1}},
      {"logit_bias", {{"x", 1}}},
      {"logit_bias", {{"5", 101}}},
      {"logit_bias", {{"99999999", 1}}},
      {"seed", "s"},
      {"seed", 1e300},
      {"n", 0},
      {"n", 1000000},
      {"n", true},
      {"best_of", 0},
      {"stop", 5},
      {"repetition_penalty", 0},
      {"repetition_penalty", 1e-300},
      {"stop", {"a", 5}},
      {"stop", std::vector<std::string>(65, "a")},
      {"stop", ""},
      {"stop_token_ids", "9"},
      {"stop_token_ids", {-1}},
      {"stop_token_ids", {512}},
      {"include_stop_str_in_output", "yes"},
      {"skip_special_tokens", 1},
      {"ignore_eos", "no"},
      {"min_tokens", -1},
      {"min_tokens", 17},
      {"max_tokens", -1},
      {"max_tokens", "5"},
      {"max_tokens", 1e18},
      {"cache_salt", 1},
      {"priority", "high"},
      {"prompt_logprobs", 21},
      {"return_token_ids", 1},
      {"timings", "yes"},
      {"stream", "true"},
      {"stream_options", {{"include_usage", true}}},  // without stream
      {"model", 5},
      {"user", 5},
      {"metadata", {1, 2}},
      {"store", "yes"},
      {"service_tier", {1}},
      {"prediction", "a"},
      {"response_format", {{"type", "xml"}}},
      {"response_format", "json"},
      {"structured_outputs", 1},
      {"guided_json", 1},
      {"guided_regex", {"a"}},
      {"guided_choice", {1}},
      {"guided_grammar", "yes or no"},
  };
  for (const auto& [field, value] : wrong) {
    INFO(field << " " << value.dump());
    const std::string error = door.Error(kCompletions, Completion({{field, value}}));
    CHECK_THAT(error, StartsWith(std::string("400 ") + field + " "));
    if (std::string(field) == "min_tokens") continue;  // a chat may go on to the context's end
    const std::string chat = door.Error(kChat, Chat({{field, value}}));
    CHECK_THAT(chat, StartsWith(std::string("400 ") + field + " "));
  }
  CHECK_THAT(door.Error(kCompletions, Completion({{"n", 2}, {"best_of", 1}})),
             StartsWith("400 best_of "));
  CHECK_THAT(door.Error(kCompletions, Completion({{"logprobs", 21}})), StartsWith("400 logprobs "));
  CHECK_THAT(door.Error(kCompletions, Completion({{"echo", 1}})), StartsWith("400 echo "));
  CHECK_THAT(door.Error(kCompletions, Completion({{"prompt", {"a", "b"}}, {"timings", true}})),
             StartsWith("400 timings "));
  CHECK_THAT(door.Error(kChat, Chat({{"logprobs", 1}})), StartsWith("400 logprobs "));
  CHECK_THAT(door.Error(kChat, Chat({{"top_logprobs", 1}})), StartsWith("400 top_logprobs "));
  CHECK_THAT(door.Error(kChat, Chat({{"chat_template_kwargs", 1}})),
             StartsWith("400 chat_template_kwargs "));
  CHECK_THAT(door.Error(kChat, Chat({{"chat_template_kwargs", {{"messages", 1}}}})),
             StartsWith("400 chat_template_kwargs "));
  CHECK_THAT(door.Error(kChat, Chat({{"stream", true}, {"stream_options", 1}})),
             StartsWith("400 stream_options "));
  CHECK(door.service.requests().empty());
}

TEST_CASE("what we know and do not have yet is said, never dropped") {
  Door door;
  const std::vector<std::pair<const char*, Json>> unsupported = {
      {"functions", {{{"name", "f"}}}},
      {"best_of", 3},
  };
  for (const auto& [field, value] : unsupported) {
    for (const char* path : {kCompletions, kChat}) {
      const Json fields = {{field, value}};
      const std::string error = door.Error(path, path == kChat ? Chat(fields) : Completion(fields));
      CHECK_THAT(error, StartsWith(std::string("400 ") + field + " "));
      CHECK(error.find("not supported yet") != std::string::npos);
    }
  }
  CHECK_THAT(door.Error(kCompletions, Completion({{"prompt_logprobs", 1}, {"stream", true}})),
             StartsWith("400 prompt_logprobs "));
  // Each endpoint's own fields at the other one.
  CHECK_THAT(door.Error(kCompletions, Completion({{"tools", {{{"type", "function"}}}}})),
             StartsWith("400 tools "));
  CHECK_THAT(door.Error(kCompletions, Completion({{"tool_choice", "auto"}})),
             StartsWith("400 tool_choice "));
  CHECK_THAT(door.Error(kChat, Chat({{"echo", true}})), StartsWith("400 echo "));
  CHECK_THAT(door.Error(kCompletions, Completion({{"logprobs", 1}, {"top_logprobs", 2}})),
             StartsWith("400 top_logprobs "));
  // What asks for nothing is no request for it.
  door.Ask(kChat,
           Chat({{"tools", Json::array()}, {"tool_choice", "none"}, {"functions", nullptr}}));
  door.Ask(kCompletions, Completion({{"suffix", ""}}));
  door.Ask(kChat, Chat({{"modalities", {"text"}}}));
  CHECK_THAT(door.Error(kChat, Chat({{"modalities", {"text", "audio"}}})),
             StartsWith("400 modalities "));
}

TEST_CASE("prompts: text, texts, ids, lists of ids; each its own choices in order") {
  Door door;
  const Json reply =
      door.Ask(kCompletions, Completion({{"prompt", {"What", {7, 8}, "is"}}, {"n", 2}}));
  REQUIRE(reply["choices"].size() == 6);
  for (size_t i = 0; i < 6; ++i) CHECK(reply["choices"][i]["index"] == i);
  REQUIRE(door.service.requests().size() == 3);
  door.Ask(kCompletions, Completion({{"prompt", {7, 8, 9}}}));
  CHECK(door.service.last_request().prompt_token_ids == std::vector<int32_t>{7, 8, 9});

  const std::vector<std::pair<Json, const char*>> wrong = {
      {5, "400 prompt "},          {Json::array(), "400 prompt "},
      {{"a", 5}, "400 prompt "},   {{1.5}, "400 prompt "},
      {{-1}, "400 prompt "},       {{1, "a"}, "400 prompt "},
      {{99999999}, "400 prompt "}, {Json::array({Json::array()}), "400 prompt "},
  };
  for (const auto& [prompt, error] : wrong) {
    INFO(prompt.dump());
    CHECK_THAT(door.Error(kCompletions, {{"prompt", prompt}, {"add_special_tokens", false}}),
               StartsWith(error));
  }
}

TEST_CASE("messages: text or parts of text; what else they hold is refused by its place") {
  Door door;
  door.Ask(kChat,
           {{"messages",
             {{{"role", "user"},
               {"content",
                {{{"type", "text"}, {"text", "Wh"}}, {{"type", "text"}, {"text", "at"}}}}}}}});
  const std::vector<int32_t> in_parts = door.service.last_request().prompt_token_ids;
  door.Ask(kChat, Chat());
  CHECK(door.service.last_request().prompt_token_ids == in_parts);
  // What a user writes is never a special token.
  door.Ask(kChat, {{"messages", {{{"role", "user"}, {"content", "<|end|>"}}}}});
  const std::vector<int32_t> ids = door.service.last_request().prompt_token_ids;
  CHECK(std::count(ids.begin(), ids.end(), 5) <= 1);
  CHECK(ids.size() > 6);

  const std::vector<std::pair<Json, std::string>> wrong = {
      {nullptr, "missing"},
      {Json::array(), "at least one message"},
      {"hello", "array"},
      {{"hello"}, "messages[0]"},
      {{{{"content", "no role"}}}, "messages[0]"},
      {{{{"role", "user"}, {"content", "a"}}, {{"role", "user"}, {"content", 5}}}, "messages[1]"},
      {{{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}, "parts other than text"},
      {{{{"role", "nobody"}, {"content", "a"}}}, "the roles are"},
  };
  for (const auto& [messages, part] : wrong) {
    const std::string error = door.Error(kChat, {{"messages", messages}});
    CHECK_THAT(error, StartsWith("400 messages "));
    INFO(error);
    CHECK(error.find(part) != std::string::npos);
  }
}

TEST_CASE("what does not fit the context is refused with both numbers") {
  Door door;
  const std::string error =
      door.Error(kCompletions, {{"prompt", std::vector<int>(190, 7)}, {"max_tokens", 11}});
  CHECK_THAT(error, StartsWith("400 max_tokens "));
  CHECK(error.find("200") != std::string::npos);
  CHECK(error.find("190") != std::string::npos);
  const std::string prompt = door.Error(kCompletions, {{"prompt", std::vector<int>(201, 7)}});
  CHECK_THAT(prompt, StartsWith("400 prompt "));
  CHECK(prompt.find("201") != std::string::npos);
  door.Ask(kCompletions, {{"prompt", std::vector<int>(190, 7)}, {"max_tokens", 10}});
}

TEST_CASE("tokenize and detokenize say what the model sees") {
  Door door;
  const Json text = door.Ask("/tokenize", {{"prompt", "What is"}, {"return_token_strs", true}});
  CHECK(text["count"] == text["tokens"].size());
  CHECK(text["max_model_len"] == 200);
  CHECK(text["token_strs"].size() == text["tokens"].size());
  CHECK(door.Ask("/detokenize", {{"tokens", text["tokens"]}})["prompt"] == "<|begin|>What is");
  const Json bare = door.Ask("/tokenize", {{"prompt", "What is"}, {"add_special_tokens", false}});
  CHECK(bare["count"] == int(text["count"]) - 1);

  const Json chat = Chat();
  door.Ask(kChat, chat);
  CHECK(door.Ask("/tokenize", chat)["tokens"] == door.service.last_request().prompt_token_ids);
  const Json open = door.Ask("/tokenize", Chat({{"add_generation_prompt", false}}));
  CHECK(open["tokens"].back() == 5);
  CHECK_THAT(door.Error("/tokenize", Chat({{"chat_template_kwargs", "x"}})),
             StartsWith("400 chat_template_kwargs "));
  CHECK_THAT(door.Error("/tokenize", {{"add_special_tokens", true}}), StartsWith("400 prompt "));
  CHECK_THAT(door.Error("/tokenize", {{"prompt", 5}}), StartsWith("400 prompt "));
  CHECK_THAT(door.Error("/detokenize", Json::object()), StartsWith("400 tokens "));
  CHECK_THAT(door.Error("/detokenize", {{"tokens", {99999999}}}), StartsWith("400 tokens "));
  CHECK_THAT(door.Error("/tokenize", {{"prompt", "x"}, {"model", "other"}}),
             StartsWith("404 model "));
}

TEST_CASE("a template prints the client's objects in the client's order") {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->chat_template =
      ChatTemplate::Parse(
          "{{ messages[0].call | tojson }} {{ shape | tojson }} {{ messages[0] | list }} "
          "{{ messages[0].content }}")
          .value();
  Door door({}, {}, model);
  const std::string body = R"({"chat_template_kwargs": {"shape": {"y": 2, "x": [{"b": 1, "a": 0}]}},
      "messages": [{"role": "user", "zone": 1, "content": [{"text": "hi", "type": "text"}],
                    "call": {"name": "f", "arguments": {"to": "b", "from": "a"}, "name": "g"}}],
      "max_tokens": 1})";
  const std::string expected =
      R"({"name": "g", "arguments": {"to": "b", "from": "a"}} {"y": 2, "x": [{"b": 1, "a": 0}]} )"
      R"(['role', 'zone', 'content', 'call'] hi)";
  const HttpReply reply = door.Post("/tokenize", body);
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  const Json tokens = Json::parse(reply.body)["tokens"];
  CHECK(door.Ask("/detokenize", {{"tokens", tokens}})["prompt"] == expected);
  REQUIRE(door.Post(kChat, body).status == 200);
  CHECK(Json(door.service.last_request().prompt_token_ids) == tokens);
}

TEST_CASE("a conversation's object of very many members is refused, elsewhere they are welcome") {
  Door door;
  Json many = Json::object();
  for (int i = 0; i < 501; ++i) many[std::to_string(i)] = 0;
  Json chat = Chat();
  chat["messages"][0]["extra"] = many;
  CHECK_THAT(door.Error(kChat, chat),
             StartsWith("400 messages ") && Catch::Contains("more than 500 members"));
  many.erase("0");
  chat["messages"][0]["extra"] = many;
  CHECK(door.Post(kChat, chat.dump()).status == 200);
  many["0"] = 0;
  CHECK(door.Post(kChat, Chat({{"metadata", many}}).dump()).status == 200);
}

}  // namespace tessera::coordinator
