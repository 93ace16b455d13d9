// Watches a search for whoever waits at a terminal: says on stderr how far it is once it takes more
// than two seconds, and stops it at Ctrl-C or after a time limit.
//
// Thread rule: one at a time in a process, since Ctrl-C belongs to the process; the search's thread
// calls what ForSearch() returns. Lifetime: outlives the search. While it lives, the first Ctrl-C
// stops the search, a second one ends the process as usual.
#pragma once

#include <chrono>
#include <functional>

#include "scheduler/search/problem.h"

namespace tessera::deploy {

class PlanWatch {
 public:
  // 0 seconds: no limit.
  explicit PlanWatch(double time_limit_seconds);
  ~PlanWatch();
  PlanWatch(const PlanWatch&) = delete;
  PlanWatch& operator=(const PlanWatch&) = delete;

  scheduler::SearchWatch ForSearch();

 private:
  double Seconds() const;
  bool Stop();
  void Report(const std::string& what);

  const std::chrono::steady_clock::time_point begin_;
  const double time_limit_seconds_;
  double last_report_seconds_ = 0;
  bool said_stopping_ = false;
};

}  // namespace tessera::deploy
