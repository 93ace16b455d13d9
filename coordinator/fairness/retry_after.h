// When a client that was refused may try again, as part of the refusal. Thread rule: pure
// functions.
#pragma once

#include <optional>

#include "absl/status/status.h"

namespace tessera::coordinator {

// The status with the seconds, rounded up, from 1 to 60: nobody should wait
// longer for a program.
absl::Status RetryAfter(double seconds, absl::Status status);
// Nullopt: the status does not say.
std::optional<int> RetryAfterSeconds(const absl::Status& status);

}  // namespace tessera::coordinator
