#include "kernels/links/link_monitor.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <string>

#include "tests/kernels/links/transports.h"
#include "tests/no_more_threads.h"

namespace tessera::kernels {
namespace {

using tests::Connect;
using tests::kPatienceSeconds;
using tests::LinkedEnds;

constexpr auto kPatience = std::chrono::seconds(30);
constexpr LinkMonitor::Options kFast = {.ping_interval_seconds = 0.02, .timeout_seconds = 0.5};
// Survives a busy machine that runs neither thread for seconds.
constexpr LinkMonitor::Options kSteady = {.ping_interval_seconds = 0.02, .timeout_seconds = 20};

// What on_lost said, once.
struct Loss {
  std::promise<absl::Status> promise;
  std::future<absl::Status> future = promise.get_future();

  std::function<void(const absl::Status&)> Recorder() {
    return [this](const absl::Status& status) { promise.set_value(status); };
  }
  absl::Status Wait() {
    REQUIRE(future.wait_for(kPatience) == std::future_status::ready);
    return future.get();
  }
};

std::unique_ptr<LinkMonitor> StartMonitor(const LinkMonitor::Options& options) {
  auto monitor = LinkMonitor::Start(options);
  REQUIRE(monitor.ok());
  return *std::move(monitor);
}

TEST_CASE("peers that watch each other exchange pings and stay") {
  for (const std::string& transport : tests::Transports()) {
    INFO(transport);
    LinkedEnds ends = Connect(transport);
    const std::shared_ptr<Link> first = std::move(ends.first);
    const std::shared_ptr<Link> second = std::move(ends.second);
    const auto here = StartMonitor(kSteady);
    const auto there = StartMonitor(kSteady);
    here->Watch(first, {});
    there->Watch(second, {});
    const Deadline deadline = DeadlineAfter(kPatienceSeconds);
    while (first->counters().bytes_received < 5 * kFrameHeaderBytes ||
           second->counters().bytes_received < 5 * kFrameHeaderBytes) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::yield();
    }
    CHECK(first->status().ok());
    CHECK(second->status().ok());
  }
}

TEST_CASE("a silent peer is lost with all its links, and is named") {
  LinkedEnds heartbeat = Connect("pair");
  LinkedEnds bulk = Connect("pair");
  const std::shared_ptr<Link> waits = std::move(bulk.first);
  const auto monitor = StartMonitor(kFast);
  Loss loss;
  monitor->Watch(std::move(heartbeat.first), {waits}, loss.Recorder());
  std::string payload;
  const absl::Status woken = waits->ReceiveAny(8, &payload, kPatienceSeconds).status();
  const absl::Status lost = loss.Wait();
  CHECK(lost.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(lost.message()), Catch::Contains("second"));
  CHECK(woken == lost);
}

TEST_CASE("a peer whose process ends is lost at once; others stay") {
  LinkedEnds dead = Connect("pair");
  LinkedEnds bulk = Connect("pair");
  LinkedEnds alive = Connect("pair");
  const auto monitor = StartMonitor(kSteady);
  const auto peer = StartMonitor(kSteady);
  const std::shared_ptr<Link> survivor = std::move(alive.first);
  const std::shared_ptr<Link> ended = std::move(bulk.first);
  monitor->Watch(survivor, {});
  peer->Watch(std::move(alive.second), {});
  Loss loss;
  monitor->Watch(std::move(dead.first), {ended}, loss.Recorder());
  dead.second.reset();
  CHECK(loss.Wait().code() == absl::StatusCode::kUnavailable);
  CHECK(ended->status().code() == absl::StatusCode::kUnavailable);
  CHECK(survivor->status().ok());
}

TEST_CASE("a frame that is no ping ends the peer") {
  LinkedEnds ends = Connect("pair");
  const auto monitor = StartMonitor(kSteady);
  Loss loss;
  monitor->Watch(std::move(ends.first), {}, loss.Recorder());
  const std::byte byte{1};
  REQUIRE(ends.second->Send(kPingFrame, absl::MakeConstSpan(&byte, 1), kPatienceSeconds).ok());
  CHECK(loss.Wait().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a stopped process is found by its silence") {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(fds[0]);
    auto monitor = LinkMonitor::Start(kSteady);
    if (!monitor.ok()) _exit(1);
    (*monitor)->Watch(std::make_shared<Link>(FileDescriptor(fds[1]), "parent"), {});
    while (true) pause();
  }
  close(fds[1]);
  const auto heartbeat = std::make_shared<Link>(FileDescriptor(fds[0]), "child");
  const auto monitor = StartMonitor({.ping_interval_seconds = 0.02, .timeout_seconds = 2});
  Loss loss;
  monitor->Watch(heartbeat, {}, loss.Recorder());
  const Deadline deadline = DeadlineAfter(kPatienceSeconds);
  while (heartbeat->counters().bytes_received < 3 * kFrameHeaderBytes) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
  kill(child, SIGSTOP);
  const absl::Status lost = loss.Wait();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(lost.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(lost.message()), Catch::Contains("child"));
}

TEST_CASE("a monitor without a thread is an error") {
  const tests::NoMoreThreads limit;
  CHECK(LinkMonitor::Start(kFast).status().code() == absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tessera::kernels
