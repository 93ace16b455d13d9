#include "worker/step/threaded_executor.h"

#include <utility>

#include "worker/weights/start_thread.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<StepExecutor>> ThreadedExecutor::Create(
    std::unique_ptr<StepExecutor> inner) {
  std::unique_ptr<ThreadedExecutor> executor(new ThreadedExecutor(std::move(inner)));
  absl::StatusOr<std::thread> thread =
      StartThread("the thread that runs steps", [made = executor.get()] { made->Run(); });
  if (!thread.ok()) return thread.status();
  executor->thread_ = *std::move(thread);
  return std::unique_ptr<StepExecutor>(std::move(executor));
}

ThreadedExecutor::~ThreadedExecutor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ThreadedExecutor::SetWake(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

absl::Status ThreadedExecutor::Begin(const StepWork& work) {
  {
    std::lock_guard lock(mutex_);
    work_ = work;
    state_ = State::kBegun;
  }
  changed_.notify_all();
  return absl::OkStatus();
}

bool ThreadedExecutor::Ready() {
  std::lock_guard lock(mutex_);
  return state_ == State::kDone;
}

absl::Status ThreadedExecutor::Take(StepOutcome* outcome) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ == State::kDone; });
  state_ = State::kIdle;
  std::swap(*outcome, outcome_);
  return std::exchange(status_, absl::OkStatus());
}

// The other executor belongs to its thread while a step is in flight.
absl::Status ThreadedExecutor::Broken() {
  std::lock_guard lock(mutex_);
  return state_ == State::kBegun ? absl::OkStatus() : inner_->Broken();
}

void ThreadedExecutor::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || state_ == State::kBegun; });
    if (state_ != State::kBegun) return;
    const std::function<void()> wake = wake_;
    lock.unlock();
    absl::Status status = inner_->Begin(work_);
    if (status.ok()) status = inner_->Take(&outcome_);
    lock.lock();
    status_ = std::move(status);
    state_ = State::kDone;
    lock.unlock();
    changed_.notify_all();
    if (wake) wake();
    lock.lock();
  }
}

}  // namespace tessera::worker
