#include "coordinator/api/embeddings.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "coordinator/api/body_reader.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kInput[] = "input";

// A completion without a prompt begins a document; an embedding of nothing means nothing.
bool IsEmpty(const nlohmann::json& input) {
  if (input.is_string()) return input.get_ref<const std::string&>().empty();
  if (!input.is_array()) return false;  // of another type, which is refused as such
  if (input.empty()) return true;
  for (const nlohmann::json& item : input) {
    if ((item.is_string() || item.is_array()) && IsEmpty(item)) return true;
  }
  return false;
}

std::string Base64(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);
  const auto* const bytes = reinterpret_cast<const char*>(values.data());
  return absl::Base64Escape({bytes, values.size() * sizeof(float)});
}

// An error of the completion that the texts were read as, by the name that its field has here.
absl::Status Renamed(const absl::Status& status) {
  const std::string field = FieldOf(status);
  if (field != "prompt" && field != "max_tokens") return status;
  absl::Status renamed = FieldError(kInput, std::string(status.message()));
  const std::string code = ErrorCodeOf(status);
  return code.empty() ? renamed : WithErrorCode(std::move(renamed), code);
}

}  // namespace

absl::StatusOr<OpenAiCall> ReadEmbeddingsCall(const nlohmann::json& body,
                                              const ServedModel& model) {
  BodyReader reader(body, EmbeddingsFields());
  reader.CheckUnread();
  const nlohmann::json* const input = reader.Find(kInput);
  if (input == nullptr) reader.Fail(kInput, "missing");
  if (input != nullptr && IsEmpty(*input))
    reader.Fail(kInput, "at least one text is needed, and none may be empty");
  const std::string format = reader.String("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    reader.Fail("encoding_format", "\"float\" or \"base64\" is expected");
  const int64_t dimensions = reader.Integer("dimensions").value_or(0);
  if (dimensions > model.embedding_width) {
    reader.Fail("dimensions", absl::StrCat("the model's embeddings have ", model.embedding_width));
  }
  if (!reader.status().ok()) return reader.status();
  if (!model.embedding.refusal.empty()) {
    return FieldError("model", absl::StrCat("model: no embeddings are made with '", model.name,
                                            "': ", model.embedding.refusal));
  }
  // Nothing is drawn at random, so no seed is either.
  nlohmann::json completion = {
      {"prompt", *input}, {"max_tokens", 1}, {"temperature", 0}, {"seed", 0}};
  for (const char* same :
       {"model", "truncate_prompt_tokens", "add_special_tokens", "cache_salt", "priority"}) {
    if (const nlohmann::json* value = reader.Find(same)) completion[same] = *value;
  }
  absl::StatusOr<OpenAiCall> call = ReadCompletionCall(completion, Json::object(), model);
  if (!call.ok()) return Renamed(call.status());
  call->form = AnswerForm::kEmbeddings;
  call->dimensions = dimensions;
  call->base64 = format == "base64";
  call->ignored_fields = reader.Ignored();
  for (GenerationRequest& request : call->prompts) {
    request.final_rows = true;
    if (model.embedding.pooling == RowPooling::kMean) {
      request.mean_rows = true;
      request.prompt_logprobs = 0;
    } else if (model.embedding.pooling == RowPooling::kFirst) {
      // No token sees those behind it.
      call->unread_prompt_tokens += std::ssize(request.prompt_token_ids) - 1;
      request.prompt_token_ids.resize(1);
    }
  }
  return call;
}

std::vector<float> ToEmbedding(std::vector<float> row, int64_t dimensions, bool normalized) {
  if (dimensions > 0 && dimensions < static_cast<int64_t>(row.size()))
    row.resize(static_cast<size_t>(dimensions));
  double squares = 0;
  for (const float value : row) squares += static_cast<double>(value) * value;
  if (squares == 0 || !normalized) return row;
  const double length = std::sqrt(squares);
  for (float& value : row) value = static_cast<float>(value / length);
  return row;
}

void EmbeddingsReply::Add(int prompt, const ChoiceEvent& event) {
  if (event.final_row.empty()) return;
  rows_[prompt] = ToEmbedding(event.final_row, call_.dimensions, model_.embedding.normalized);
}

std::string EmbeddingsReply::Body() const {
  Json data = Json::array();
  for (size_t i = 0; i < rows_.size(); ++i) {
    Json embedding = rows_[i];
    if (call_.base64) embedding = Base64(rows_[i]);
    data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(embedding)}});
  }
  const Json body = {
      {"object", "list"},
      {"data", std::move(data)},
      {"model", model_.name},
      {"usage", {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}}}};
  return body.dump();
}

}  // namespace tessera::coordinator
