#include "coordinator/fairness/retry_after.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr char kPayload[] = "tessera/retry-after-seconds";

}  // namespace

absl::Status RetryAfter(double seconds, absl::Status status) {
  const int whole = static_cast<int>(std::ceil(std::clamp(seconds, 1.0, 60.0)));
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(whole)));
  return status;
}

std::optional<int> RetryAfterSeconds(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  int seconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &seconds))
    return std::nullopt;
  return seconds;
}

}  // namespace tessera::coordinator
