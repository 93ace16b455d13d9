// /v1/rerank and /v1/score over a scripted service: prompts, forms of the answer, refusals.
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/coordinator/door.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

std::shared_ptr<const ServedModel> Reranker(const std::string& name = "Qwen3-Reranker-tiny") {
  return ModelWithTokens(name, {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "yes", "no"});
}

// Says "yes" with a logit that is the number of the prompt's tokens over "no"'s.
void Answer(const GenerationRequest& request, GenerationSink& sink, const std::function<bool()>&) {
  ChoiceEvent event;
  event.token_ids = {40};
  const auto tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  PositionChances chances;
  if (request.logprob_ids.size() == 2 && request.top_logprobs == 0) {
    chances.asked = {{request.logprob_ids[0], -1.0f - 1.0f / static_cast<float>(tokens), 0},
                     {request.logprob_ids[1], -1.0f, 0}};
  }
  event.logprobs = {chances};
  event.finish = Finish::kLength;
  sink.OnChoice(event);
  sink.OnEnd(absl::OkStatus(), {.prompt_tokens = tokens, .completion_tokens = 1}, "r0");
}

double Expected(size_t tokens) { return 1 / (1 + std::exp(1.0 / static_cast<double>(tokens))); }

}  // namespace

TEST_CASE("documents come by their score, with what they say") {
  const auto model = Reranker();
  Door door({}, {}, model);
  door.service.SetScript(Answer);
  const Json documents = {"one", {{"text", "a much longer document"}}, "two words"};
  for (const char* path : {"/v1/rerank", "/v2/rerank", "/rerank"}) {
    const Json reply = door.Ask(path, {{"query", "What?"}, {"documents", documents}});
    CHECK(reply["model"] == "Qwen3-Reranker-tiny");
    REQUIRE(reply["results"].size() == 3);
    CHECK(reply["results"][0]["index"] == 1);
    CHECK(reply["results"][0]["document"] == Json({{"text", "a much longer document"}}));
    CHECK(reply["results"][0]["relevance_score"] > reply["results"][1]["relevance_score"]);
    CHECK(reply["usage"]["total_tokens"] > 30);
  }
  const GenerationRequest request = door.service.last_request();
  CHECK(request.max_tokens == 1);
  CHECK(request.logprob_ids ==
        std::vector<int32_t>{*model->tokenizer->TokenId("yes"), *model->tokenizer->TokenId("no")});
  CHECK(model->tokenizer->Decode(request.prompt_token_ids, /*skip_special_tokens=*/false) ==
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
        "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
        "answer the query\n<Query>: What?\n<Document>: two words<|im_end|>\n<|im_start|>assistant\n"
        "<think>\n\n</think>\n\n");
  const Json one = door.Ask("/v1/rerank", {{"query", "What?"},
                                           {"documents", documents},
                                           {"top_n", 1},
                                           {"return_documents", false},
                                           {"instruction", "Find <|im_end|> texts"}});
  REQUIRE(one["results"].size() == 1);
  CHECK_FALSE(one["results"][0].contains("document"));
  // What a client writes is never a mark.
  const std::vector<int32_t> ids = door.service.last_request().prompt_token_ids;
  CHECK(std::count(ids.begin(), ids.end(), *model->tokenizer->TokenId("<|im_end|>")) == 2);
}

TEST_CASE("scores come in the order of the pairs") {
  Door door({}, {}, Reranker());
  door.service.SetScript(Answer);
  const Json reply = door.Ask("/v1/score", {{"text_1", "q"}, {"text_2", {"a", "a long text"}}});
  CHECK(reply["object"] == "list");
  REQUIRE(reply["data"].size() == 2);
  const std::vector<GenerationRequest> asked = door.service.requests();
  for (size_t i = 0; i < 2; ++i) {
    CHECK(reply["data"][i]["index"] == i);
    CHECK(double(reply["data"][i]["score"]) ==
          Approx(Expected(asked[i].prompt_token_ids.size())).epsilon(1e-6));
  }
  CHECK(door.Ask("/score", {{"text_1", {"q", "r"}}, {"text_2", {"a", "b"}}})["data"].size() == 2);
  CHECK(door.Ask("/v1/score", {{"text_1", "q"}, {"text_2", "a"}})["data"].size() == 1);
  CHECK_THAT(door.Error("/v1/score", {{"text_1", {"q", "r"}}, {"text_2", {"a"}}}),
             StartsWith("400 text_1 "));
}

TEST_CASE("a document that is too long is refused, or cut at its end where that is asked for") {
  const auto model = Reranker();
  Door door({}, {}, model);
  door.service.SetScript(Answer);
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i % 9) + " ";
  Json body = {{"query", "q"}, {"documents", {text}}};
  CHECK_THAT(door.Error("/v1/rerank", body),
             StartsWith("400 documents ") && Contains("maximum context length"));
  body["truncate_prompt_tokens"] = -1;
  CHECK(door.Ask("/v1/rerank", body)["results"].size() == 1);
  CHECK(door.service.last_request().prompt_token_ids.size() == 3999);
  body["truncate_prompt_tokens"] = 600;
  door.Ask("/v1/rerank", body);
  const std::vector<int32_t> ids = door.service.last_request().prompt_token_ids;
  CHECK(ids.size() == 600);
  CHECK_THAT(model->tokenizer->Decode(ids, false), Catch::EndsWith("</think>\n\n"));
  body["truncate_prompt_tokens"] = 5;
  CHECK_THAT(door.Error("/v1/rerank", body), StartsWith("400 truncate_prompt_tokens "));
}

TEST_CASE("what cannot be ranked is refused by name") {
  Door plain;
  CHECK_THAT(plain.Error("/v1/rerank", {{"query", "q"}, {"documents", {"a"}}}),
             StartsWith("400 model ") && Contains("org/demo") && Contains("no reranker"));
  Door chat({}, {}, Reranker("Qwen3-tiny"));  // has the tokens, and was not trained for it
  CHECK_THAT(chat.Error("/v1/score", {{"text_1", "q"}, {"text_2", "a"}}), StartsWith("400 model "));
  Door door({}, {}, Reranker());
  door.service.SetScript(Answer);
  const auto error = [&](const Json& body) { return door.Error("/v1/rerank", body); };
  CHECK_THAT(error({{"documents", {"a"}}}), StartsWith("400 query "));
  CHECK_THAT(error({{"query", "q"}}), StartsWith("400 documents "));
  CHECK_THAT(error({{"query", "q"}, {"documents", Json::array()}}), StartsWith("400 documents "));
  CHECK_THAT(error({{"query", "q"}, {"documents", {5}}}), StartsWith("400 documents "));
  CHECK_THAT(error({{"query", "q"}, {"documents", {"a"}}, {"top_n", 0}}), StartsWith("400 top_n "));
  CHECK_THAT(error({{"query", "q"}, {"documents", {"a"}}, {"rank_fields", {"x"}}}),
             StartsWith("400 rank_fields "));
}

}  // namespace tessera::coordinator
