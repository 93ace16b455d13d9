// Whole small files as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace tessera {

// NotFound where there is no such file; InvalidArgument for one larger than max_bytes or that is no
// regular file; the error names the path. Thread-safe.
absl::StatusOr<std::string> ReadFileText(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace tessera
