// How the `tessera` command ends where it does not do what was asked: one line on stderr that
// begins with "tessera: ", and 2 where the command line itself is at fault, 1 where anything else
// is. Thread rule: one at a time; prints.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tessera::deploy {

inline constexpr int kUsageError = 2;

// Prints the message. Faults of a flag's value are InvalidArgument and begin with the flag.
int Fail(const absl::Status& status);

// The same of a command line that makes no sense.
int FailUsage(std::string_view reason);

// What CLI11 makes of a command line; `asked` is the subcommand that it names. 0 for --help and
// --version, which are printed.
int FailParse(const CLI::App& app, const CLI::App& asked, const CLI::ParseError& error);

}  // namespace tessera::deploy
