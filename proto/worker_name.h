// Names of workers, which are those of the devices in plans: "machine/index". They go into logs,
// tables, metrics and the names of files.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Why `name` can be no worker's, in words that go on "--name ...: "; empty: it can.
std::string WorkerNameProblem(std::string_view name);

}  // namespace tessera
