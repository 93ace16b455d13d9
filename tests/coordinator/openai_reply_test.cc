// The shapes of answers and streams, as clients of the API read them.

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";

Json Chat(const Json& fields = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "What"}}}}};
  body.update(fields);
  return body;
}

// The ids of a text and, one by one, what they spell.
struct Spelled {
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;
};
Spelled Spell(const std::string& text) {
  static const std::shared_ptr<const ServedModel> model = DoorModel();
  Spelled spelled;
  spelled.ids =
      model->tokenizer->Encode(text, {.add_special_tokens = false, .parse_special_tokens = true})
          .value();
  for (int32_t id : spelled.ids) spelled.tokens.push_back(model->tokenizer->TokenBytes(id));
  return spelled;
}

std::string TextOf(const std::vector<Json>& chunks, int index) {
  std::string text;
  for (const Json& chunk : chunks) {
    for (const Json& choice : chunk["choices"]) {
      if (choice["index"] != index) continue;
      text += choice.contains("delta") ? choice["delta"].value("content", "")
                                       : std::string(choice["text"]);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("a chat's answer") {
  Door door;
  const Json reply = door.Ask(kChat, Chat({{"n", 2}}));
  CHECK(std::string(reply["id"]).starts_with("chatcmpl-"));
  CHECK(reply["object"] == "chat.completion");
  CHECK(reply["created"] == 1700000001);
  CHECK(reply["model"] == "org/demo");
  REQUIRE(reply["choices"].size() == 2);
  for (int i = 0; i < 2; ++i) {
    const Json& choice = reply["choices"][i];
    CHECK(choice["index"] == i);
    CHECK(choice["message"]["role"] == "assistant");
    CHECK(choice["message"]["content"] == "one two");
    CHECK(choice["finish_reason"] == "stop");
    CHECK(choice["logprobs"].is_null());
  }
  const size_t prompt = door.service.last_request().prompt_token_ids.size();
  CHECK(reply["usage"]["prompt_tokens"] == prompt);
  CHECK(reply["usage"]["completion_tokens"] == 4);
  CHECK(reply["usage"]["total_tokens"] == prompt + 4);
  CHECK(reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0);
}

TEST_CASE("a completion's answer") {
  Door door;
  door.service.SetScript(Say({{"one", 40}}, Finish::kLength));
  const Json reply = door.Ask(kCompletions, {{"prompt", "What"}, {"return_token_ids", true}});
  CHECK(std::string(reply["id"]).starts_with("cmpl-"));
  CHECK(reply["object"] == "text_completion");
  const Json& choice = reply["choices"][0];
  CHECK(choice["text"] == "one");
  CHECK(choice["finish_reason"] == "length");
  CHECK(choice["token_ids"] == Json({40}));
  CHECK(choice["prompt_token_ids"] == door.service.last_request().prompt_token_ids);
}

// One that two replicas worked on.
void AnswerInTwoPlaces(const GenerationRequest& request, GenerationSink& sink, const auto&) {
  ChoiceEvent event;
  event.text = "one";
  event.token_ids = {40};
  event.finish = Finish::kLength;
  sink.OnChoice(std::move(event));
  GenerationUsage usage;
  usage.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  usage.completion_tokens = 1;
  usage.timings = {.queue_seconds = 0.25,
                   .prefill_replica = "p",
                   .prefill_seconds = 0.5,
                   .kv_transfer = KvTransferTimings{4096, 0.125, 0.75, "tcp", "int8"},
                   .decode_replica = "d",
                   .decode_tokens = 8,
                   .decode_seconds = 2,
                   .drafts = {.steps = 4, .tokens = 10, .accepted_tokens = 5}};
  sink.OnEnd(absl::OkStatus(), usage, "d");
}

TEST_CASE("timings say who did what, where they are asked for") {
  Door door;
  door.service.SetScript([](const auto& request, GenerationSink& sink, const auto& cancelled) {
    AnswerInTwoPlaces(request, sink, cancelled);
  });
  CHECK_FALSE(door.Ask(kCompletions, {{"prompt", "What"}}).contains("timings"));
  const Json timings = door.Ask(kCompletions, {{"prompt", "What"}, {"timings", true}})["timings"];
  CHECK(timings["queue_seconds"] == 0.25);
  CHECK(timings["prefill"]["replica"] == "p");
  CHECK(timings["prefill"]["seconds"] == 0.5);
  CHECK(timings["kv_transfer"] == Json({{"bytes", 4096},
                                        {"seconds", 0.125},
                                        {"hidden_share", 0.75},
                                        {"transport", "tcp"},
                                        {"codec", "int8"}}));
  CHECK(timings["decode"]["replica"] == "d");
  CHECK(timings["decode"]["tokens_per_second"] == 4);
  CHECK(timings["decode"]["drafts"] ==
        Json({{"steps", 4}, {"tokens", 10}, {"accepted_tokens", 5}, {"tokens_per_step", 2.5}}));
  const auto chunks = door.Stream(kChat, Chat({{"timings", true}}));
  CHECK(chunks.back()["timings"]["kv_transfer"] == timings["kv_transfer"]);
  CHECK(chunks.back()["timings"]["decode"] == timings["decode"]);
  CHECK(chunks.back()["choices"].empty());
  CHECK_FALSE(chunks.back().contains("usage"));
}

TEST_CASE("a chat's stream: role first, one id, an empty last delta, usage when asked") {
  Door door;
  const auto chunks = door.Stream(kChat, Chat({{"stream_options", {{"include_usage", true}}}}));
  REQUIRE(chunks.size() >= 4);
  CHECK(chunks[0]["choices"][0]["delta"] == Json({{"role", "assistant"}, {"content", ""}}));
  for (size_t i = 0; i < chunks.size(); ++i) {
    CHECK(chunks[i]["id"] == chunks[0]["id"]);
    CHECK(chunks[i]["object"] == "chat.completion.chunk");
    if (i > 0 && !chunks[i]["choices"].empty()) {
      CHECK_FALSE(chunks[i]["choices"][0]["delta"].contains("role"));
    }
    if (i + 1 < chunks.size()) CHECK(chunks[i]["usage"].is_null());
  }
  CHECK(TextOf(chunks, 0) == "one two");
  const Json& last = chunks[chunks.size() - 2]["choices"][0];
  CHECK(last["delta"] == Json::object());
  CHECK(last["finish_reason"] == "stop");
  CHECK(chunks[chunks.size() - 3]["choices"][0]["finish_reason"].is_null());
  CHECK(chunks.back()["choices"] == Json::array());
  CHECK(chunks.back()["usage"]["completion_tokens"] == 2);

  for (const Json& chunk : door.Stream(kChat, Chat())) {
    CHECK_FALSE(chunk.contains("usage"));
    CHECK_FALSE(chunk["choices"].empty());
  }
}

// Chunks of text alone are not built whole each time; those with ids are.
TEST_CASE("a stream's pieces of text are as they would be with more to say") {
  const std::string text = "a \"quoted\" \\ \n\t\x01\x7f \xc3\xa9 \xe2\x82\xac and \xff, \x01\x01";
  for (const char* path : {kCompletions, kChat}) {
    for (const size_t piece_bytes : {1, 3}) {
      Door door;
      door.service.SetScript(Says(text, Finish::kStop, piece_bytes));
      Json body = path == kChat ? Chat({{"n", 2}}) : Json{{"prompt", "a"}, {"n", 2}};
      const auto plain = door.Stream(path, body);
      body["return_token_ids"] = true;
      auto whole = door.Stream(path, body);
      REQUIRE(plain.size() == whole.size());
      for (size_t i = 0; i < plain.size(); ++i) {
        whole[i].erase("prompt_token_ids");
        whole[i]["choices"][0].erase("token_ids");
        whole[i]["choices"][0].erase("prompt_token_ids");
        whole[i]["id"] = plain[i]["id"];
        CHECK(plain[i].dump() == whole[i].dump());
      }
    }
  }
}

TEST_CASE("streams of several choices and prompts carry their index") {
  Door door;
  const auto chat = door.Stream(kChat, Chat({{"n", 3}}));
  for (int i = 0; i < 3; ++i) CHECK(TextOf(chat, i) == "one two");
  const auto texts = door.Stream(kCompletions, {{"prompt", {"a", "b"}}, {"n", 2}, {"echo", true}});
  for (int i = 0; i < 4; ++i) CHECK(TextOf(texts, i) == (i < 2 ? "aone two" : "bone two"));
  CHECK(std::count_if(texts.begin(), texts.end(), [](const Json& chunk) {
          return chunk["choices"][0]["finish_reason"] == "stop";
        }) == 4);
}

TEST_CASE("a choice that failed says so beside those that did not") {
  Door door;
  door.service.SetScript([](const GenerationRequest& request, GenerationSink& sink, const auto&) {
    for (int32_t choice = 0; choice < request.choice_count; ++choice) {
      ChoiceEvent event;
      event.choice = choice;
      event.text = "one";
      event.finish = choice == 1 ? Finish::kError : Finish::kStop;
      if (choice == 1) event.error = absl::InternalError("too many readings");
      sink.OnChoice(event);
    }
    sink.OnEnd(absl::OkStatus(), {}, "r0");
  });
  const auto check = [](const Json& choices) {
    for (const Json& choice : choices) {
      const bool failed = choice["index"] == 1;
      CHECK(choice["finish_reason"] == (failed ? "error" : "stop"));
      REQUIRE(choice.contains("error") == failed);
      if (!failed) continue;
      CHECK(choice["error"]["message"] == "too many readings");
      CHECK(choice["error"]["type"] == "server_error");
    }
  };
  check(door.Ask(kChat, Chat({{"n", 3}}))["choices"]);
  check(door.Ask(kCompletions, {{"prompt", "a"}, {"n", 3}})["choices"]);
  for (const bool chat : {true, false}) {
    const auto chunks = chat ? door.Stream(kChat, Chat({{"n", 3}}))
                             : door.Stream(kCompletions, {{"prompt", "a"}, {"n", 3}});
    Json last = Json::array();
    for (const Json& chunk : chunks) {
      CHECK_FALSE(chunk.contains("error"));  // which would end the client's reading
      if (!chunk["choices"][0]["finish_reason"].is_null()) last.push_back(chunk["choices"][0]);
    }
    CHECK(last.size() == 3);
    check(last);
  }
}

TEST_CASE("a chat's logprobs") {
  Door door;
  const Spelled word = Spell("é");
  REQUIRE(word.ids.size() >= 2);  // cut into bytes by this vocabulary
  door.service.SetScript(Say({{"", word.ids[0]}, {"é", word.ids[1]}}));
  const Json body = Chat({{"logprobs", true}, {"top_logprobs", 2}});
  const Json reply = door.Ask(kChat, body);
  const Json& content = reply["choices"][0]["logprobs"]["content"];
  REQUIRE(content.size() == 2);
  CHECK(content[0]["token"] == "bytes:\\xc3");
  CHECK(content[0]["bytes"] == Json({0xc3}));
  CHECK(content[0]["logprob"] == -0.5);
  REQUIRE(content[0]["top_logprobs"].size() == 2);
  CHECK(content[0]["top_logprobs"][1]["logprob"] == -1.0);
  CHECK(reply["choices"][0]["logprobs"]["refusal"].is_null());

  Json streamed = Json::array();
  for (const Json& chunk : door.Stream(kChat, body)) {
    const Json& logprobs = chunk["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const Json& entry : logprobs["content"]) streamed.push_back(entry);
  }
  CHECK(streamed == content);
}

TEST_CASE("a completion's logprobs: offsets are of the text that is shown") {
  Door door;
  const Spelled accent = Spell("é");
  REQUIRE(accent.ids.size() == 2);
  // A special token, which the text does not show, then a character in two tokens.
  door.service.SetScript(
      Say({{"", 5}, {"", accent.ids[0]}, {"é", accent.ids[1]}, {"x", Spell("x").ids[0]}}));
  const Json body = {{"prompt", "What"}, {"logprobs", 1}};
  const Json logprobs = door.Ask(kCompletions, body)["choices"][0]["logprobs"];
  CHECK(logprobs["tokens"] == Json({"<|end|>", "bytes:\\xc3", "bytes:\\xa9", "x"}));
  CHECK(logprobs["token_logprobs"] == Json({-0.5, -0.5, -0.5, -0.5}));
  CHECK(logprobs["text_offset"] == Json({0, 0, 1, 1}));
  CHECK(logprobs["top_logprobs"][3]["x"] == -0.5);

  std::vector<Json> offsets;
  for (const Json& chunk : door.Stream(kCompletions, body)) {
    for (const Json& offset : chunk["choices"][0]["logprobs"]["text_offset"]) {
      offsets.push_back(offset);
    }
  }
  CHECK(Json(offsets) == logprobs["text_offset"]);
}

TEST_CASE("what evaluation harnesses send: ids, echo, logprobs, one token or none") {
  Door door;
  const Spelled prompt = Spell("What is 5?");
  for (int max_tokens : {0, 1}) {
    door.service.SetScript(
        max_tokens == 0 ? FakeGenerationService::Script([](const GenerationRequest& request,
                                                           GenerationSink& sink, const auto&) {
          ChoiceEvent end;
          end.finish = Finish::kLength;
          sink.OnChoice(end);
          GenerationUsage usage;
          usage.prompt_tokens = request.prompt_token_ids.size();
          sink.OnEnd(absl::OkStatus(), usage, "r0");
        })
                        : Say({{"one", 40}}, Finish::kLength));
    const Json body = {
        {"prompt", prompt.ids}, {"echo", true}, {"logprobs", 1}, {"max_tokens", max_tokens}};
    const Json reply = door.Ask(kCompletions, body);
    CHECK(door.service.last_request().max_tokens == max_tokens);
    CHECK(door.service.last_request().prompt_logprobs == 1);
    const Json& choice = reply["choices"][0];
    CHECK(choice["text"] == (max_tokens == 0 ? "What is 5?" : "What is 5?one"));
    const Json& logprobs = choice["logprobs"];
    CHECK(logprobs["tokens"].size() == prompt.ids.size() + max_tokens);
    CHECK(logprobs["token_logprobs"][0].is_null());
    CHECK(logprobs["top_logprobs"][0].is_null());
    CHECK(logprobs["token_logprobs"][1] == -0.5);
    size_t offset = 0;
    for (size_t i = 0; i < prompt.ids.size(); ++i) {
      CHECK(logprobs["tokens"][i] == prompt.tokens[i]);
      CHECK(logprobs["text_offset"][i] == offset);
      offset += prompt.tokens[i].size();
    }
    CHECK(reply["usage"]["completion_tokens"] == max_tokens);
  }
}

TEST_CASE("a stream shows the ids that a plain answer shows, with the prompt echoed or not") {
  Door door;
  const Spelled prompt = Spell("What is 5?");
  for (const bool echo : {false, true}) {
    for (const bool logprobs : {false, true}) {
      Json body = {{"prompt", prompt.ids}, {"echo", echo}, {"return_token_ids", true}, {"n", 2}};
      if (logprobs) body["logprobs"] = 1;
      const Json plain = door.Ask(kCompletions, body)["choices"];
      const auto chunks = door.Stream(kCompletions, body);
      for (int i = 0; i < 2; ++i) {
        std::vector<int32_t> ids;
        std::vector<Json> prompts;
        for (const Json& chunk : chunks) {
          const Json& choice = chunk["choices"][0];
          if (choice["index"] != i) continue;
          for (const Json& id : choice["token_ids"]) ids.push_back(id);
          if (choice.contains("prompt_token_ids")) prompts.push_back(choice["prompt_token_ids"]);
        }
        CHECK(ids == plain[i]["token_ids"].get<std::vector<int32_t>>());
        CHECK(ids.size() == 2);
        CHECK(prompts == std::vector<Json>{plain[i]["prompt_token_ids"]});
        CHECK(prompts == std::vector<Json>{Json(prompt.ids)});
      }
    }
  }
  const Json chat = Chat({{"return_token_ids", true}});
  const Json plain = door.Ask(kChat, chat);
  const auto chunks = door.Stream(kChat, chat);
  CHECK(chunks[0]["prompt_token_ids"] == plain["prompt_token_ids"]);
  for (size_t i = 1; i < chunks.size(); ++i) CHECK_FALSE(chunks[i].contains("prompt_token_ids"));
}

TEST_CASE("the token that ended an answer is among a completion's logprobs, not among a chat's") {
  Door door;
  door.service.SetScript([](const GenerationRequest&, GenerationSink& sink, const auto&) {
    ChoiceEvent event;
    event.text = "one";
    event.token_ids = {40, 2};
    event.logprobs.resize(2);
    event.logprobs[0].chosen = {40, -0.5f, 1};
    event.logprobs[1].chosen = {2, -0.25f, 1};
    event.ends_with_stop_token = true;
    event.finish = Finish::kStop;
    sink.OnChoice(event);
    sink.OnEnd(absl::OkStatus(), {}, "r0");
  });
  const Json reply = door.Ask(kCompletions, {{"prompt", "What"}, {"logprobs", 0}});
  CHECK(reply["choices"][0]["logprobs"]["token_logprobs"] == Json({-0.5, -0.25}));
  const Json chat = {{"logprobs", true}, {"return_token_ids", true}};
  const Json choice = door.Ask(kChat, Chat(chat))["choices"][0];
  REQUIRE(choice["logprobs"]["content"].size() == 1);
  CHECK(choice["logprobs"]["content"][0]["logprob"] == -0.5);
  CHECK(choice["token_ids"] == Json({40, 2}));
  size_t told = 0;
  for (const Json& chunk : door.Stream(kChat, Chat(chat))) {
    const Json& logprobs = chunk["choices"][0]["logprobs"];
    if (logprobs.is_object()) told += logprobs["content"].size();
  }
  CHECK(told == 1);
}

TEST_CASE("prompt_logprobs in vLLM's shape") {
  Door door;
  const Json reply = door.Ask(kChat, Chat({{"prompt_logprobs", 1}}));
  const Json& positions = reply["prompt_logprobs"];
  const auto ids = door.service.last_request().prompt_token_ids;
  REQUIRE(positions.size() == ids.size());
  CHECK(positions[0].is_null());
  const Json& second = positions[1][std::to_string(ids[1])];
  CHECK(second["logprob"] == -0.5);
  CHECK(second["rank"] == 1);
}

TEST_CASE("stop_reason is the string, or the id that the client gave") {
  Door door;
  const auto stop_with = [](std::string reason) {
    return [reason](const GenerationRequest&, GenerationSink& sink, const auto&) {
      ChoiceEvent event;
      event.text = "a";
      event.finish = Finish::kStop;
      event.stop_reason = reason;
      sink.OnChoice(event);
      sink.OnEnd(absl::OkStatus(), {}, "r0");
    };
  };
  door.service.SetScript(stop_with("END"));
  CHECK(door.Ask(kChat, Chat({{"stop", "END"}}))["choices"][0]["stop_reason"] == "END");
  door.service.SetScript(stop_with("9"));
  CHECK(door.Ask(kChat, Chat({{"stop_token_ids", {9}}}))["choices"][0]["stop_reason"] == 9);
  door.service.SetScript(stop_with(""));
  CHECK(door.Ask(kChat, Chat())["choices"][0]["stop_reason"].is_null());
}

}  // namespace tessera::coordinator
