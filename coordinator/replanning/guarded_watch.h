// What the threads that answer requests share with the one that plans: the watch of the workload,
// and what is known of a better plan. Thread rule: thread-safe. Time is an argument.
#pragma once

#include <mutex>
#include <string>

#include "coordinator/replanning/workload_watch.h"

namespace tessera::coordinator {

class GuardedWatch {
 public:
  explicit GuardedWatch(const WorkloadWatchOptions& options = {}) : watch_(options) {}

  void Add(const ServedRequest& request, double now_seconds) {
    std::lock_guard lock(mutex_);
    watch_.Add(request, now_seconds);
  }
  // `use` sees the watch alone, and must not call back.
  template <typename Use>
  auto With(const Use& use) {
    std::lock_guard lock(mutex_);
    return use(watch_);
  }
  // Which whole plan would serve the workload better, a line for people; empty: none that is known.
  std::string advice() const {
    std::lock_guard lock(mutex_);
    return advice_;
  }
  void set_advice(std::string advice) {
    std::lock_guard lock(mutex_);
    advice_ = std::move(advice);
  }

 private:
  mutable std::mutex mutex_;
  WorkloadWatch watch_;
  std::string advice_;
};

}  // namespace tessera::coordinator
