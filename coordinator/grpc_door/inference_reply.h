// What was generated -> the messages of the gRPC door, whole or chunk by chunk.
// Thread rule: one thread at a time; a ChoiceWriter borrows the tokenizer.
#pragma once

#include <memory>

#include "coordinator/answer/message_builder.h"
#include "coordinator/flow/generation.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "proto/inference.pb.h"

namespace tessera::coordinator {

v1::Usage ToProto(const GenerationUsage& usage);
v1::Timings ToProto(const GenerationTimings& timings);
v1::TokenLogprobs ToProto(const Tokenizer& tokenizer, const PositionChances& position);

// Reads one choice: its text, and of a chat, its thinking and tool calls.
class ChoiceWriter {
 public:
  // Without a format all is text.
  ChoiceWriter(const Tokenizer& tokenizer, std::shared_ptr<const AnswerFormat> format);

  // Adds what the event says to `choice`: an empty one is a stream's chunk, one that has the events
  // before is the whole answer, from which calls that turned out to be none are taken again.
  void Add(const ChoiceEvent& event, v1::Choice& choice);

 private:
  void AddDelta(const MessageDelta& delta, v1::Choice& choice) const;
  void DropBrokenCalls(v1::Choice& choice) const;

  const Tokenizer& tokenizer_;
  const bool is_plain_;
  MessageBuilder message_;
};

}  // namespace tessera::coordinator
