// What was generated -> OpenAI-compatible JSON: whole answers and stream chunks.
// Thread rule: one OpenAiReply by one thread at a time; it borrows model and call.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "coordinator/answer/message_builder.h"
#include "coordinator/api/answer_writer.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

// {"error": {...}} with the HTTP code of the status.
struct OpenAiError {
  int http_status = 500;
  std::string body;
};
OpenAiError ToOpenAiError(const absl::Status& status);

class OpenAiReply final : public AnswerWriter {
 public:
  OpenAiReply(const ServedModel& model, const OpenAiCall& call, int64_t created_unix_seconds);

  // Events of prompt `prompt` (index into call.prompts), in order.
  void AddPromptLogprobs(int prompt, std::vector<PositionChances> positions) override;
  void Add(int prompt, const ChoiceEvent& event) override;
  void AddUsage(const GenerationUsage& usage) override;

  // The whole answer.
  std::string Body() const override;

  // "data: {...}\n\n" for one event; what the choice has not sent yet (role, echo) goes first.
  // "" where there is nothing to say yet.
  std::string Chunk(int prompt, const ChoiceEvent& event) override;
  // The role chunks of a chat, before any token.
  std::string OpeningChunks() override;
  // Usage and timings where asked for, then [DONE].
  std::string ClosingChunks() override;
  std::string ErrorChunk(const absl::Status& status) const override;
  std::string stream_id() const override { return id_; }

 private:
  struct Choice {
    bool opened = false;
    int64_t text_offset = 0;  // completions: characters sent so far
    int64_t tokens = 0;       // of a stream, so far
    std::string text;
    std::vector<int32_t> token_ids;
    std::vector<PositionChances> logprobs;
    bool ends_with_stop_token = false;
    Finish finish = Finish::kNone;
    std::string stop_reason;
    absl::Status error;
    std::unique_ptr<MessageBuilder> message;  // of a chat's stream
    // A chunk of any text, where that text stands in it, and the fingerprint that it names.
    std::string text_chunk;
    size_t text_at = 0;
    std::string fingerprint;
  };

  int ChoiceIndex(int prompt, int32_t choice) const {
    return prompt * call_.choices_per_prompt + choice;
  }
  // The echoed prompt as the beginning of a choice.
  ChoiceEvent EchoEvent(int prompt, int32_t choice) const;
  // A completion's logprobs: of a whole choice, and of one event of its stream.
  nlohmann::ordered_json WholeLogprobs(const ChoiceEvent& echo, const Choice& choice) const;
  nlohmann::ordered_json PieceLogprobs(const ChoiceEvent& event, bool is_echo,
                                       Choice& choice) const;
  // `event` is the prompt's echo, or what was generated. `delta`: of a chat.
  std::string ChunkFor(int index, const ChoiceEvent& event, nlohmann::ordered_json delta,
                       bool is_echo = false);
  std::string ChatChunks(int index, const ChoiceEvent& event);
  // Whether a piece's chunk differs from the last one's in its text alone; and such a chunk, made
  // without its JSON being built again.
  bool IsTextOnly(int index, const ChoiceEvent& event) const;
  std::string TextChunk(int index, const std::string& text);

  const ServedModel& model_;
  const OpenAiCall& call_;
  const std::string id_;
  const int64_t created_unix_seconds_;
  std::vector<Choice> choices_;
  std::vector<std::vector<PositionChances>> prompt_logprobs_;
  GenerationUsage usage_;
};

}  // namespace tessera::coordinator
