// OpenAI's embeddings: of the rows of a text's tokens behind the final norm the last one, the first
// one or their mean, of length 1, as the model's EmbeddingRecipe says.
//
// Models such as Qwen3-Embedding are trained to put a text's meaning into the last row; their
// tokenizers add the token that they need. `dimensions` keeps the first of the values, and makes
// the rest of length 1 again. Thread rule: one thread at a time for a reply, which borrows model
// and call.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/answer_writer.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"

namespace tessera::coordinator {

// InvalidArgument naming the field.
absl::StatusOr<OpenAiCall> ReadEmbeddingsCall(const nlohmann::json& body, const ServedModel& model);

// The first `dimensions` of a row, where `normalized` of length 1; 0: all. A row of zeros stays.
std::vector<float> ToEmbedding(std::vector<float> row, int64_t dimensions, bool normalized = true);

class EmbeddingsReply final : public AnswerWriter {
 public:
  EmbeddingsReply(const ServedModel& model, const OpenAiCall& call)
      : model_(model),
        call_(call),
        rows_(call.prompts.size()),
        prompt_tokens_(call.unread_prompt_tokens) {}

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
  const ServedModel& model_;
  const OpenAiCall& call_;
  std::vector<std::vector<float>> rows_;  // of the prompts
  int64_t prompt_tokens_;
};

}  // namespace tessera::coordinator
