#include "coordinator/api/ranking.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

constexpr char kBefore[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
constexpr char kBehind[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr char kUsualTask[] =
    "Given a web search query, retrieve relevant passages that answer the query";

// The prompt's fixed parts, and the two words.
struct Judge {
  Ids before, behind;
  int32_t yes = 0, no = 0;
};

bool IsNamedReranker(const ServedModel& model) {
  std::vector<std::string> names = model.other_names;
  names.push_back(model.name);
  names.push_back(model.folder.substr(model.folder.rfind('/') + 1));
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return absl::AsciiStrToLower(name).find("rerank") != std::string::npos;
  });
}

absl::StatusOr<Judge> ReadJudge(const ServedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const std::optional<int32_t> yes = tokenizer.TokenId("yes"), no = tokenizer.TokenId("no");
  const bool has_marks =
      tokenizer.TokenId("<|im_start|>").has_value() && tokenizer.TokenId("<|im_end|>").has_value();
  if (!IsNamedReranker(model) || !yes.has_value() || !no.has_value() || !has_marks) {
    return FieldError("model",
                      absl::StrCat("model: '", model.name,
                                   "' is no reranker: its name has no \"rerank\", or its tokenizer "
                                   "lacks what Qwen3-Reranker's prompt is made of"));
  }
  Judge judge;
  judge.yes = *yes;
  judge.no = *no;
  for (const auto& [text, ids] : {std::pair(kBefore, &judge.before), {kBehind, &judge.behind}}) {
    absl::StatusOr<Ids> encoded =
        tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = true});
    if (!encoded.ok()) return encoded.status();
    *ids = *std::move(encoded);
  }
  return judge;
}

// What a pair's field says: texts, or objects with one.
std::vector<std::string> ReadTexts(BodyReader& reader, const char* name, bool may_be_one) {
  const nlohmann::json* const field = reader.Find(name);
  std::vector<std::string> texts;
  const auto add = [&](const nlohmann::json& item) {
    const nlohmann::json* text = &item;
    if (item.is_object() && item.contains("text")) text = &item["text"];
    if (!text->is_string()) {
      reader.Fail(name, "texts, or objects with a member \"text\", are expected");
    } else {
      texts.push_back(text->get<std::string>());
    }
  };
  if (field == nullptr) {
    reader.Fail(name, "missing");
  } else if (may_be_one && field->is_string()) {
    add(*field);
  } else if (!field->is_array() || field->empty()) {
    reader.Fail(name, "an array of at least one text is expected");
  } else if (field->size() > static_cast<size_t>(kMaxPrompts)) {
    reader.Fail(name, absl::StrCat("at most ", kMaxPrompts, " go into one request"));
  } else {
    for (const nlohmann::json& item : *field) add(item);
  }
  return texts;
}

struct Pair {
  const char* field = "";  // that a text which is too long is a fault of
  std::string query, document;
};

// The prompt of a pair, its document cut at the end where `truncate_to` asks for that.
absl::StatusOr<GenerationRequest> ReadPair(const ServedModel& model, const Judge& judge,
                                           const Pair& pair, const std::string& task,
                                           std::optional<int64_t> truncate_to) {
  const std::string text = absl::StrCat("<Instruct>: ", task, "\n<Query>: ", pair.query,
                                        "\n<Document>: ", pair.document);
  if (!truncate_to.has_value()) {
    if (absl::Status s = CheckMayFit(model, pair.field, text); !s.ok()) return s;
  }
  absl::StatusOr<Ids> body =
      model.tokenizer->Encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
  if (!body.ok()) return FieldError(pair.field, std::string(body.status().message()));
  if (truncate_to.has_value()) {
    const auto fixed = static_cast<int64_t>(judge.before.size() + judge.behind.size());
    const int64_t kept =
        (*truncate_to == -1 ? model.max_model_len_tokens - 1 : *truncate_to) - fixed;
    if (kept < 1) {
      return FieldError("truncate_prompt_tokens",
                        absl::StrCat("truncate_prompt_tokens: must be -1 or above ", fixed,
                                     ", the tokens around query and document"));
    }
    if (static_cast<int64_t>(body->size()) > kept) body->resize(static_cast<size_t>(kept));
  }
  GenerationRequest request;
  request.prompt_token_ids = judge.before;
  request.prompt_token_ids.insert(request.prompt_token_ids.end(), body->begin(), body->end());
  request.prompt_token_ids.insert(request.prompt_token_ids.end(), judge.behind.begin(),
                                  judge.behind.end());
  request.sampling.temperature = 0;
  request.top_logprobs = 0;
  request.logprob_ids = {judge.yes, judge.no};
  if (absl::Status s = FitToContext(model, 1, request); !s.ok()) {
    absl::Status renamed = FieldError(pair.field, std::string(s.message()));
    return WithErrorCode(std::move(renamed), ErrorCodeOf(s));
  }
  return request;
}

absl::StatusOr<OpenAiCall> MakeCall(BodyReader& reader, const ServedModel& model,
                                    const std::vector<Pair>& pairs, RankingTerms terms) {
  const std::string task = reader.String("instruction").value_or(kUsualTask);
  const std::optional<int64_t> truncate_to = reader.Integer("truncate_prompt_tokens");
  const std::string cache_salt = reader.String("cache_salt").value_or("");
  const auto priority = static_cast<int32_t>(reader.Integer("priority").value_or(0));
  if (!reader.status().ok()) return reader.status();
  const absl::StatusOr<Judge> judge = ReadJudge(model);
  if (!judge.ok()) return judge.status();
  OpenAiCall call;
  call.form = AnswerForm::kRanking;
  call.ignored_fields = reader.Ignored();
  for (const Pair& pair : pairs) {
    absl::StatusOr<GenerationRequest> request = ReadPair(model, *judge, pair, task, truncate_to);
    if (!request.ok()) return request.status();
    request->cache_salt = cache_salt;
    request->priority = priority;
    call.prompts.push_back(*std::move(request));
  }
  call.ranking = std::make_shared<const RankingTerms>(std::move(terms));
  return call;
}

}  // namespace

absl::StatusOr<OpenAiCall> ReadRerankCall(const nlohmann::json& body, const ServedModel& model) {
  if (!body.is_object()) return FieldError("", "the body must be a JSON object");
  BodyReader reader(body, RerankFields());
  reader.CheckUnread();
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  const std::optional<std::string> query = reader.String("query");
  if (!query.has_value()) reader.Fail("query", "missing");
  std::vector<std::string> documents = ReadTexts(reader, "documents", /*may_be_one=*/false);
  RankingTerms terms{.sorted = true, .documents = {}, .top_n = 0};
  terms.top_n = static_cast<size_t>(reader.Integer("top_n").value_or(0));
  const bool shows_documents = reader.Bool("return_documents").value_or(true);
  std::vector<Pair> pairs;
  for (const std::string& document : documents)
    pairs.push_back({"documents", query.value_or(""), document});
  if (shows_documents) terms.documents = std::move(documents);
  return MakeCall(reader, model, pairs, std::move(terms));
}

absl::StatusOr<OpenAiCall> ReadScoreCall(const nlohmann::json& body, const ServedModel& model) {
  if (!body.is_object()) return FieldError("", "the body must be a JSON object");
  BodyReader reader(body, ScoreFields());
  reader.CheckUnread();
  if (absl::Status s = CheckModelName(model, reader.String("model").value_or("")); !s.ok())
    return s;
  const std::vector<std::string> first = ReadTexts(reader, "text_1", /*may_be_one=*/true);
  const std::vector<std::string> second = ReadTexts(reader, "text_2", /*may_be_one=*/true);
  if (reader.status().ok() && first.size() != 1 && first.size() != second.size()) {
    reader.Fail("text_1", absl::StrCat("one text, or as many as text_2 has, are expected: ",
                                       first.size(), " and ", second.size()));
  }
  std::vector<Pair> pairs;
  for (size_t i = 0; i < second.size() && reader.status().ok(); ++i)
    pairs.push_back({"text_2", first.size() == 1 ? first[0] : first[i], second[i]});
  return MakeCall(reader, model, pairs, RankingTerms());
}

RankingReply::RankingReply(const ServedModel& model, const OpenAiCall& call, int64_t created)
    : model_(model), terms_(*call.ranking), created_(created), scores_(call.prompts.size()) {}

void RankingReply::Add(int prompt, const ChoiceEvent& event) {
  if (event.logprobs.empty() || event.logprobs[0].asked.size() != 2) return;
  const std::vector<TokenChance>& words = event.logprobs[0].asked;
  scores_[prompt] = 1 / (1 + std::exp(static_cast<double>(words[1].logprob) - words[0].logprob));
}

Json RankingReply::Results() const {
  std::vector<size_t> order(scores_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return scores_[a] > scores_[b]; });
  if (terms_.top_n > 0 && terms_.top_n < order.size()) order.resize(terms_.top_n);
  Json results = Json::array();
  for (const size_t i : order) {
    Json result = {{"index", i}, {"relevance_score", scores_[i]}};
    if (!terms_.documents.empty()) result["document"] = {{"text", terms_.documents[i]}};
    results.push_back(std::move(result));
  }
  return results;
}

Json RankingReply::Scores() const {
  Json data = Json::array();
  for (size_t i = 0; i < scores_.size(); ++i)
    data.push_back({{"index", i}, {"object", "score"}, {"score", scores_[i]}});
  return data;
}

std::string RankingReply::Body() const {
  Json body = {{"id", absl::StrCat(terms_.sorted ? "rerank-" : "score-", DrawId())},
               {"model", model_.name}};
  if (terms_.sorted) {
    body["results"] = Results();
  } else {
    body["object"] = "list";
    body["created"] = created_;
    body["data"] = Scores();
  }
  body["usage"] = {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::coordinator
