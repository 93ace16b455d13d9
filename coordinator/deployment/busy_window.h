// What part of the last ten seconds a worker was busy, from counters that only grow.
//
// Thread rule: one thread at a time. Time is the worker's own (WorkerCounters.uptime_seconds).
#pragma once

#include <deque>
#include <optional>

#include "proto/worker.pb.h"

namespace tessera::coordinator {

class BusyWindow {
 public:
  // Newest last. Counters that fell are another process's: the window begins again.
  void Add(const v1::WorkerCounters& counters);
  // 0..1; nothing until a counter came from a young process, or two from an old one.
  std::optional<double> Share() const;

 private:
  struct Point {
    double uptime_seconds = 0, busy_seconds = 0;
  };
  std::deque<Point> points_;
};

}  // namespace tessera::coordinator
