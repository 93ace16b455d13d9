// Groups of real processes in shared memory, and the ways in which one of them ends.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/collectives/shm_group.h"
#include "tests/kernels/collectives/cpu_streams.h"

namespace tessera::kernels {
namespace {

constexpr double kPatienceSeconds = 60;
constexpr int kGoodCalls = 100;
constexpr int kEndless = 1'000'000;

// Plays `rank` of a group of two over `socket`: calls until one fails, at most `calls`; then
// `at_end`, with the group still there. Returns how many went well; `failure` is what ended them.
int Play(
    int rank, FileDescriptor socket, double timeout_seconds, int calls, absl::Status* failure,
    const std::function<void()>& at_end = [] {}) {
  std::vector<std::shared_ptr<Link>> links(2);
  links[1 - rank] = std::make_shared<Link>(std::move(socket), "the other process");
  SlotGroupOptions options = {.group = {.timeout_seconds = timeout_seconds}};
  auto group = CreateShmGroup(rank, std::move(links), options);
  if (!group.ok()) std::abort();
  const tests::CpuStreams streams(1);
  Stream& stream = streams[0];
  int call = 0;
  for (; call < calls; ++call) {
    std::vector<float> values(1000, static_cast<float>(rank + call));
    const TensorView view(values.data(), DType::kF32, {1000});
    if (!(*group)->AllReduceSum(view, stream).ok()) std::abort();
    *failure = stream.Synchronize();
    if (!failure->ok()) break;
    if (values != std::vector<float>(1000, static_cast<float>(1 + 2 * call))) std::abort();
  }
  at_end();
  return call;
}

struct Child {
  pid_t pid = 0;
  FileDescriptor socket;  // the parent's end
  FileDescriptor done;    // readable once the child made its calls
};

// A process that is rank 1 for `calls` calls and then ends, or hangs in the middle of its group.
Child Fork(int calls, bool hangs) {
  int fds[2];
  int done[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  REQUIRE(pipe(done) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    close(fds[0]);
    absl::Status failure;
    const auto at_end = [&] {
      if (write(done[1], "x", 1) != 1) std::abort();
      while (hangs) pause();
    };
    const int good = Play(1, FileDescriptor(fds[1]), kPatienceSeconds, calls, &failure, at_end);
    _exit(good == calls ? 0 : 1);
  }
  close(fds[1]);
  close(done[1]);
  return {.pid = pid, .socket = FileDescriptor(fds[0]), .done = FileDescriptor(done[0])};
}

int WaitFor(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST_CASE("processes sum in shared memory") {
  Child child = Fork(kGoodCalls, false);
  absl::Status failure;
  CHECK(Play(0, std::move(child.socket), kPatienceSeconds, kGoodCalls, &failure) == kGoodCalls);
  CHECK(failure.ok());
  CHECK(WaitFor(child.pid) == 0);
}

TEST_CASE("a process that ends ends the group long before the timeout") {
  Child child = Fork(kGoodCalls, false);
  absl::Status failure;
  CHECK(Play(0, std::move(child.socket), kPatienceSeconds, kEndless, &failure) == kGoodCalls);
  CHECK((failure.code() == absl::StatusCode::kUnavailable ||
         failure.code() == absl::StatusCode::kAborted));
  CHECK(WaitFor(child.pid) == 0);
}

TEST_CASE("a process that is killed between calls ends the group long before the timeout") {
  Child child = Fork(kGoodCalls, true);
  absl::Status failure;
  // The parent is in the call after the child's last one, or on its way there.
  ssize_t read_bytes = 0;
  std::thread kills([&] {
    char byte = 0;
    read_bytes = read(child.done.get(), &byte, 1);
    kill(child.pid, SIGKILL);
  });
  CHECK(Play(0, std::move(child.socket), kPatienceSeconds, kEndless, &failure) == kGoodCalls);
  kills.join();
  CHECK(read_bytes == 1);
  WaitFor(child.pid);
  CHECK(failure.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a process that hangs costs the timeout, and is named") {
  Child child = Fork(kGoodCalls, true);
  absl::Status failure;
  CHECK(Play(0, std::move(child.socket), 3.0, kEndless, &failure) == kGoodCalls);
  kill(child.pid, SIGKILL);
  WaitFor(child.pid);
  CHECK(failure.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(failure.message()), Catch::Contains("rank 1"));
}

TEST_CASE("memory that could shrink, or has another size, is not mapped") {
  for (const bool sealed : {false, true}) {
    auto pair = CreateLinkPair("zero", "one");
    REQUIRE(pair.ok());
    const SlotGroupOptions options;
    const FileDescriptor file(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const int64_t size_bytes = SlotGroup::MemoryBytes(2, options.slot_bytes);
    REQUIRE(ftruncate(file.get(), sealed ? size_bytes / 2 : size_bytes) == 0);
    if (sealed) {
      REQUIRE(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    }
    REQUIRE(pair->first->SendDescriptor(file.get(), kPatienceSeconds).ok());
    std::vector<std::shared_ptr<Link>> links(2);
    links[0] = std::move(pair->second);
    CHECK(CreateShmGroup(1, std::move(links), options).status().code() ==
          absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace tessera::kernels
