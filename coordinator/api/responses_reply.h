// What was generated -> OpenAI's Responses: one response with items of reasoning, message and
// calls, whole or as numbered events. Items come in the order in which the model wrote them, the
// same both ways.
//
// A call that turns out to be none ends as an incomplete item of a stream, and is none of a whole
// response; its text follows as a message. Thread rule: one thread at a time; it borrows model and
// call.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/answer/message_builder.h"
#include "coordinator/api/answer_writer.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/openai_request.h"
#include "coordinator/api/responses_request.h"

namespace tessera::coordinator {

class ResponsesReply final : public AnswerWriter {
 public:
  // `call` has `responses`.
  ResponsesReply(const ServedModel& model, const OpenAiCall& call, int64_t created_unix_seconds);

  void AddPromptLogprobs(int, std::vector<PositionChances>) override {}
  void Add(int prompt, const ChoiceEvent& event) override { Chunk(prompt, event); }
  void AddUsage(const GenerationUsage& usage) override { usage_ = usage; }
  std::string Body() const override;
  std::string OpeningChunks() override;
  std::string Chunk(int prompt, const ChoiceEvent& event) override;
  std::string ClosingChunks() override;
  std::string ErrorChunk(const absl::Status& status) const override;
  std::string stream_id() const override { return id_; }

 private:
  using Json = nlohmann::ordered_json;
  struct Item {
    MessageDelta::Kind kind = MessageDelta::Kind::kText;  // kCall with its arguments
    Json json;
    std::string text;  // so far: of a message or reasoning, or a call's arguments
    bool is_custom = false;
    bool is_search = false;
    bool is_broken = false;  // a call that turned out to be none
  };

  // An event's number goes up by one with each.
  std::string Event(const char* type, Json members);
  std::string ItemEvent(const char* type, Json members);  // of the open item
  std::string ResponseEvent(const char* type, Json response);
  Json ResponseJson(const char* status, Json output) const;
  Json UsageJson() const;

  std::string Events(const MessageDelta& delta);
  std::string Open(const MessageDelta& delta, Item item);
  std::string OpenText(const MessageDelta& delta);
  std::string OpenCall(const MessageDelta& delta);
  // `cut`: the answer ended within it.
  std::string Close(bool cut = false);
  std::string CloseText(Item& item);
  std::string CloseCall(Item& item);

  const ServedModel& model_;
  const OpenAiCall& call_;
  const std::string id_;
  const int64_t created_unix_seconds_;
  MessageBuilder message_;
  GenerationUsage usage_;
  Finish finish_ = Finish::kNone;
  std::vector<Item> items_;
  bool open_ = false;  // the last item may grow
  int64_t events_ = 0;
};

}  // namespace tessera::coordinator
