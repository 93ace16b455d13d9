// Documents against a query, by a model that answers "yes" or "no": rerank (Cohere's and Jina's
// form) and score (vLLM's).
//
// The prompt is Qwen3-Reranker's own, without which its scores mean nothing
// (huggingface.co/Qwen/Qwen3-Reranker-0.6B); a score is the probability of "yes" beside "no" as the
// first token of its answer. Thread rule: one thread at a time for a reply, which borrows model and
// call.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/answer_writer.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"

namespace tessera::coordinator {

// What the answer needs to know of its request.
struct RankingTerms {
  bool sorted = false;                 // rerank; else scores in the order of the pairs
  std::vector<std::string> documents;  // that results show, of each prompt; empty: none
  size_t top_n = 0;                    // results at most; 0: all
};

// InvalidArgument naming the field; of model where it is no reranker.
absl::StatusOr<OpenAiCall> ReadRerankCall(const nlohmann::json& body, const ServedModel& model);
absl::StatusOr<OpenAiCall> ReadScoreCall(const nlohmann::json& body, const ServedModel& model);

class RankingReply final : public AnswerWriter {
 public:
  RankingReply(const ServedModel& model, const OpenAiCall& call, int64_t created);

  void AddPromptLogprobs(int, std::vector<PositionChances>) override {}
  void Add(int prompt, const ChoiceEvent& event) override;
  void AddUsage(const GenerationUsage& usage) override { prompt_tokens_ += usage.prompt_tokens; }
  std::string Body() const override;
  // There are no streams of them.
  std::string OpeningChunks() override { return ""; }
  std::string Chunk(int, const ChoiceEvent&) override { return ""; }
  std::string ClosingChunks() override { return ""; }
  std::string ErrorChunk(const absl::Status&) const override { return ""; }

 private:
  nlohmann::ordered_json Results() const;
  nlohmann::ordered_json Scores() const;

  const ServedModel& model_;
  const RankingTerms& terms_;
  const int64_t created_;
  std::vector<double> scores_;  // of the prompts
  int64_t prompt_tokens_ = 0;
};

}  // namespace tessera::coordinator
