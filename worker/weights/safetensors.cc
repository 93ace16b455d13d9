#include "worker/weights/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "proto/model/gguf_header.h"
#include "proto/model/gguf_model.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

std::span<std::byte> AsBytes(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

}  // namespace

SafetensorsFile::~SafetensorsFile() { ::close(descriptor_); }

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(
    const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::NotFoundError(StrCat(path.string(), ": cannot be opened: ", std::strerror(errno)));
  }
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    ::close(descriptor);
    return absl::InvalidArgumentError(StrCat(path.string(), ": empty, or not a regular file"));
  }
  const auto size_bytes = static_cast<int64_t>(status.st_size);
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, descriptor, size_bytes));
  if (HasGgufName(path.string())) {
    auto entries = ReadGgufTensors(path);
    if (!entries.ok()) return entries.status();
    file->entries_ = *std::move(entries);
    return file;
  }
  // Its length, then all of it; a length that cannot be is left to the parser.
  std::string header(std::min(size_bytes, kSafetensorsPrefixBytes), '\0');
  if (absl::Status read = file->Read(0, AsBytes(header)); !read.ok()) return read;
  const uint64_t header_bytes = SafetensorsHeaderBytes(header);
  const int64_t most = std::min(kMaxSafetensorsHeaderBytes, size_bytes - kSafetensorsPrefixBytes);
  if (most > 0 && header_bytes <= static_cast<uint64_t>(most)) {
    header.resize(kSafetensorsPrefixBytes + header_bytes);
    if (absl::Status read = file->Read(0, AsBytes(header)); !read.ok()) return read;
  }
  auto entries = ParseSafetensorsHeader(header, size_bytes, path.string());
  if (!entries.ok()) return entries.status();
  file->entries_ = *std::move(entries);
  return file;
}

absl::Status SafetensorsFile::Read(int64_t begin, std::span<std::byte> out) const {
  for (size_t done = 0; done < out.size();) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done,
                                  begin + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return absl::UnavailableError(
          StrCat(path_.string(), ": cannot be read: ", std::strerror(errno)));
    }
    if (count == 0) {
      return absl::OutOfRangeError(StrCat(path_.string(), ": ends at byte ", begin + done,
                                          "; it was cut short after it was opened"));
    }
    done += count;
  }
  return absl::OkStatus();
}

bool SafetensorsFile::IsCached(int64_t begin, int64_t size_bytes) const {
  return worker::IsCached(descriptor_, begin, size_bytes);
}

std::unique_ptr<FileMapping> SafetensorsFile::Map() const {
  return FileMapping::Create(descriptor_, size_bytes_);
}

}  // namespace tessera::worker
