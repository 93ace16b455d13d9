// When a worker that ended is started again, and when that is of no use.
// Thread rule: one thread.
#pragma once

#include <optional>

namespace tessera::deploy {

class RestartPolicy {
 public:
  // A worker that ended sooner than this ended at once.
  static constexpr double kAtOnceSeconds = 5;
  static constexpr int kMaxEndsAtOnce = 3;
  static constexpr double kMaxDelaySeconds = 30;

  // The worker ended after `lived_seconds`. Seconds to wait before it is started again: none for
  // one that ran for long, twice as many for each end soon after the last one. Nothing for the
  // third end at once in a row.
  std::optional<double> OnEnd(double lived_seconds);

 private:
  int at_once_ = 0;  // in a row
  double delay_seconds_ = 0;
};

}  // namespace tessera::deploy
