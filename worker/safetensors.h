// One safetensors file, mapped into memory: tensors are read where they lie, nothing is copied.
//
// Thread rule: const functions may be called from any thread. Ownership: the mapping lives as long
// as the object; views into it must not outlive it. Reading a tensor of a file that another process
// cuts short meanwhile ends this one (SIGBUS), as with any mapped file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/safetensors_header.h"

namespace tessera::worker {

class SafetensorsFile {
 public:
  // NotFound, or InvalidArgument for a damaged header (safetensors_header.h); names the file.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::byte* data() const { return data_; }  // of the whole file; entries index into it

  // Gives the pages that lie wholly within [begin, end) back: they were read and are not needed
  // again soon. Keeps resident memory near what is packed, not twice that.
  void DropPages(int64_t begin, int64_t end) const;

 private:
  SafetensorsFile(std::filesystem::path path, std::byte* data, int64_t size_bytes);

  std::filesystem::path path_;
  std::byte* data_;
  int64_t size_bytes_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace tessera::worker
