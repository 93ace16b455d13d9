// A GenerationService that answers from a script instead of a model.
//
// Each generation runs its script on a thread of its own, as events of a replica come on threads
// of their own. Thread rule: thread-safe; SetScript and Refuse hold for later requests. Destroying
// it joins the scripts: whoever holds sinks must let go of what the scripts wait for before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

class FakeGenerationService final : public GenerationService {
 public:
  // What is told of one generation. `cancelled` turns true when its handle is dropped or cancelled.
  using Script = std::function<void(const GenerationRequest& request, GenerationSink& sink,
                                    const std::function<bool()>& cancelled)>;

  ~FakeGenerationService() override;

  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override;

  void SetScript(Script script);
  // Start returns this; OK: takes requests again.
  void Refuse(absl::Status status);

  std::vector<GenerationRequest> requests() const;
  GenerationRequest last_request() const { return requests().back(); }
  // Waits at most 10 s until that many generations were cancelled before their script was done.
  bool WaitForCancelled(int count) const;

 private:
  struct Running;
  class Handle;

  mutable std::mutex mutex_;
  Script script_;
  absl::Status refusal_;
  std::vector<GenerationRequest> requests_;
  std::vector<std::shared_ptr<Running>> running_;
  std::vector<std::thread> threads_;
};

// A script: every choice says `pieces`, one token each with the ids given, then ends.
struct Piece {
  std::string text;
  int32_t token_id = 0;
};
FakeGenerationService::Script Say(std::vector<Piece> pieces, Finish finish = Finish::kStop);

}  // namespace tessera::coordinator
