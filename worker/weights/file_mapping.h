// A file's bytes as memory: the pages are the system's cache of the file, so nothing is read twice
// or copied. A file that is cut short while it is mapped ends the process (SIGBUS): map what is
// soon let go of.
//
// Thread rule: const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::worker {

class FileMapping {
 public:
  // All of an open file; null where the system maps it not.
  static std::unique_ptr<FileMapping> Create(int descriptor, int64_t size_bytes);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  const std::byte* data() const { return data_; }
  // Brings the pages of these bytes within reach, at once rather than one fault after the other.
  void Touch(int64_t begin, int64_t size_bytes) const;
  // Pages that lie within are no longer counted as this process's. They stay readable.
  void Release(int64_t begin, int64_t size_bytes) const;

 private:
  FileMapping(std::byte* data, int64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* const data_;
  const int64_t size_bytes_;
};

// Whether the system has these bytes of a file in memory, as far as a look at some of them tells.
// False where it does not say, as network file systems do not.
bool IsCached(int descriptor, int64_t begin, int64_t size_bytes);

}  // namespace tessera::worker
