// Any bytes as a request body, read as a chat in each of its forms and as a completion: an
// error that names something, or requests that keep what the engine relies on.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "coordinator/api/chat_prompt.h"
#include "coordinator/api/messages_request.h"
#include "coordinator/api/openai_request.h"
#include "coordinator/api/responses_request.h"

namespace {

using tessera::coordinator::GenerationRequest;
using tessera::coordinator::OpenAiCall;
using tessera::coordinator::ServedModel;

void Require(bool holds) {
  if (!holds) std::abort();
}

const ServedModel& Model() {
  static const ServedModel* const model = [] {
    constexpr char kFolder[] = "deploy/demo_model/tessera-demo";
    auto* made = new ServedModel;
    made->name = "demo";
    made->max_model_len_tokens = 200;
    made->tokenizer = tessera::coordinator::Tokenizer::Load(kFolder).value();
    made->chat_template = tessera::coordinator::ChatTemplate::Load(kFolder).value();
    return made;
  }();
  return *model;
}

void CheckRequest(const GenerationRequest& request) {
  Require(!request.prompt_token_ids.empty());
  const int64_t prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  Require(request.max_tokens >= 0 && prompt + request.max_tokens <= 200);
  Require(request.min_tokens <= request.max_tokens);
  Require(request.choice_count >= 1 && request.choice_count <= 128);
  for (int32_t id : request.prompt_token_ids) {
    Require(id >= 0 && id < Model().tokenizer->vocabulary_size());
  }
  for (float value : {request.sampling.temperature, request.sampling.top_p, request.sampling.min_p,
                      request.sampling.repetition_penalty}) {
    Require(std::isfinite(value) && value >= 0);
  }
  for (const auto& stop : request.stop_strings) Require(!stop.empty());
  for (int32_t id : request.allowed_token_ids) {
    Require(id >= 0 && id < Model().tokenizer->vocabulary_size());
  }
  for (const auto& word : request.bad_words) Require(!word.empty());
}

void CheckCall(const absl::StatusOr<OpenAiCall>& call) {
  if (!call.ok()) {
    Require(!call.status().message().empty());
    Require(call.status().code() == absl::StatusCode::kInvalidArgument ||
            call.status().code() == absl::StatusCode::kNotFound);
    return;
  }
  Require(!call->prompts.empty());
  for (const GenerationRequest& request : call->prompts) CheckRequest(request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = tessera::coordinator::ReadChatBody(text, {.values = 10000, .containers = 500});
  if (!body.ok()) {
    Require(body.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  const auto& [all, ordered] = *body;
  CheckCall(tessera::coordinator::ReadChatCall(all, ordered, Model(), 1700000000));
  CheckCall(tessera::coordinator::ReadMessagesCall(all, ordered, Model(), 1700000000));
  CheckCall(tessera::coordinator::ReadResponsesCall(all, ordered, Model(), 1700000000));
  CheckCall(tessera::coordinator::ReadCompletionCall(all, ordered, Model()));
  return 0;
}
