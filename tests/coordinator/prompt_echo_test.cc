// The prompt in the answer: echo, text_offset, and prompts without text, with tokenizers of several
// families.

#include "coordinator/api/prompt_echo.h"

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

std::shared_ptr<const ServedModel> ModelOf(const std::string& family) {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->tokenizer = Tokenizer::Load("tests/golden/tokenizer/" + family).value();
  return model;
}

// `characters` of a text, from `offset` on.
std::string Part(const std::string& text, int64_t offset, int64_t characters) {
  std::string part;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) --offset;
    if (offset < 0 && offset >= -characters) part.push_back(c);
  }
  return part;
}

// Every token of the prompt that is whole characters, and that the text shows, stands at its
// offset. Returns the offset of the first of the answer's two tokens.
int64_t CheckOffsets(const Json& choice) {
  const std::string text = choice["text"];
  const Json& tokens = choice["logprobs"]["tokens"];
  const Json& offsets = choice["logprobs"]["text_offset"];
  REQUIRE(tokens.size() == offsets.size());
  for (size_t i = 0; i + 2 < tokens.size(); ++i) {
    const std::string token = tokens[i];
    const int64_t next = offsets[i + 1];
    if (token.starts_with("bytes:") || next == int64_t{offsets[i]}) continue;
    INFO(token << " of " << choice.dump());
    CHECK(Part(text, offsets[i], CountCharacters(token)) == token);
  }
  return offsets[tokens.size() - 2];
}

}  // namespace

TEST_CASE("echo begins with the prompt as sent, and text_offset counts in that text") {
  const std::vector<std::pair<const char*, std::vector<std::string>>> prompts = {
      {"qwen2",
       {"Hello world", "<|im_start|>user\nHi<|im_end|>\n", "naïve \u65e5\u672c 😀 x", "  two"}},
      {"llama3", {"Hello world", "<|begin_of_text|>Hi", "a <|end_of_text|> b"}},
      {"llama2", {"Hello world", "<s>Hi", " Hello", "naïve \u65e5 😀 x", "a</s> b", "\nx"}},
      {"llama_normalized", {"Hello world", "<s>Hi there"}},
      {"gemma", {"Hello world", "<bos>Hi there"}},
      {"metaspace", {"Hello world", " Hello  world"}},
  };
  for (const auto& [family, texts] : prompts) {
    const auto model = ModelOf(family);
    Door door({}, {}, model);
    door.service.SetScript(Say({{" one", 40}, {" two", 41}}));
    for (const std::string& prompt : texts) {
      INFO(family << ": " << prompt);
      const Json body = {{"prompt", prompt}, {"echo", true}, {"logprobs", 1}};
      const Json choice = door.Ask(kCompletions, body)["choices"][0];
      CHECK(choice["text"] == prompt + " one two");
      CHECK(CheckOffsets(choice) == CountCharacters(prompt));

      Json streamed = {{"text", ""}, {"logprobs", {{"tokens", Json::array()}}}};
      Json& logprobs = streamed["logprobs"];
      for (const char* name : {"token_logprobs", "top_logprobs", "text_offset"})
        logprobs[name] = Json::array();
      for (const Json& chunk : door.Stream(kCompletions, body)) {
        const Json& piece = chunk["choices"][0];
        streamed["text"] = std::string(streamed["text"]) + std::string(piece["text"]);
        for (auto& [name, values] : logprobs.items())
          values.insert(values.end(), piece["logprobs"][name].begin(),
                        piece["logprobs"][name].end());
      }
      CHECK(streamed["text"] == choice["text"]);
      CHECK(streamed["logprobs"] == choice["logprobs"]);
    }
  }
}

TEST_CASE("the first token of a Llama-2-like prompt is spelled as it stands in the text") {
  Door door({}, {}, ModelOf("llama2"));
  const Json body = {{"prompt", "over over"}, {"echo", true}, {"logprobs", 1}};
  const Json logprobs = door.Ask(kCompletions, body)["choices"][0]["logprobs"];
  CHECK(logprobs["tokens"][0] == "<s>");
  CHECK(logprobs["tokens"][1] == "over");
  CHECK(logprobs["tokens"][2] == " over");
  CHECK(Json(logprobs["text_offset"]).at(1) == 0);
  CHECK(logprobs["text_offset"][2] == 4);
  // What was chosen stands among the most likely, under that spelling.
  CHECK(logprobs["top_logprobs"][1].contains("over"));
  CHECK_FALSE(logprobs["top_logprobs"][1].contains(" over"));
}

TEST_CASE("a prompt of ids, and one that was cut, is echoed as the text of its ids") {
  const auto model = ModelOf("llama2");
  Door door({}, {}, model);
  std::vector<int32_t> ids = model->tokenizer->Encode("over over", EncodeOptions()).value();
  const auto echo = [&](Json body) {
    body["echo"] = true;
    body["logprobs"] = 0;
    const Json choice = door.Ask(kCompletions, body)["choices"][0];
    CheckOffsets(choice);
    const std::string text = choice["text"];
    REQUIRE(text.ends_with("one two"));
    return text.substr(0, text.size() - 7);
  };
  CHECK(echo({{"prompt", ids}}) == "<s> over over");
  ids.erase(ids.begin());
  CHECK(echo({{"prompt", ids}}) == "over over");
  CHECK(echo({{"prompt", "over over"}, {"truncate_prompt_tokens", 1}}) == "over");
  CHECK(echo({{"prompt", "over over"}, {"truncate_prompt_tokens", 9}}) == "over over");
  // Half a character.
  CHECK(echo({{"prompt", {3 + 0xE6, ids[0]}}}) == "\uFFFD over");
}

TEST_CASE("a normalizer's changes leave the offsets near") {
  const auto model = DoorModel();
  const Tokenizer& tokenizer = *model->tokenizer;
  const auto offsets = [&](const std::string& text, const std::string& tokens_of) {
    std::vector<int64_t> all;
    const auto ids = tokenizer.Encode(tokens_of, {.add_special_tokens = false}).value();
    for (const TokenPlace& place : PlacesInPrompt(tokenizer, text, ids))
      all.push_back(place.offset);
    return all;
  };
  REQUIRE(offsets("1;2;3", "1;2;3") == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(offsets("1   ;2;3", "1;2;3") == std::vector<int64_t>{0, 4, 5, 6, 7});  // left out
  CHECK(offsets("1:2;3", "1;2;3") == std::vector<int64_t>{0, 1, 2, 3, 4});     // exchanged
  CHECK(offsets("1", "1;2;3") == std::vector<int64_t>{0, 1, 1, 1, 1});
}

TEST_CASE("no prompt, null and an empty one begin a document") {
  const auto ids_of = [](const std::string& family, Json body) {
    const auto model = ModelOf(family);
    Door door({}, {}, model);
    door.Ask(kCompletions, body);
    std::vector<std::string> spelled;
    for (const GenerationRequest& request : door.service.requests()) {
      for (const int32_t id : request.prompt_token_ids)
        spelled.push_back(model->tokenizer->TokenText(id));
    }
    return spelled;
  };
  using Words = std::vector<std::string>;
  for (const Json& body : {Json::object(), Json{{"prompt", nullptr}}, Json{{"prompt", ""}},
                           Json{{"prompt", ""}, {"add_special_tokens", false}}}) {
    INFO(body.dump());
    CHECK(ids_of("qwen2", body) == Words{"<|endoftext|>"});
    CHECK(ids_of("llama2", body) == Words{"<s>"});
    CHECK(ids_of("gpt2", body) == Words{"<|endoftext|>"});
  }
  CHECK(ids_of("qwen2", {{"prompt", {"", "x"}}}) == Words{"<|endoftext|>", "x"});

  Door door({}, {}, ModelOf("qwen2"));
  const Json echo = {{"prompt", nullptr}, {"echo", true}, {"logprobs", 0}};
  const Json choice = door.Ask(kCompletions, echo)["choices"][0];
  CHECK(choice["text"] == "one two");
  CHECK(choice["logprobs"]["text_offset"][0] == 0);
  CHECK(choice["logprobs"]["text_offset"][1] == 0);
  // No token ids are no text.
  CHECK_THAT(door.Error(kCompletions, {{"prompt", Json::array({Json::array()})}}),
             StartsWith("400 prompt "));
}

TEST_CASE("an empty prompt of a model without a token that begins a document is an error") {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->tokenizer = std::make_shared<Tokenizer>(TokenizerParts{});
  Door door({}, {}, model);
  CHECK_THAT(door.Error(kCompletions, Json::object()),
             StartsWith("400 prompt ") && Contains("bos_token"));
}

}  // namespace tessera::coordinator
