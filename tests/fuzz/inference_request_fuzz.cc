// Any bytes as a gRPC message, read as a completion and as a chat: an error that names something,
// or a request that keeps what the engine relies on.

#include <google/protobuf/stubs/logging.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "coordinator/grpc_door/inference_request.h"

namespace {

using tessera::coordinator::GenerationRequest;
using tessera::coordinator::InferenceCall;
using tessera::coordinator::ServedModel;

constexpr std::int64_t kContextTokens = 200;

void Require(bool holds) {
  if (!holds) std::abort();
}

const ServedModel& Model() {
  static const ServedModel* const model = [] {
    constexpr char kFolder[] = "deploy/demo_model/tessera-demo";
    auto* made = new ServedModel;
    made->name = "demo";
    made->max_model_len_tokens = kContextTokens;
    made->tokenizer = tessera::coordinator::Tokenizer::Load(kFolder).value();
    made->chat_template = tessera::coordinator::ChatTemplate::Load(kFolder).value();
    return made;
  }();
  return *model;
}

void CheckCall(const absl::StatusOr<InferenceCall>& read) {
  if (!read.ok()) {
    Require(!read.status().message().empty());
    Require(read.status().code() == absl::StatusCode::kInvalidArgument ||
            read.status().code() == absl::StatusCode::kNotFound);
    return;
  }
  const GenerationRequest& request = read->request;
  const auto prompt = static_cast<std::int64_t>(request.prompt_token_ids.size());
  Require(prompt > 0 && request.max_tokens >= 0 && prompt + request.max_tokens <= kContextTokens);
  Require(request.min_tokens >= 0 && request.min_tokens <= request.max_tokens);
  Require(request.choice_count >= 1 && request.choice_count <= 128);
  for (std::int32_t id : request.prompt_token_ids) {
    Require(id >= 0 && id < Model().tokenizer->vocabulary_size());
  }
  const auto& s = request.sampling;
  for (float value : {s.temperature, s.top_p, s.min_p, s.repetition_penalty}) {
    Require(std::isfinite(value) && value >= 0);
  }
  Require(s.top_p > 0 && s.repetition_penalty > 0 && s.top_k >= 0);
  for (const auto& [id, bias] : s.logit_bias) {
    Require(id >= 0 && id < Model().tokenizer->vocabulary_size() && std::abs(bias) <= 100);
  }
  for (const auto& stop : request.stop_strings) Require(!stop.empty());
  for (std::int32_t id : request.allowed_token_ids) {
    Require(id >= 0 && id < Model().tokenizer->vocabulary_size());
  }
  for (const auto& word : request.bad_words) Require(!word.empty());
  Require(!request.request_id.empty() && request.request_id.size() <= 128);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Protobuf would log every text that is not UTF-8.
  static const bool quiet = (google::protobuf::SetLogHandler(nullptr), true);
  (void)quiet;
  tessera::v1::CompletionRequest completion;
  if (completion.ParseFromArray(data, static_cast<int>(size))) {
    CheckCall(tessera::coordinator::ReadCompletion(completion, Model()));
  }
  tessera::v1::ChatRequest chat;
  if (chat.ParseFromArray(data, static_cast<int>(size)))
    CheckCall(tessera::coordinator::ReadChat(chat, Model(), 1700000000));
  return 0;
}
