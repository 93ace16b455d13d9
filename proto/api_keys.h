// The keys that clients send, on their way into a process: from a file, since everybody on the
// machine can read command lines.
//
// Thread rule: ReadApiKeyFile is pure but for reading the file; HideKeys belongs into main.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// One key a line; white space around it and empty lines are dropped. Errors name the file; one
// without a key is an error.
absl::StatusOr<std::vector<std::string>> ReadApiKeyFile(const std::string& path);

// What to log of a file that others than its owner may read; empty: nothing.
std::string KeyFileWarning(const std::string& path);

// Overwrites the values of --api-key among the arguments, which `ps` shows to every user.
void HideKeys(int argc, char** argv);

}  // namespace tessera
