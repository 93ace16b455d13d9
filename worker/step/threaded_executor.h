// Steps of another executor on a thread of their own.
//
// A worker alone runs its steps on the thread that asks for them, which hears nothing meanwhile.
// Where prefill and decode are apart the engine must hear: the other replica waits for the news
// that the KV has gone, and for room, and a prompt's step takes long.
//
// Thread rule: one thread (the engine's), as every StepExecutor; one step in flight. Owns the other
// executor. The destructor waits for the step in flight.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/statusor.h"
#include "worker/step/step_executor.h"

namespace tessera::worker {

class ThreadedExecutor final : public StepExecutor {
 public:
  // `inner` has one lane. ResourceExhausted where there is no thread to be had.
  static absl::StatusOr<std::unique_ptr<StepExecutor>> Create(std::unique_ptr<StepExecutor> inner);
  ~ThreadedExecutor() override;

  void SetWake(std::function<void()> wake) override;
  absl::Status Begin(const StepWork& work) override;
  bool Ready() override;
  absl::Status Take(StepOutcome* outcome) override;
  absl::Status Broken() override;
  int64_t device_bytes() const override { return inner_->device_bytes(); }

 private:
  enum class State { kIdle, kBegun, kDone };  // idle -> begun -> done -> idle

  explicit ThreadedExecutor(std::unique_ptr<StepExecutor> inner) : inner_(std::move(inner)) {}
  void Run();

  const std::unique_ptr<StepExecutor> inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kIdle;
  bool stopping_ = false;
  StepWork work_;
  StepOutcome outcome_;
  absl::Status status_;
  std::function<void()> wake_;
  std::thread thread_;
};

}  // namespace tessera::worker
