#include "worker/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

SafetensorsFile::SafetensorsFile(std::filesystem::path path, std::byte* data, int64_t size_bytes)
    : path_(std::move(path)), data_(data), size_bytes_(size_bytes) {}

SafetensorsFile::~SafetensorsFile() { ::munmap(data_, static_cast<size_t>(size_bytes_)); }

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(
    const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::NotFoundError(StrCat(path.string(), ": cannot be opened: ", std::strerror(errno)));
  }
  struct stat status = {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size_bytes = static_cast<int64_t>(status.st_size);
  void* data = MAP_FAILED;
  if (regular && size_bytes > 0) {
    data = ::mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  const int map_error = errno;
  ::close(descriptor);  // the mapping stays
  if (!regular || size_bytes == 0) {
    return absl::InvalidArgumentError(StrCat(path.string(), ": empty, or not a regular file"));
  }
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(StrCat(path.string(), ": ", size_bytes, " bytes cannot be ",
                                               "mapped: ", std::strerror(map_error)));
  }
  auto file = std::unique_ptr<SafetensorsFile>(
      new SafetensorsFile(path, static_cast<std::byte*>(data), size_bytes));
  auto entries = ParseSafetensorsHeader(
      {static_cast<const char*>(data), static_cast<size_t>(size_bytes)}, size_bytes, path.string());
  if (!entries.ok()) return entries.status();
  file->entries_ = *std::move(entries);
  return file;
}

void SafetensorsFile::DropPages(int64_t begin, int64_t end) const {
  static const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  const int64_t first = (begin + page_bytes - 1) / page_bytes * page_bytes;
  const int64_t last = end / page_bytes * page_bytes;
  if (last > first) ::madvise(data_ + first, static_cast<size_t>(last - first), MADV_DONTNEED);
}

}  // namespace tessera::worker
