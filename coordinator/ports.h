// Addresses of this process's ports, and the file that says them. Thread rule: thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tessera::coordinator {

// As others reach a port that listens on `host`: by the machine's name where it listens on all.
std::string ReachableAt(const std::string& host, int port);

// "http=8000 grpc=8001"; an empty path: nothing. Errors name --port-file.
absl::Status WritePortFile(const std::string& path, int http_port, int grpc_port);

}  // namespace tessera::coordinator
