// What was generated -> Anthropic's Messages: one message with blocks of thinking, text and tool
// use, whole or as named events.
// Thread rule: one thread at a time; it borrows model and call.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/answer/message_builder.h"
#include "coordinator/api/answer_writer.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"

namespace tessera::coordinator {

// {"type": "error", "error": {...}}, as its clients read it; with the param and the code that
// errors of the other endpoints have.
std::string MessagesError(const absl::Status& status);

class MessagesReply final : public AnswerWriter {
 public:
  MessagesReply(const ServedModel& model, const OpenAiCall& call);

  void AddPromptLogprobs(int, std::vector<PositionChances>) override {}
  void Add(int prompt, const ChoiceEvent& event) override;
  void AddUsage(const GenerationUsage& usage) override { usage_ = usage; }
  std::string Body() const override;
  std::string OpeningChunks() override;
  std::string Chunk(int prompt, const ChoiceEvent& event) override;
  std::string ClosingChunks() override;
  std::string ErrorChunk(const absl::Status& status) const override;
  std::string stream_id() const override { return id_; }
  std::string Ping() const override;

 private:
  nlohmann::ordered_json StopReason() const;
  nlohmann::ordered_json StopSequence() const;
  nlohmann::ordered_json UsageJson() const;
  nlohmann::ordered_json MessageJson(nlohmann::ordered_json content) const;
  std::vector<MessageDelta> Read(const ChoiceEvent& event);
  // The events of a delta: it opens a block of its kind where another is open, or none.
  std::string Events(const MessageDelta& delta);
  std::string OpenBlock(MessageDelta::Kind kind, nlohmann::ordered_json block);
  std::string CloseBlock();

  const ServedModel& model_;
  const OpenAiCall& call_;
  const std::string id_;
  MessageBuilder message_;
  GenerationUsage usage_;
  Finish finish_ = Finish::kNone;
  std::string stop_reason_;
  std::optional<MessageDelta::Kind> open_;  // block of a stream
  int blocks_ = 0;                          // that a stream has opened
};

}  // namespace tessera::coordinator
