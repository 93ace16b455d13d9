// A GenerationService that keeps what it is given, for a test to answer. Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

class AnsweredFlow final : public GenerationService {
 public:
  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override {
    if (!refusal.ok()) return refusal;
    requests.push_back(std::move(request));
    sinks.push_back(std::move(sink));
    return std::make_unique<Handle>();
  }
  void Token(size_t request) {
    ChoiceEvent event;
    event.token_ids = {1};
    sinks[request]->OnChoice(std::move(event));
  }
  void End(size_t request, int64_t prompt, int64_t answer, int64_t cached = 0) {
    GenerationUsage usage;
    usage.prompt_tokens = prompt;
    usage.completion_tokens = answer;
    usage.cached_tokens = cached;
    sinks[request]->OnEnd(absl::OkStatus(), usage, "r0");
  }

  std::vector<GenerationRequest> requests;
  std::vector<std::shared_ptr<GenerationSink>> sinks;
  absl::Status refusal;

 private:
  class Handle final : public GenerationHandle {
    void Cancel() override {}
  };
};

class IgnoringSink final : public GenerationSink {
  void OnPromptLogprobs(std::vector<PositionChances>) override {}
  void OnChoice(ChoiceEvent) override {}
  void OnEnd(const absl::Status&, const GenerationUsage&, const std::string&) override {}
};

}  // namespace tessera::coordinator
