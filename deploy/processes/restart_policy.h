// How long a program that ended stays down before it is started again.
// Thread rule: one thread.
#pragma once

namespace tessera::deploy {

class RestartPolicy {
 public:
  // A program that ended sooner than this ended at once.
  static constexpr double kAtOnceSeconds = 5;
  // One that ended at once so many times in a row is failing.
  static constexpr int kMaxEndsAtOnce = 3;
  static constexpr double kMaxDelaySeconds = 30;

  // The program ended after `lived_seconds`. Seconds to wait before it is started again: none for
  // one that ran for long, twice as many for each end soon after the last one, up to the maximum.
  double OnEnd(double lived_seconds);
  // In a row.
  int ends_at_once() const { return at_once_; }
  bool failing() const { return at_once_ >= kMaxEndsAtOnce; }

 private:
  int at_once_ = 0;
  double delay_seconds_ = 0;
};

}  // namespace tessera::deploy
