// The threads of one CPU device, pinned inside its cores.
//
// The pool has threads() members: the thread that calls ParallelFor (member 0) and threads() - 1
// helpers. A call allocates nothing. Helpers join a call when they get there: the caller works
// through whatever is left, then waits only for helpers that are inside, so a helper that another
// process keeps off its core delays nobody. Waits spin briefly, on cores that others use too only
// while that pays (ThriftySpin), then sleep.
//
// Thread rule: ParallelFor may be called from several threads (they take turns), not from inside a
// task.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/futex.h"

namespace tessera::kernels {

enum class Schedule : uint8_t {
  kDynamic,  // each member takes the next task: for tasks of unequal size
  kGuided,   // a part of the tasks that are left, down to one: neighbours in memory are read by one
             // core, and the last are shared out evenly (Polychronopoulos and Kuck, 1987). On
             // shared cores as kDynamic
};

class ThreadPool {
 public:
  struct Options {
    std::vector<int> cores = {};  // one thread each; at least one, no core twice
    bool cores_shared = false;    // other processes use these cores too: no fixed seats
  };

  // InvalidArgument names a core that this process may not use.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(const Options& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }
  // How long a wait for work may spin before it sleeps; 0 where cores are shared.
  std::chrono::nanoseconds spin_limit() const { return spin_limit_; }
  // Pins `thread`, which will call ParallelFor, to the seat of member 0.
  absl::Status PinCaller(std::thread& thread) const;

  // Runs fn(task, member) for each task in [0, tasks), member in [0, threads()); returns when all
  // are done.
  template <typename Fn>
  void ParallelFor(int64_t tasks, const Fn& fn, Schedule schedule = Schedule::kDynamic) {
    if (tasks <= 0) return;
    if (tasks == 1 || helpers_.empty()) {
      for (int64_t task = 0; task < tasks; ++task) fn(task, 0);
      return;
    }
    Run({.call = &Call<Fn>, .context = &fn, .tasks = tasks, .schedule = schedule});
  }

 private:
  struct Job {
    void (*call)(const void* context, int64_t begin, int64_t end, int member) = nullptr;
    const void* context = nullptr;
    int64_t tasks = 0;
    Schedule schedule = Schedule::kDynamic;
  };

  template <typename Fn>
  static void Call(const void* context, int64_t begin, int64_t end, int member) {
    const Fn& fn = *static_cast<const Fn*>(context);
    for (int64_t task = begin; task < end; ++task) fn(task, member);
  }

  explicit ThreadPool(const Options& options);
  absl::Status StartHelpers();
  absl::Status Pin(std::thread::native_handle_type thread, int member) const;
  void Run(const Job& job);
  void Work(const Job& job, int member);
  void HelperLoop(int member);
  template <typename Done>
  bool Spin(const Done& done, ThriftySpin* thrifty) const;

  // gate_: number of helpers inside, and two flags.
  static constexpr uint32_t kOpen = 1u << 31;
  static constexpr uint32_t kCallerSleeps = 1u << 30;
  static constexpr uint32_t kHelpers = kCallerSleeps - 1;

  const Options options_;
  const std::chrono::nanoseconds spin_limit_;
  std::mutex callers_;
  ThriftySpin caller_spin_;  // of whose turn it is
  Job job_;                  // written while the gate is shut and nobody is inside
  std::vector<std::thread> helpers_;

  alignas(64) std::atomic<uint32_t> gate_{0};
  alignas(64) std::atomic<uint32_t> signal_{0};  // counts calls; helpers sleep on it
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  alignas(64) std::atomic<int64_t> next_{0};  // the next task
  std::atomic<bool> stop_{false};
};

}  // namespace tessera::kernels
