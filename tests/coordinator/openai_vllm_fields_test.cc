// Fields beyond OpenAI's, with vLLM's names and meaning.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";

Json Chat(const Json& fields = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "What"}}}}};
  body.update(fields);
  return body;
}

std::string TextOf(Door& door, const std::vector<int32_t>& ids) {
  return door.Ask("/detokenize", {{"tokens", ids}})["prompt"];
}

}  // namespace

TEST_CASE("allowed_token_ids and bad_words reach the generation") {
  Door door;
  door.Ask(kCompletions, {{"prompt", "x"}, {"allowed_token_ids", {7, 9}}});
  CHECK(door.service.last_request().allowed_token_ids == std::vector<int32_t>{7, 9});
  door.Ask(kChat, Chat({{"bad_words", {"What", "a longer word"}}}));
  const std::vector<std::vector<int32_t>> words = door.service.last_request().bad_words;
  REQUIRE(words.size() >= 2);
  CHECK(TextOf(door, words[0]) == "What");
  CHECK(TextOf(door, words.back()).ends_with("a longer word"));
  CHECK(words.back().size() > 1);
  const std::vector<std::pair<const char*, Json>> wrong = {
      {"allowed_token_ids", Json::array()},
      {"allowed_token_ids", {512}},
      {"allowed_token_ids", {-1}},
      {"allowed_token_ids", "7"},
      {"bad_words", {""}},
      {"bad_words", {"  "}},
      {"bad_words", 5},
  };
  for (const auto& [field, value] : wrong) {
    CHECK_THAT(door.Error(kChat, Chat({{field, value}})),
               StartsWith(std::string("400 ") + field + " "));
  }
}

TEST_CASE("what generation_config.json suppresses is banned whatever a request says") {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->defaults.suppress_tokens = {40, 41, 1 << 20};  // no token of the model has the last one
  Door door({}, {}, model);
  using Words = std::vector<std::vector<int32_t>>;
  door.Ask(kChat, Chat());
  CHECK(door.service.last_request().bad_words == Words{{40}, {41}});
  door.Ask(kCompletions, {{"prompt", "x"}, {"bad_words", {"What"}}});
  const Words words = door.service.last_request().bad_words;
  REQUIRE(words.size() > 2);
  CHECK(Words(words.begin(), words.begin() + 2) == Words{{40}, {41}});
}

TEST_CASE("bad_words bans a word with and without a space, however many tokens each form has") {
  const auto banned = [](const std::string& family, const std::string& word) {
    auto model = std::make_shared<ServedModel>(*DoorModel());
    model->tokenizer = Tokenizer::Load("tests/golden/tokenizer/" + family).value();
    Door door({}, {}, model);
    door.Ask(kCompletions, {{"prompt", "x"}, {"bad_words", word}});
    std::vector<std::vector<std::string>> spelled;
    for (const std::vector<int32_t>& ids : door.service.last_request().bad_words) {
      spelled.emplace_back();
      for (int32_t id : ids) spelled.back().push_back(model->tokenizer->TokenBytes(id));
    }
    return spelled;
  };
  using Words = std::vector<std::vector<std::string>>;
  // One token behind a space, several at the start of a line, and the other way round.
  CHECK(banned("gpt2", "over") == Words{{"o", "ver"}, {" over"}});
  CHECK(banned("gpt2", " over") == Words{{"o", "ver"}, {" over"}});
  CHECK(banned("gpt2", "special") == Words{{"special"}, {" s", "p", "ecial"}});
  // This tokenizer begins every text with a space, which a word within a text has not.
  CHECK(banned("llama2", "over") == Words{{" over"}, {"o", "ver"}, {" ", " over"}});
}

TEST_CASE("a prompt that cannot fit by its bytes is refused before it is tokenised") {
  Door door;
  const std::string huge(1 << 20, 'a');
  CHECK_THAT(door.Error(kCompletions, {{"prompt", huge}}),
             StartsWith("400 prompt ") && Contains("1048576 bytes is at least"));
  CHECK_THAT(door.Error(kCompletions, {{"prompt", {"a", huge}}}), Contains("bytes is at least"));
  CHECK_THAT(door.Error(kChat, Chat({{"messages", {{{"role", "user"}, {"content", huge}}}}})),
             StartsWith("400 messages ") && Contains("bytes is at least"));
  // What is cut to the context may be of any length, and counting is no request to fit.
  CHECK(door.Ask(kCompletions, {{"prompt", huge}, {"truncate_prompt_tokens", 3}}).contains("id"));
  CHECK(door.Ask("/tokenize", {{"prompt", huge}}).at("count") > 200);
  // A few tokens too many are counted as before.
  CHECK_THAT(door.Error(kCompletions, {{"prompt", std::string(250, '1')}}),
             Contains("in the prompt"));
}

TEST_CASE("truncate_prompt_tokens keeps the end of the prompt") {
  Door door;
  const std::vector<int> long_prompt = [] {
    std::vector<int> ids;
    for (int i = 0; i < 300; ++i) ids.push_back(10 + i % 100);
    return ids;
  }();
  const auto prompt_with = [&](const Json& fields) {
    Json body = {{"prompt", long_prompt}};
    body.update(fields);
    door.Ask(kCompletions, body);
    return door.service.last_request().prompt_token_ids;
  };
  CHECK(prompt_with({{"truncate_prompt_tokens", 3}}) ==
        std::vector<int32_t>(long_prompt.end() - 3, long_prompt.end()));
  // As many as the context of 200 takes beside the answer.
  CHECK(prompt_with({{"truncate_prompt_tokens", -1}, {"max_tokens", 50}}).size() == 150);
  CHECK(prompt_with({{"truncate_prompt_tokens", -1}, {"max_tokens", 0}}).size() == 200);
  door.Ask(kChat, Chat({{"truncate_prompt_tokens", 2}}));
  CHECK(door.service.last_request().prompt_token_ids.size() == 2);
  CHECK(door.service.last_request().prompt_token_ids.back() == 4);
  for (const int wrong : {0, -2}) {
    CHECK_THAT(door.Error(kChat, Chat({{"truncate_prompt_tokens", wrong}})),
               StartsWith("400 truncate_prompt_tokens "));
  }
}

TEST_CASE("continue_final_message: the prompt ends within the last message") {
  Door door;
  const auto prompt_of = [&](const std::string& content, const Json& fields) {
    Json body = {{"messages",
                  {{{"role", "user"}, {"content", "Count"}},
                   {{"role", "assistant"}, {"content", content}}}}};
    body.update(fields);
    door.Ask(kChat, body);
    const std::vector<int32_t> ids = door.service.last_request().prompt_token_ids;
    CHECK(door.Ask("/tokenize", body)["tokens"] == ids);
    return TextOf(door, ids);
  };
  CHECK(prompt_of("3 4", {{"continue_final_message", true}}).ends_with("<|assistant|>3 4"));
  // This model's template trims messages.
  CHECK(prompt_of("3 4 ", {{"continue_final_message", true}, {"add_generation_prompt", false}})
            .ends_with("<|assistant|>3 4"));
  CHECK(prompt_of("3 4", {{"continue_final_message", false}}).ends_with("<|assistant|>"));
  const std::string error =
      door.Error(kChat, Chat({{"continue_final_message", true}, {"add_generation_prompt", true}}));
  CHECK_THAT(error, StartsWith("400 continue_final_message "));

  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->chat_template =
      ChatTemplate::Parse("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}").value();
  Door trimming({}, {}, model);
  trimming.Ask(kChat, Chat({{"continue_final_message", true}}));
  CHECK(TextOf(trimming, trimming.service.last_request().prompt_token_ids) == "[What");
  Json spaced = Chat({{"continue_final_message", true}});
  spaced["messages"][0]["content"] = " What ";
  trimming.Ask(kChat, spaced);
  CHECK(TextOf(trimming, trimming.service.last_request().prompt_token_ids) == "[What");
  model->chat_template = ChatTemplate::Parse("[{{ messages[0].content }}]").value();
  Door keeping({}, {}, model);
  keeping.Ask(kChat, spaced);
  CHECK(TextOf(keeping, keeping.service.last_request().prompt_token_ids) == "[ What ");
  model->chat_template = ChatTemplate::Parse("{{ messages[0].content[:4] }}").value();
  Door hiding({}, {}, model);
  CHECK_THAT(hiding.Error(kChat, Chat({{"continue_final_message", true}})),
             StartsWith("400 continue_final_message "));
}

TEST_CASE("add_special_tokens of a chat puts bos before the template's text") {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->chat_template = ChatTemplate::Parse("{{ messages[0].content }}").value();
  Door bare({}, {}, model);
  bare.Ask(kChat, Chat());
  const std::vector<int32_t> without = bare.service.last_request().prompt_token_ids;
  bare.Ask(kChat, Chat({{"add_special_tokens", true}}));
  CHECK(bare.service.last_request().prompt_token_ids.size() == without.size() + 1);
}

TEST_CASE("return_tokens_as_token_ids: logprobs name tokens by their ids") {
  Door door;
  const Json fields = {
      {"logprobs", true}, {"top_logprobs", 2}, {"return_tokens_as_token_ids", true}};
  const Json content = door.Ask(kChat, Chat(fields))["choices"][0]["logprobs"]["content"];
  CHECK(content[0]["token"] == "token_id:40");
  CHECK(content[0]["top_logprobs"][1]["token"] == "token_id:41");
  const Json body = {{"prompt", "x"}, {"logprobs", 1}, {"return_tokens_as_token_ids", true}};
  const Json logprobs = door.Ask(kCompletions, body)["choices"][0]["logprobs"];
  CHECK(logprobs["tokens"] == Json({"token_id:40", "token_id:41"}));
  CHECK(logprobs["top_logprobs"][0].contains("token_id:40"));
  CHECK(door.Stream(kCompletions, body)[0]["choices"][0]["logprobs"]["tokens"] ==
        Json({"token_id:40"}));
}

TEST_CASE("continuous_usage_stats: each chunk says what was used so far") {
  Door door;
  const Json options = {{"include_usage", true}, {"continuous_usage_stats", true}};
  const auto chunks = door.Stream(kChat, Chat({{"stream_options", options}}));
  const size_t prompt = door.service.last_request().prompt_token_ids.size();
  std::vector<int> completion;
  for (const Json& chunk : chunks) {
    CHECK(chunk["usage"]["prompt_tokens"] == prompt);
    completion.push_back(chunk["usage"]["completion_tokens"]);
    CHECK(chunk["usage"]["total_tokens"] == prompt + completion.back());
  }
  CHECK(completion == std::vector<int>{0, 1, 2, 2, 2});
  // As in vLLM, include_usage switches both.
  const Json alone = {{"continuous_usage_stats", true}};
  for (const Json& chunk : door.Stream(kChat, Chat({{"stream_options", alone}})))
    CHECK_FALSE(chunk.contains("usage"));
}

TEST_CASE("fields that would change the answer and are not supported are refused by name") {
  Door door;
  const std::vector<std::pair<const char*, Json>> refused = {
      {"grammar", "root ::= \"a\""},
      {"json_schema", {{"type", "object"}}},
      {"chat_template", "{{ messages }}"},
      {"documents", {{{"text", "a"}}}},
      {"response_format", {{"type", "json_schema"}}},
      {"logits_processors", {"x"}},
  };
  for (const auto& [field, value] : refused) {
    for (const char* path : {kCompletions, kChat}) {
      const Json body =
          path == kChat ? Chat({{field, value}}) : Json{{"prompt", "x"}, {field, value}};
      CHECK_THAT(door.Error(path, body), StartsWith(std::string("400 ") + field + " "));
    }
  }
  CHECK_THAT(door.Error("/tokenize", Chat({{"chat_template", "x"}})),
             StartsWith("400 chat_template "));
}

TEST_CASE("max_tokens 0 gives an empty text that ended by length") {
  Door door;
  door.service.SetScript([](const GenerationRequest& request, GenerationSink& sink, const auto&) {
    ChoiceEvent end;
    end.finish = Finish::kLength;
    sink.OnChoice(end);
    GenerationUsage usage;
    usage.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
    sink.OnEnd(absl::OkStatus(), usage, "r0");
  });
  const Json text = door.Ask(kCompletions, {{"prompt", "x"}, {"max_tokens", 0}})["choices"][0];
  CHECK(door.service.last_request().max_tokens == 0);
  CHECK(text["text"] == "");
  CHECK(text["finish_reason"] == "length");
  for (const char* field : {"max_tokens", "max_completion_tokens"}) {
    const Json chat = door.Ask(kChat, Chat({{field, 0}}))["choices"][0];
    CHECK(chat["message"]["content"] == "");
    CHECK(chat["finish_reason"] == "length");
  }
}

TEST_CASE("a developer is the system where the template knows no developer") {
  const auto rendered = [](const char* source) {
    auto model = std::make_shared<ServedModel>(*DoorModel());
    model->chat_template = ChatTemplate::Parse(source).value();
    Door door({}, {}, model);
    Json body = Chat();
    body["messages"][0]["role"] = "developer";
    door.Ask(kChat, body);
    return TextOf(door, door.service.last_request().prompt_token_ids);
  };
  CHECK(rendered("{{ messages[0].role }}: {{ messages[0].content }}") == "system: What");
  CHECK(rendered("{% if messages[0].role == 'developer' %}its {% endif %}{{ messages[0].role }}: "
                 "{{ messages[0].content }}") == "its developer: What");
}

TEST_CASE("one system_fingerprint in answers and chunks, and nulls where vLLM has them") {
  Door door;
  const Json options = {{"stream_options", {{"include_usage", true}}}};
  for (const char* path : {kCompletions, kChat}) {
    const Json body = path == kChat ? Chat() : Json{{"prompt", "x"}};
    const Json reply = door.Ask(path, body);
    CHECK(reply["system_fingerprint"] == "fp_of_the_door");
    const Json& choice = reply["choices"][0];
    for (const char* field : {"logprobs", "stop_reason"})
      CHECK((choice.contains(field) && choice[field].is_null()));
    Json streamed = body;
    streamed.update(options);
    for (const Json& chunk : door.Stream(path, streamed)) {
      CHECK(chunk["system_fingerprint"] == "fp_of_the_door");
      CHECK(chunk.contains("usage"));
      for (const Json& part : chunk["choices"]) {
        for (const char* field : {"logprobs", "stop_reason", "finish_reason"})
          CHECK(part.contains(field));
      }
    }
  }
  CHECK(door.Ask(kChat, Chat())["choices"][0]["message"]["refusal"].is_null());
  for (const Json& chunk : door.Stream(kCompletions, {{"prompt", "x"}}))
    CHECK((chunk.contains("usage") && chunk["usage"].is_null()));
}

TEST_CASE("a fingerprint depends on build, model and data type, and on nothing else") {
  const std::string one = SystemFingerprint("1.0", "abc", "bfloat16");
  CHECK(one == SystemFingerprint("1.0", "abc", "bfloat16"));
  CHECK_THAT(one, StartsWith("fp_"));
  CHECK(one.size() == 19);
  CHECK(one != SystemFingerprint("1.1", "abc", "bfloat16"));
  CHECK(one != SystemFingerprint("1.0", "abd", "bfloat16"));
  CHECK(one != SystemFingerprint("1.0", "abc", "int8"));
  CHECK(SystemFingerprint("1.0a", "bc", "x") != SystemFingerprint("1.0", "abc", "x"));
}

}  // namespace tessera::coordinator
