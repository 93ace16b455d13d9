// How the `tessera` command ends where it does not do what was asked: one line on stderr that
// begins with "tessera: ", and 2 where the command line itself is at fault, 1 where anything else
// is. Thread rule: one at a time; prints.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tessera {
class Command;
}

namespace tessera::deploy {

inline constexpr int kUsageError = 2;

// Exit code of `tessera plan`: no plan keeps the limits of latency; the nearest was printed and
// written.
inline constexpr int kMissedLimits = 3;

// Prints the message. Faults of a flag's value are InvalidArgument and begin with the flag.
int Fail(const absl::Status& status);

// The same of a command line that makes no sense.
int FailUsage(std::string_view reason);

// The same of flags that `asked`, the subcommand of the command line, does not take.
int FailParse(const Command& asked, const absl::Status& reason);

}  // namespace tessera::deploy
