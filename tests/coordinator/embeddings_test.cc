// /v1/embeddings over a scripted service: bodies, forms of the answer, refusals.

#include "coordinator/api/embeddings.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "coordinator/pooling_config.h"
#include "tests/coordinator/door.h"
#include "tests/temporary_folder.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr char kPath[] = "/v1/embeddings";

// A row that tells its prompt: {number of tokens, 4, 0}.
void Answer(const GenerationRequest& request, GenerationSink& sink, const std::function<bool()>&) {
  ChoiceEvent event;
  event.token_ids = {40};
  if (request.mean_rows) CHECK(request.prompt_logprobs == 0);
  const auto tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  if (request.final_rows) event.final_row = {static_cast<float>(tokens), 4, 0};
  event.finish = Finish::kLength;
  sink.OnChoice(event);
  sink.OnEnd(absl::OkStatus(), {.prompt_tokens = tokens, .completion_tokens = 1}, "r0");
}

}  // namespace

TEST_CASE("embeddings come by index, of length 1, with the tokens of all texts") {
  Door door;
  door.service.SetScript(Answer);
  const Json reply = door.Ask(kPath, {{"input", {{7, 8, 9}, {7}}}, {"model", "second-name"}});
  CHECK(reply["object"] == "list");
  CHECK(reply["model"] == "org/demo");
  REQUIRE(reply["data"].size() == 2);
  CHECK(reply["data"][1]["index"] == 1);
  CHECK(reply["data"][0]["object"] == "embedding");
  CHECK(reply["data"][0]["embedding"] == Json({0.6f, 0.8f, 0.0f}));
  CHECK(reply["usage"] == Json({{"prompt_tokens", 4}, {"total_tokens", 4}}));
  const GenerationRequest request = door.service.last_request();
  CHECK(request.final_rows);
  CHECK(request.max_tokens == 1);
  CHECK(door.Ask(kPath, {{"input", "What"}})["data"].size() == 1);
  CHECK(door.Ask(kPath, {{"input", {"What", "is"}}})["data"].size() == 2);
}

TEST_CASE("files for sentence-transformers say which rows are pooled, and a flag does") {
  const tests::TemporaryFolder folder;
  const auto recipe = [&](const std::string& flag = "") {
    return ReadEmbeddingRecipe(folder.path(), flag).value();
  };
  CHECK(recipe().pooling == RowPooling::kLast);
  CHECK(recipe().normalized);
  CHECK(recipe("mean").pooling == RowPooling::kMean);
  folder.Write("1_Pooling/config.json",
               R"({"word_embedding_dimension": 3, "pooling_mode_cls_token": false,
                   "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})");
  folder.Write("modules.json", R"([{"type": "sentence_transformers.models.Transformer"},
                                   {"type": "sentence_transformers.models.Pooling"},
                                   {"type": "sentence_transformers.models.Normalize"}])");
  CHECK(recipe().refusal.empty());
  CHECK(recipe().pooling == RowPooling::kLast);
  CHECK(recipe().normalized);
  folder.Write("1_Pooling/config.json",
               R"({"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true})");
  CHECK(recipe().pooling == RowPooling::kMean);
  CHECK(recipe("last").pooling == RowPooling::kLast);
  folder.Write("modules.json", R"([{"type": "sentence_transformers.models.Transformer"},
                        {"type": "sentence_transformers.models.Pooling", "path": "2_Pooling"}])");
  folder.Write("2_Pooling/config.json", R"({"pooling_mode": "cls"})");
  CHECK(recipe().pooling == RowPooling::kFirst);
  CHECK_FALSE(recipe().normalized);
  const auto unknown = ReadEmbeddingRecipe(folder.path(), "max");
  CHECK_THAT(std::string(unknown.status().message()), Contains("--pooling") && Contains("'max'"));
}

TEST_CASE("a model that pools otherwise is refused by name") {
  const tests::TemporaryFolder folder;
  folder.Write("modules.json", R"([{"type": "sentence_transformers.models.Dense"}])");
  CHECK_THAT(ReadEmbeddingRecipe(folder.path(), "")->refusal, Contains("Dense"));
  CHECK_THAT(ReadEmbeddingRecipe(folder.path(), "mean")->refusal, Contains("Dense"));
  folder.Write("modules.json", "[]");
  folder.Write("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  auto model = std::make_shared<ServedModel>(*DoorModel());
  model->embedding = ReadEmbeddingRecipe(folder.path(), "").value();
  Door door({}, {}, model);
  CHECK_THAT(door.Error(kPath, {{"input", "What"}}),
             StartsWith("400 model ") && Contains("1_Pooling/config.json") && Contains("max"));
}

TEST_CASE("means ask for every row of a prompt, cls for its first token alone") {
  auto model = std::make_shared<ServedModel>(*DoorModel());
  const Json body = {{"input", {{7, 8, 9}, {7, 8}}}};
  model->embedding.pooling = RowPooling::kMean;
  {
    Door door({}, {}, model);
    door.service.SetScript(Answer);
    CHECK(door.Ask(kPath, body)["data"][0]["embedding"] == Json({0.6f, 0.8f, 0.0f}));
    CHECK(door.service.last_request().mean_rows);
  }
  model->embedding.pooling = RowPooling::kFirst;
  model->embedding.normalized = false;
  Door door({}, {}, model);
  door.service.SetScript(Answer);
  const Json reply = door.Ask(kPath, body);
  CHECK(reply["data"][0]["embedding"] == Json({1.0f, 4.0f, 0.0f}));
  CHECK(reply["data"][1]["embedding"] == Json({1.0f, 4.0f, 0.0f}));
  CHECK(reply["usage"] == Json({{"prompt_tokens", 5}, {"total_tokens", 5}}));
  CHECK(door.service.last_request().prompt_token_ids == std::vector<int32_t>{7});
}

TEST_CASE("base64 holds the same floats, and fewer dimensions are of length 1 again") {
  Door door;
  door.service.SetScript(Answer);
  const Json body = {{"input", {7, 8, 9}}, {"encoding_format", "base64"}};
  std::string bytes;
  REQUIRE(absl::Base64Unescape(std::string(door.Ask(kPath, body)["data"][0]["embedding"]), &bytes));
  REQUIRE(bytes.size() == 12);
  std::vector<float> values(3);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  CHECK(values == std::vector<float>{0.6f, 0.8f, 0});
  const Json cut = {{"input", {7, 8, 9}}, {"dimensions", 1}};
  CHECK(door.Ask(kPath, cut)["data"][0]["embedding"] == Json({1.0f}));
  CHECK(ToEmbedding({0, 0}, 0) == std::vector<float>{0, 0});
  CHECK(ToEmbedding({3, 4, 12}, 2) == std::vector<float>{0.6f, 0.8f});
}

TEST_CASE("what is no text, or more than the model has, is refused by name") {
  Door door;
  door.service.SetScript(Answer);
  const auto error = [&](const Json& body) { return door.Error(kPath, body); };
  CHECK(error(Json::object()) == "400 input input: missing");
  for (const Json& empty : {Json(""), Json::array(), Json{"a", ""}, Json{{7}, Json::array()}}) {
    INFO(empty);
    CHECK_THAT(error({{"input", empty}}), StartsWith("400 input ") && Contains("empty"));
  }
  CHECK_THAT(error({{"input", {{"a", 1}}}}), StartsWith("400 input "));
  CHECK_THAT(error({{"input", {5120}}}), StartsWith("400 input ") && Contains("vocabulary"));
  CHECK_THAT(error({{"input", std::vector<int>(200, 7)}}),
             StartsWith("400 input ") && Contains("maximum context length is 200"));
  CHECK_THAT(error({{"input", "x"}, {"dimensions", 4}}),
             StartsWith("400 dimensions ") && Contains("3"));
  CHECK_THAT(error({{"input", "x"}, {"encoding_format", "int8"}}),
             StartsWith("400 encoding_format "));
  CHECK_THAT(error({{"input", "x"}, {"model", "other"}}), StartsWith("404 model "));
}

}  // namespace tessera::coordinator
