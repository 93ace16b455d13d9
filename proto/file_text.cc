#include "proto/file_text.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

absl::Status NotAllowed(const std::filesystem::path& path) {
  return absl::PermissionDeniedError(
      StrCat(path.string(), ": user ", geteuid(), ", who runs this program, may not read it"));
}

}  // namespace

absl::StatusOr<std::string> ReadFileText(const std::filesystem::path& path, int64_t max_bytes) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error == std::errc::permission_denied) return NotAllowed(path);
  if (!std::filesystem::exists(status)) {
    return absl::NotFoundError(StrCat(path.string(), ": no such file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(StrCat(path.string(), ": not a regular file"));
  }
  const auto size_bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error || size_bytes > max_bytes) {
    return absl::InvalidArgumentError(
        StrCat(path.string(), ": ", size_bytes, " bytes; at most ", max_bytes, " are read"));
  }
  std::string text(static_cast<size_t>(size_bytes), '\0');
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), size_bytes)) {
    if (errno == EACCES) return NotAllowed(path);
    return absl::InvalidArgumentError(StrCat(path.string(), ": cannot be read",
                                             errno == 0 ? "" : ": ",
                                             errno == 0 ? "" : std::strerror(errno)));
  }
  return text;
}

}  // namespace tessera
