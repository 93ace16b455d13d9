// The keys that clients send, on their way into a process: from a file, since everybody on the
// machine can read command lines.
//
// Thread rule: ReadApiKeyFile is pure but for reading the file; HideKeys belongs into main.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// A key and what its client may take. Limits of 0 are none.
struct ApiKey {
  std::string key;
  std::string name;   // in logs and metrics; empty: it has none
  double weight = 1;  // its part of the replicas beside other keys
  double requests_per_minute = 0;
  double tokens_per_minute = 0;
  int64_t concurrent_requests = 0;
  std::vector<std::string> models = {};  // served names that it may use; empty: all
};

// One key a line, and behind it its terms: name=, weight=, requests-per-minute=,
// tokens-per-minute=, concurrent=, models= (names between commas). White space around a line, empty
// lines and lines that begin with # are dropped. Errors name the file and the line; a file without
// a key is an error.
absl::StatusOr<std::vector<ApiKey>> ReadApiKeyFile(const std::string& path);

// What to log of a file that others than its owner may read; empty: nothing.
std::string KeyFileWarning(const std::string& path);

// Overwrites the values of --api-key among the arguments, which `ps` shows to every user.
void HideKeys(int argc, char** argv);

}  // namespace tessera
