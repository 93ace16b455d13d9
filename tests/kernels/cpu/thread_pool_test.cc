#include "kernels/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/futex.h"
#include "tests/no_more_threads.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::kernels {
namespace {

std::unique_ptr<ThreadPool> MakePool(bool shared) {
  auto pool = ThreadPool::Create({.cores = AffinityCores(), .cores_shared = shared});
  REQUIRE(pool.ok());
  return *std::move(pool);
}

TEST_CASE("every task runs once, whatever the schedule") {
  const bool shared = GENERATE(false, true);
  const Schedule schedule = GENERATE(Schedule::kDynamic, Schedule::kGuided);
  auto pool = MakePool(shared);
  for (int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<int> strangers{0};
      pool->ParallelFor(
          tasks,
          [&](int64_t task, int member) {
            runs[task].fetch_add(1);
            if (member < 0 || member >= pool->threads()) strangers.fetch_add(1);
          },
          schedule);
      int64_t once = 0;
      for (auto& count : runs) once += count.load() == 1;
      REQUIRE(once == tasks);
      REQUIRE(strangers.load() == 0);
    }
  }
}

TEST_CASE("guided: neighbours go to one member") {
  const auto pool = MakePool(false);
  constexpr int64_t kTasks = 1000;
  std::vector<int> member_of(kTasks);
  pool->ParallelFor(
      kTasks, [&](int64_t task, int member) { member_of[task] = member; }, Schedule::kGuided);
  const int64_t part = pool->threads() == 1 ? kTasks : kTasks / (2 * pool->threads());
  CHECK(std::count(member_of.begin(), member_of.begin() + part, member_of[0]) == part);
}

TEST_CASE("two members never share an index at the same time") {
  auto pool = MakePool(true);
  std::vector<std::atomic<bool>> busy(pool->threads());
  std::atomic<int> clashes{0};
  for (int repeat = 0; repeat < 200; ++repeat) {
    pool->ParallelFor(16, [&](int64_t, int member) {
      if (busy[member].exchange(true)) clashes.fetch_add(1);
      busy[member].store(false);
    });
  }
  CHECK(clashes.load() == 0);
}

TEST_CASE("several threads may call; they take turns") {
  auto pool = MakePool(true);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        pool->ParallelFor(10, [&](int64_t task, int) { sum.fetch_add(task); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(sum.load() == 4 * 100 * 45);
}

TEST_CASE("members stay on the cores they were given") {
  const std::vector<int> cores = {AffinityCores().front()};
  auto pool = ThreadPool::Create({.cores = cores});
  REQUIRE(pool.ok());
  std::thread caller([] {});
  caller.join();
  std::atomic<int> seen{-1};
  std::atomic<bool> go{false};
  std::thread runner([&] {
    while (!go.load()) std::this_thread::yield();
    (*pool)->ParallelFor(1, [&](int64_t, int) { seen.store(sched_getcpu()); });
  });
  const absl::Status pinned = (*pool)->PinCaller(runner);
  go.store(true);
  runner.join();
  CHECK(pinned.ok());
  CHECK(seen.load() == cores.front());
}

TEST_CASE("cores that cannot be used are refused by number") {
  CHECK(ThreadPool::Create({.cores = {}}).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ThreadPool::Create({.cores = {0, 0}}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  const int absent = CPU_SETSIZE - 1;
  const bool shared = GENERATE(false, true);
  for (const std::vector<int>& cores :
       {std::vector<int>{absent}, {AffinityCores().front(), absent}}) {
    const absl::Status status =
        ThreadPool::Create({.cores = cores, .cores_shared = shared}).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find(std::to_string(absent)) != std::string::npos);
  }
}

TEST_CASE("threads that cannot be started: an error, not the end of the process") {
  const tests::NoMoreThreads none;
  const auto pool = ThreadPool::Create({.cores = AffinityCores(), .cores_shared = true});
  REQUIRE_FALSE(pool.ok());
  CHECK(pool.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(pool.status().message()),
             Catch::Contains("cannot start") && Catch::Contains("unavailable; raise the limit"));
}

TEST_CASE("on shared cores waits spin only while that pays") {
  ThriftySpin spin;
  int asked = 0;
  const auto spins = [&](bool found) {
    asked = 0;
    spin.Until(
        [&] {
          ++asked;
          return found && asked > 10;
        },
        std::chrono::milliseconds(1));
    return asked > 1;
  };
  for (int i = 0; i < 5; ++i) CHECK(spins(true));
  CHECK(spins(false));
  CHECK_FALSE(spins(true));  // the one after
  CHECK(spins(false));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(spins(false));
  int without = 0;
  for (int i = 0; i < 640; ++i) without += spins(false) ? 0 : 1;
  CHECK(without > 600);
  while (!spins(true)) {
  }
  CHECK(spins(true));
}

TEST_CASE("waits spin only where cores are not shared") {
  CHECK(MakePool(true)->spin_limit().count() == 0);
  CHECK(MakePool(false)->spin_limit().count() > 0);
}

}  // namespace
}  // namespace tessera::kernels
