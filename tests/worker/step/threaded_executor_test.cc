// Steps on a thread of their own: whoever asks for them goes on meanwhile.
#include "worker/step/threaded_executor.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace tessera::worker {
namespace {

// A step waits until the test lets it end.
class HeldExecutor final : public StepExecutor {
 public:
  absl::Status Begin(const StepWork&) override {
    taken_by = std::this_thread::get_id();
    return begin_status;
  }
  absl::Status Take(StepOutcome* outcome) override {
    may_end.wait();
    outcome->samples.resize(3);
    ++ended;
    return take_status;
  }
  absl::Status Broken() override {
    ++asked;
    return absl::OkStatus();
  }
  int64_t device_bytes() const override { return 42; }

  absl::Status begin_status, take_status;
  std::shared_future<void> may_end;
  std::atomic<int> asked = 0, ended = 0;
  std::thread::id taken_by;
};

struct Threaded {
  Threaded() {
    auto inner = std::make_unique<HeldExecutor>();
    held = inner.get();
    held->may_end = may_end.get_future().share();
    executor = *ThreadedExecutor::Create(std::move(inner));
    executor->SetWake([this] { woken.set_value(); });
  }

  HeldExecutor* held;
  std::promise<void> may_end, woken;
  std::unique_ptr<StepExecutor> executor;
};

TEST_CASE("a step runs on a thread of its own, and wakes whoever waits for it") {
  Threaded t;
  CHECK(t.executor->device_bytes() == 42);
  CHECK(t.executor->Broken().ok());
  CHECK(t.held->asked == 1);
  REQUIRE(t.executor->Begin({}).ok());
  CHECK_FALSE(t.executor->Ready());
  CHECK(t.executor->Broken().ok());
  CHECK(t.held->asked == 1);  // it is in use
  t.may_end.set_value();
  t.woken.get_future().wait();
  CHECK(t.executor->Ready());
  StepOutcome outcome;
  CHECK(t.executor->Take(&outcome).ok());
  CHECK(outcome.samples.size() == 3);
  CHECK(t.held->taken_by != std::this_thread::get_id());
  CHECK_FALSE(t.executor->Ready());
}

TEST_CASE("the error of a step comes with its outcome, also where it did not start") {
  for (const bool begins : {true, false}) {
    Threaded t;
    (begins ? t.held->take_status : t.held->begin_status) = absl::InternalError("lost");
    t.may_end.set_value();
    REQUIRE(t.executor->Begin({}).ok());
    StepOutcome outcome;
    CHECK(t.executor->Take(&outcome) == absl::InternalError("lost"));
    CHECK(t.held->ended == (begins ? 1 : 0));
  }
}

TEST_CASE("a step in flight ends before its executor does") {
  Threaded t;
  REQUIRE(t.executor->Begin({}).ok());
  std::thread later([&t] { t.may_end.set_value(); });
  t.executor.reset();
  CHECK(t.woken.get_future().wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  later.join();
}

}  // namespace
}  // namespace tessera::worker
