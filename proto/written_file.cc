#include "proto/written_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "third_party/absl/str_cat.h"

namespace tessera {

absl::Status WriteFileText(const std::string& path, std::string_view text) {
  const auto failed = [&] {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    return absl::UnavailableError(
        StrCat("cannot write ", path, ": ", std::strerror(errno),
               full ? ": make room there, or name a file on another disk" : ""));
  };
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return failed();
  absl::Status status;
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      status = failed();
      break;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  // Some file systems say only here that there is no room.
  if (close(file) != 0 && status.ok()) status = failed();
  return status;
}

}  // namespace tessera
