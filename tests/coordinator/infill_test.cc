// Completions with a suffix: what the prompt is made of, family by family, and refusals.
#include <algorithm>
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

constexpr char kPath[] = "/v1/completions";

}  // namespace

TEST_CASE("a suffix stands behind the prompt, between the family's marks") {
  struct Case {
    std::vector<std::string> tokens;
    std::string prompt;
    std::string end;  // ends the middle too
  };
  const std::vector<Case> cases = {
      {{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|file_sep|>"},
       "<|fim_prefix|>a = <|fim_suffix|>\nprint(a)<|fim_middle|>",
       "<|file_sep|>"},
      {{"<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<file_sep>"},
       "<fim_prefix>a = <fim_suffix>\nprint(a)<fim_middle>",
       "<file_sep>"},
      {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
       "<｜fim▁begin｜>a = <｜fim▁hole｜>\nprint(a)<｜fim▁end｜>",
       "<｜fim▁hole｜>"},
      {{"▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"}, "▁<PRE>a = ▁<SUF>\nprint(a)▁<MID>", "▁<EOT>"}};
  for (const Case& c : cases) {
    CAPTURE(c.prompt);
    const auto model = ModelWithTokens("coder", c.tokens);
    Door door({}, {}, model);
    door.Ask(kPath, {{"prompt", "a = "}, {"suffix", "\nprint(a)"}, {"stop_token_ids", {7}}});
    const GenerationRequest request = door.service.last_request();
    std::string prompt = model->tokenizer->Decode(request.prompt_token_ids, false);
    if (model->tokenizer->adds_bos()) {
      CHECK(request.prompt_token_ids[0] == model->tokenizer->bos_id());
      prompt = prompt.substr(model->tokenizer->TokenText(*model->tokenizer->bos_id()).size());
    }
    CHECK(prompt == c.prompt);
    const std::vector<int32_t>& stops = request.stop_token_ids;
    for (const int32_t id : {7, *model->tokenizer->TokenId(c.end)})
      CHECK(std::find(stops.begin(), stops.end(), id) != stops.end());
    // A mark that a client spells is text.
    door.Ask(kPath, {{"prompt", c.tokens[0]}, {"suffix", "x"}});
    const std::vector<int32_t> ids = door.service.last_request().prompt_token_ids;
    CHECK(std::count(ids.begin(), ids.end(), *model->tokenizer->TokenId(c.tokens[0])) == 1);
    // Without a suffix nothing changes.
    door.Ask(kPath, {{"prompt", "a = "}, {"suffix", ""}});
    CHECK(door.service.last_request().stop_token_ids.empty());
  }
}

TEST_CASE("Mistral's form of it has the same prompt, and a chat's answer, whole and streamed") {
  Door door({}, {},
            ModelWithTokens("coder", {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}));
  Json body = {{"prompt", "a = "}, {"suffix", "\nprint(a)"}, {"random_seed", 5}};
  const Json reply = door.Ask("/v1/fim/completions", body);
  const GenerationRequest asked = door.service.last_request();
  CHECK(asked.sampling.seed == 5);
  CHECK(asked.stop_token_ids.size() >= 3);
  CHECK(reply["object"] == "chat.completion");
  const Json& message = reply["choices"][0]["message"];
  CHECK(message["role"] == "assistant");
  CHECK(message["content"] == "one two");
  std::string streamed;
  for (const Json& chunk : door.Stream("/v1/fim/completions", body))
    streamed += chunk["choices"][0]["delta"].value("content", "");
  CHECK(streamed == "one two");
  door.Ask(kPath, body);
  CHECK(door.service.last_request().prompt_token_ids == asked.prompt_token_ids);
  // Without a suffix it goes on.
  body.erase("suffix");
  door.Ask("/v1/fim/completions", body);
  CHECK(door.service.last_request().stop_token_ids.empty());
}

TEST_CASE("a suffix that cannot be used is refused by name") {
  Door plain;
  CHECK_THAT(
      plain.Error(kPath, {{"prompt", "a"}, {"suffix", "b"}}),
      StartsWith("400 suffix ") && Contains("org/demo") && Contains("filling in the middle"));
  CHECK_THAT(plain.Error("/v1/chat/completions",
                         {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"suffix", "b"}}),
             StartsWith("400 suffix "));
  Door door({}, {},
            ModelWithTokens("coder", {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}));
  CHECK_THAT(door.Error(kPath, {{"prompt", {7, 8}}, {"suffix", "b"}}),
             StartsWith("400 suffix ") && Contains("prompt of text"));
  CHECK_THAT(door.Error(kPath, {{"prompt", "a"}, {"suffix", "b"}, {"truncate_prompt_tokens", 5}}),
             StartsWith("400 suffix "));
  CHECK_THAT(door.Error(kPath, {{"prompt", "a"}, {"suffix", 5}}), StartsWith("400 suffix "));
}

}  // namespace tessera::coordinator
