// Writes what was generated in the form of one endpoint: whole answers, and the chunks of a stream.
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Events of prompt `prompt` (index into the call's prompts), in order.
  virtual void AddPromptLogprobs(int prompt, std::vector<PositionChances> positions) = 0;
  virtual void Add(int prompt, const ChoiceEvent& event) = 0;
  virtual void AddUsage(const GenerationUsage& usage) = 0;

  // The whole answer.
  virtual std::string Body() const = 0;

  // Server-sent events. Before any token:
  virtual std::string OpeningChunks() = 0;
  // Chunks for one event; the first of a choice begin with its role and echo. "": none yet.
  virtual std::string Chunk(int prompt, const ChoiceEvent& event) = 0;
  virtual std::string ClosingChunks() = 0;
  virtual std::string ErrorChunk(const absl::Status& status) const = 0;
  // The id in a stream's events; empty: they have none.
  virtual std::string stream_id() const { return ""; }
  // For a stream that was silent for long.
  virtual std::string Ping() const { return ": waiting\n\n"; }
};

}  // namespace tessera::coordinator
