// One open file of weights: safetensors, or GGUF.
//
// Read, where nothing speaks for Map: a file that another process cuts short is an error to a read
// and the end of a process that has mapped it, and a file system over a network answers large reads
// better than one page fault after the other.
//
// Thread rule: const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/model/safetensors_header.h"
#include "worker/weights/file_mapping.h"

namespace tessera::worker {

class SafetensorsFile {
 public:
  // NotFound, or InvalidArgument for a damaged header (safetensors_header.h, gguf_header.h); names
  // the file.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // Fills `out` from byte `begin` of the file on. Unavailable or OutOfRange, naming the file.
  absl::Status Read(int64_t begin, std::span<std::byte> out) const;
  // See file_mapping.h.
  bool IsCached(int64_t begin, int64_t size_bytes) const;
  std::unique_ptr<FileMapping> Map() const;

 private:
  SafetensorsFile(std::filesystem::path path, int descriptor, int64_t size_bytes)
      : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}

  const std::filesystem::path path_;
  const int descriptor_;
  const int64_t size_bytes_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace tessera::worker
