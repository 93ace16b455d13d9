#include "coordinator/fairness/client_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/fairness/retry_after.h"

namespace tessera::coordinator {
namespace {

constexpr double kMinuteSeconds = 60;
constexpr double kUntilOneEnds = 1;  // nobody knows when

}  // namespace

ClientBudget::ClientBudget(const ClientLimits& limits, double now_seconds)
    : limits_(limits),
      requests_{limits.requests_per_minute, limits.requests_per_minute, now_seconds},
      tokens_{limits.tokens_per_minute, limits.tokens_per_minute, now_seconds} {}

void ClientBudget::Purse::Refill(double now_seconds) {
  const double came = per_minute / kMinuteSeconds * (now_seconds - at_seconds);
  left = std::min(per_minute, left + came);
  at_seconds = now_seconds;
}

double ClientBudget::Purse::SecondsUntil(double amount) const {
  return (amount - left) * kMinuteSeconds / per_minute;
}

absl::Status ClientBudget::Enter(double now_seconds) {
  requests_.Refill(now_seconds);
  tokens_.Refill(now_seconds);
  const auto refused = [](const std::string& limit, double seconds) {
    return RetryAfter(seconds, absl::ResourceExhaustedError(
                                   absl::StrCat("this API key's limit is reached: ", limit)));
  };
  if (limits_.concurrent_requests > 0 && open_ >= limits_.concurrent_requests) {
    return refused(absl::StrCat(limits_.concurrent_requests, " requests at a time"), kUntilOneEnds);
  }
  if (requests_.per_minute > 0 && requests_.left < 1) {
    return refused(absl::StrCat(requests_.per_minute, " requests a minute"),
                   requests_.SecondsUntil(1));
  }
  if (tokens_.per_minute > 0 && tokens_.left <= 0) {
    return refused(absl::StrCat(tokens_.per_minute, " tokens a minute"), tokens_.SecondsUntil(0));
  }
  requests_.left -= 1;
  ++open_;
  return absl::OkStatus();
}

void ClientBudget::Leave(double tokens, double now_seconds) {
  tokens_.Refill(now_seconds);
  tokens_.left -= tokens;
  --open_;
}

}  // namespace tessera::coordinator
