#include "coordinator/replanning/counted_service.h"

#include <string>
#include <utility>
#include <vector>

namespace tessera::coordinator {
namespace {

struct Counter {
  std::shared_ptr<GuardedWatch> watch;
  std::function<double()> now_seconds;
};

class CountedSink final : public GenerationSink {
 public:
  CountedSink(std::shared_ptr<GenerationSink> sink, std::shared_ptr<const Counter> counter)
      : sink_(std::move(sink)), counter_(std::move(counter)) {}

  void OnPromptLogprobs(std::vector<PositionChances> positions) override {
    sink_->OnPromptLogprobs(std::move(positions));
  }
  void OnChoice(ChoiceEvent event) override { sink_->OnChoice(std::move(event)); }
  void OnEnd(const absl::Status& status, const GenerationUsage& usage,
             const std::string& replica) override {
    if (status.ok()) {
      counter_->watch->Add({.prompt_tokens = usage.prompt_tokens,
                            .cached_tokens = usage.cached_tokens,
                            .output_tokens = usage.completion_tokens},
                           counter_->now_seconds());
    }
    sink_->OnEnd(status, usage, replica);
  }

 private:
  const std::shared_ptr<GenerationSink> sink_;
  const std::shared_ptr<const Counter> counter_;
};

class CountedService final : public GenerationService {
 public:
  CountedService(GenerationService& next, Counter counter)
      : next_(next), counter_(std::make_shared<const Counter>(std::move(counter))) {}

  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override {
    return next_.Start(std::move(request),
                       std::make_shared<CountedSink>(std::move(sink), counter_));
  }

 private:
  GenerationService& next_;
  const std::shared_ptr<const Counter> counter_;
};

}  // namespace

std::unique_ptr<GenerationService> MakeCountedService(GenerationService& next,
                                                      std::shared_ptr<GuardedWatch> watch,
                                                      std::function<double()> now_seconds) {
  return std::make_unique<CountedService>(next, Counter{std::move(watch), std::move(now_seconds)});
}

}  // namespace tessera::coordinator
