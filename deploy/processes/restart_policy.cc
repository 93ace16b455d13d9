#include "deploy/processes/restart_policy.h"

#include <algorithm>

namespace tessera::deploy {
namespace {

constexpr double kFirstDelaySeconds = 0.5;
// One that ran for this long owes nothing to its former ends.
constexpr double kLongSeconds = 60;

}  // namespace

double RestartPolicy::OnEnd(double lived_seconds) {
  at_once_ = lived_seconds < kAtOnceSeconds ? at_once_ + 1 : 0;
  if (lived_seconds >= kLongSeconds) {
    delay_seconds_ = 0;
  } else {
    delay_seconds_ = std::clamp(2 * delay_seconds_, kFirstDelaySeconds, kMaxDelaySeconds);
  }
  return delay_seconds_;
}

}  // namespace tessera::deploy
