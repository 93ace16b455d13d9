// What this machine calls itself; workers are named after it where nobody names them, and so is the
// machine in what `tessera plan init` writes. Thread-safe.
#pragma once

#include <string>

namespace tessera {

// "localhost" where the system does not say.
std::string HostName();

}  // namespace tessera
