// Watches a search for whoever waits at a terminal: says on stderr how far it is once it takes more
// than two seconds, and stops it at Ctrl-C or after a time limit.
//
// While it lives, the first Ctrl-C stops the search, a second one ends the process as usual. A
// thread of its own waits for them, and they are blocked elsewhere: the solver of linear programs
// takes over the handler while it works, and would keep a Ctrl-C to itself.
//
// Thread rule: one at a time in a process, since Ctrl-C belongs to the process, and made by the
// thread that starts all others; the search's thread calls what ForSearch() returns. Lifetime:
// outlives the search.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "scheduler/search/layout/problem.h"

namespace tessera::deploy {

class SearchInterrupt {
 public:
  // 0 seconds: no limit.
  explicit SearchInterrupt(double time_limit_seconds);
  ~SearchInterrupt();
  SearchInterrupt(const SearchInterrupt&) = delete;
  SearchInterrupt& operator=(const SearchInterrupt&) = delete;

  scheduler::SearchWatch ForSearch();

 private:
  void AwaitInterrupts();
  double Seconds() const;
  bool Stop();
  void Report(const std::string& what);

  const std::chrono::steady_clock::time_point begin_;
  const double time_limit_seconds_;
  double last_report_seconds_ = 0;
  bool said_stopping_ = false;
  std::atomic<bool> interrupted_ = false, ends_ = false;
  sigset_t mask_before_;
  std::thread waiter_;
};

}  // namespace tessera::deploy
