#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::kernels {
namespace {

// Longer than the gap between two ops of a step, shorter than anybody would notice on a power bill.
constexpr std::chrono::microseconds kSpinLimit{50};

absl::Status CheckCores(const std::vector<int>& cores) {
  if (cores.empty()) {
    return absl::InvalidArgumentError("thread pool: no cores given; name at least one");
  }
  std::vector<int> sorted = cores;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("thread pool: a core is named twice in ", absl::StrJoin(cores, ",")));
  }
  if (sorted.front() < 0 || sorted.back() >= CPU_SETSIZE) {
    return absl::InvalidArgumentError(absl::StrCat("thread pool: core numbers in ",
                                                   absl::StrJoin(cores, ","), " must be 0 to ",
                                                   CPU_SETSIZE - 1));
  }
  return absl::OkStatus();
}

absl::Status Unusable(int core) {
  return absl::InvalidArgumentError(absl::StrCat(
      "thread pool: cannot run on core ", core,
      ": it does not exist or this process may not use it (see taskset -cp $$ and --cpus)"));
}

absl::Status CannotStart(const std::string& thread, const std::system_error& error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("thread pool: cannot start ", thread, ": ", error.what(),
                   "; raise the limit on processes or give fewer cores"));
}

// Tries each core with a thread of its own: the caller's affinity stays as it is. Pinning helpers
// alone would not tell, since member 0 may never be pinned, and a set of shared cores is accepted
// with only one of them there.
absl::Status CheckUsable(const std::vector<int>& cores) {
  absl::Status status;
  const auto try_each = [&] {
    for (const int core : cores) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(core, &set);
      if (sched_setaffinity(0, sizeof(set), &set) != 0) status.Update(Unusable(core));
    }
  };
  try {
    std::thread(try_each).join();
  } catch (const std::system_error& error) {
    return CannotStart("the thread that tries its cores", error);
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(const Options& options) {
  if (absl::Status status = CheckCores(options.cores); !status.ok()) return status;
  if (absl::Status status = CheckUsable(options.cores); !status.ok()) return status;
  std::unique_ptr<ThreadPool> pool(new ThreadPool(options));
  if (absl::Status status = pool->StartHelpers(); !status.ok()) return status;
  return pool;
}

ThreadPool::ThreadPool(const Options& options)
    : options_(options),
      spin_limit_(options.cores_shared ? std::chrono::nanoseconds(0) : kSpinLimit) {}

absl::Status ThreadPool::StartHelpers() {
  const int helpers = static_cast<int>(options_.cores.size()) - 1;
  helpers_.reserve(helpers);
  try {
    for (int member = 1; member <= helpers; ++member) {
      helpers_.emplace_back([this, member] { HelperLoop(member); });
    }
  } catch (const std::system_error& error) {
    return CannotStart(absl::StrCat("thread ", helpers_.size() + 1, " of ", helpers), error);
  }
  for (int member = 1; member <= helpers; ++member) {
    absl::Status status = Pin(helpers_[member - 1].native_handle(), member);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  signal_.fetch_add(1);
  FutexWake(signal_, threads());
  for (std::thread& helper : helpers_) helper.join();
}

absl::Status ThreadPool::PinCaller(std::thread& thread) const {
  return Pin(thread.native_handle(), 0);
}

absl::Status ThreadPool::Pin(std::thread::native_handle_type thread, int member) const {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (options_.cores_shared) {
    // The operating system may move us off a core that somebody else keeps busy.
    for (int core : options_.cores) CPU_SET(core, &set);
  } else {
    CPU_SET(options_.cores[member], &set);
  }
  if (pthread_setaffinity_np(thread, sizeof(set), &set) != 0) {
    return Unusable(options_.cores[member]);
  }
  return absl::OkStatus();
}

template <typename Done>
bool ThreadPool::Spin(const Done& done, ThriftySpin* thrifty) const {
  return options_.cores_shared ? thrifty->Until(done, kSpinLimit) : SpinUntil(done, kSpinLimit);
}

void ThreadPool::Run(const Job& job) {
  std::lock_guard<std::mutex> turn(callers_);
  job_ = job;
  next_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  // Sequentially consistent with HelperLoop: either we see the sleeper or it sees the new signal.
  signal_.fetch_add(1);
  if (sleepers_.load() > 0) {
    FutexWake(signal_, static_cast<int>(std::min<int64_t>(job.tasks - 1, threads() - 1)));
  }

  Work(job, 0);

  gate_.fetch_and(~kOpen);
  const auto all_left = [this] { return (gate_.load() & kHelpers) == 0; };
  if (Spin(all_left, &caller_spin_)) return;
  while (!all_left()) {
    const uint32_t gate = gate_.fetch_or(kCallerSleeps) | kCallerSleeps;
    if ((gate & kHelpers) != 0) FutexWait(gate_, gate);
  }
}

void ThreadPool::Work(const Job& job, int member) {
  // On shared cores a member may be stopped in the middle of its part, and all others wait for it.
  const bool guided = job.schedule == Schedule::kGuided && !options_.cores_shared;
  const int64_t parts = guided ? int64_t{2} * threads() : job.tasks;
  int64_t begin = next_.load(std::memory_order_relaxed);
  while (begin < job.tasks) {
    const int64_t end = begin + std::max<int64_t>(1, (job.tasks - begin) / parts);
    if (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
    job.call(job.context, begin, end, member);
    begin = next_.load(std::memory_order_relaxed);
  }
}

void ThreadPool::HelperLoop(int member) {
  ThriftySpin thrifty;
  while (!stop_.load()) {
    const uint32_t seen = signal_.load();
    uint32_t gate = gate_.load();
    while ((gate & kOpen) != 0 && !gate_.compare_exchange_weak(gate, gate + 1)) {
    }
    if ((gate & kOpen) != 0) {
      Work(job_, member);
      const uint32_t left = gate_.fetch_sub(1) - 1;
      if ((left & kHelpers) == 0 && (left & kCallerSleeps) != 0) FutexWake(gate_, 1);
    }
    const auto called = [this, seen] { return signal_.load() != seen; };
    if (Spin(called, &thrifty)) continue;
    sleepers_.fetch_add(1);
    while (!called()) FutexWait(signal_, seen);
    sleepers_.fetch_sub(1);
  }
}

}  // namespace tessera::kernels
