// The order in which programs take their flags: command line, then environment, then file, then
// default. CLI11's own puts the environment behind the file, and its file format is not YAML.
// Thread rule: before other threads start.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "third_party/cli11/flags.h"

namespace tessera {

// TESSERA_LOG_LEVEL for the flag log-level.
std::string EnvironmentName(std::string_view flag);

// Every flag of `command` is read from TESSERA_ and its name in capitals too: TESSERA_LOG_LEVEL for
// --log-level. Before parsing.
void NameEnvironment(const Command& command);

// After parsing: fills in, from a YAML file with the flags' long names as keys, what neither
// command line nor environment said; sequences are flags that may be given more than once. A
// positional is named as in the help. InvalidArgument naming file and key for what is no flag, or
// no value for it.
absl::Status ApplyFlagFile(const std::string& path, const Command& command);

}  // namespace tessera
