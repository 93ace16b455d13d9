#include "tests/fakes/fake_generation_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace tessera::coordinator {
namespace {

// As a replica would: the chosen one at -0.5 per rank, and what else was likely.
PositionChances Chances(int32_t token_id, int32_t top_logprobs) {
  PositionChances chances;
  chances.chosen = {token_id, -0.5f, 1};
  for (int32_t rank = 1; rank <= top_logprobs; ++rank) {
    chances.top.push_back({token_id + rank - 1, -0.5f * static_cast<float>(rank), rank});
  }
  return chances;
}

std::vector<PositionChances> PromptChances(const GenerationRequest& request) {
  std::vector<PositionChances> positions;
  for (int32_t id : request.prompt_token_ids) {
    positions.push_back(Chances(id, request.prompt_logprobs));
  }
  positions.front() = PositionChances();
  positions.front().has_chosen = false;
  return positions;
}

}  // namespace

struct FakeGenerationService::Running {
  std::atomic<bool> cancelled = false;
  std::atomic<bool> done = false;
};

class FakeGenerationService::Handle final : public GenerationHandle {
 public:
  explicit Handle(std::shared_ptr<Running> running) : running_(std::move(running)) {}
  ~Handle() override { Cancel(); }
  void Cancel() override {
    if (!running_->done) running_->cancelled = true;
  }

 private:
  const std::shared_ptr<Running> running_;
};

FakeGenerationService::~FakeGenerationService() {
  for (std::thread& thread : threads_) thread.join();
}

absl::StatusOr<std::unique_ptr<GenerationHandle>> FakeGenerationService::Start(
    GenerationRequest request, std::shared_ptr<GenerationSink> sink) {
  std::lock_guard lock(mutex_);
  if (!refusal_.ok()) return refusal_;
  requests_.push_back(request);
  auto running = std::make_shared<Running>();
  running_.push_back(running);
  threads_.emplace_back(
      [script = script_, request = std::move(request), sink = std::move(sink), running]() mutable {
        if (request.prompt_logprobs >= 0) sink->OnPromptLogprobs(PromptChances(request));
        script(request, *sink, [&] { return running->cancelled.load(); });
        running->done = true;
        sink.reset();
      });
  return std::make_unique<Handle>(running);
}

void FakeGenerationService::SetScript(Script script) {
  std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void FakeGenerationService::Refuse(absl::Status status) {
  std::lock_guard lock(mutex_);
  refusal_ = std::move(status);
}

std::vector<GenerationRequest> FakeGenerationService::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

bool FakeGenerationService::WaitForCancelled(int count) const {
  for (int tries = 0; tries < 1000; ++tries) {
    {
      std::lock_guard lock(mutex_);
      const auto cancelled = [](const auto& running) { return running->cancelled.load(); };
      if (std::count_if(running_.begin(), running_.end(), cancelled) >= count) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

FakeGenerationService::Script Say(std::vector<Piece> pieces, Finish finish) {
  return [pieces = std::move(pieces), finish](const GenerationRequest& request,
                                              GenerationSink& sink, const auto& cancelled) {
    GenerationUsage usage;
    usage.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
    usage.timings.prefill_replica = "r1";
    usage.timings.kv_transfer = KvTransferTimings{4096, 0.125, 0.75, "tcp"};
    usage.timings.decode_replica = "r0";
    for (size_t i = 0; i < pieces.size() && !cancelled(); ++i) {
      for (int32_t choice = 0; choice < request.choice_count; ++choice) {
        ChoiceEvent event;
        event.choice = choice;
        event.text = pieces[i].text;
        event.token_ids = {pieces[i].token_id};
        if (request.top_logprobs >= 0) {
          event.logprobs = {Chances(pieces[i].token_id, request.top_logprobs)};
        }
        if (request.final_rows) event.final_row = {3, 4, 0};
        if (i + 1 == pieces.size()) event.finish = finish;
        sink.OnChoice(std::move(event));
        ++usage.completion_tokens;
      }
    }
    sink.OnEnd(absl::OkStatus(), usage, "r0");
  };
}

}  // namespace tessera::coordinator
