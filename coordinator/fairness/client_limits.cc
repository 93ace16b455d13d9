#include "coordinator/fairness/client_limits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "coordinator/fairness/retry_after.h"

namespace tessera::coordinator {
namespace {

constexpr double kMinuteSeconds = 60;
constexpr double kUntilOneEnds = 1;  // nobody knows when

// As OpenAI writes durations: "120ms", "7s", "6m0s".
std::string Written(double seconds) {
  // Rounded up, but not for what sums of fractions are off by.
  const auto milliseconds = static_cast<int64_t>(std::ceil(1000 * seconds - 1e-3));
  if (milliseconds < 1000) return absl::StrCat(milliseconds, "ms");
  const int64_t whole = (milliseconds + 999) / 1000;
  if (whole < 60) return absl::StrCat(whole, "s");
  return absl::StrCat(whole / 60, "m", whole % 60, "s");
}

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

std::vector<std::pair<std::string, std::string>> ClientBudget::Headers(double now_seconds) {
  std::vector<std::pair<std::string, std::string>> headers;
  const auto add = [&](const char* what, Purse& purse) {
    if (purse.per_minute <= 0) return;
    purse.Refill(now_seconds);
    const auto whole = [](double amount) { return static_cast<int64_t>(std::floor(amount)); };
    headers.emplace_back(absl::StrCat("x-ratelimit-limit-", what),
                         absl::StrCat(whole(purse.per_minute)));
    headers.emplace_back(absl::StrCat("x-ratelimit-remaining-", what),
                         absl::StrCat(whole(std::max(0.0, purse.left))));
    headers.emplace_back(absl::StrCat("x-ratelimit-reset-", what),
                         Written(std::max(0.0, purse.SecondsUntil(purse.per_minute))));
  };
  add("requests", requests_);
  add("tokens", tokens_);
  return headers;
}

void ClientBudget::Leave(double tokens, double now_seconds) {
  tokens_.Refill(now_seconds);
  tokens_.left -= tokens;
  --open_;
}

}  // namespace tessera::coordinator
