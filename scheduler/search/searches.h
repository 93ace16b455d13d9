// The searches by name. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// By name, for --search; NotFound lists the names.
absl::StatusOr<Search> FindSearch(const std::string& name);
std::vector<std::string> SearchNames();

}  // namespace tessera::scheduler
