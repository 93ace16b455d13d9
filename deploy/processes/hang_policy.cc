#include "deploy/processes/hang_policy.h"

namespace tessera::deploy {

bool HangPolicy::OnStatus(bool lost, double silent_seconds, double lived_seconds,
                          double now_seconds) {
  const bool heard_of = silent_seconds <= lived_seconds;
  if (!lost || !heard_of) lost_since_seconds_ = -1;
  if (!heard_of) return lived_seconds >= kMaxStartSeconds;
  if (!lost) return false;
  if (lost_since_seconds_ < 0) lost_since_seconds_ = now_seconds;
  return now_seconds - lost_since_seconds_ >= kMaxLostSeconds;
}

}  // namespace tessera::deploy
