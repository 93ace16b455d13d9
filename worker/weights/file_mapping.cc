#include "worker/weights/file_mapping.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tessera::worker {
namespace {

// Files come into the cache by reads of some 100 KiB and more.
constexpr int64_t kLookEveryBytes = int64_t{1} << 20;

bool LivesInMemory(int descriptor) {
  struct statfs system = {};
  return ::fstatfs(descriptor, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

}  // namespace

std::unique_ptr<FileMapping> FileMapping::Create(int descriptor, int64_t size_bytes) {
  void* data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return nullptr;
  return std::unique_ptr<FileMapping>(new FileMapping(static_cast<std::byte*>(data), size_bytes));
}

FileMapping::~FileMapping() { ::munmap(data_, size_bytes_); }

void FileMapping::Touch(int64_t begin, int64_t size_bytes) const {
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE), first = begin / page_bytes * page_bytes;
  // Linux 5.14; before, and where it fails, faults do it.
  ::madvise(data_ + first, begin + size_bytes - first, MADV_POPULATE_READ);
}

void FileMapping::Release(int64_t begin, int64_t size_bytes) const {
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  const int64_t first = (begin + page_bytes - 1) / page_bytes * page_bytes;
  const int64_t end = (begin + size_bytes) / page_bytes * page_bytes;
  if (first < end) ::madvise(data_ + first, end - first, MADV_DONTNEED);
}

bool IsCached(int descriptor, int64_t begin, int64_t size_bytes) {
  if (LivesInMemory(descriptor)) return true;
  const int64_t last = begin + size_bytes - 1;
  for (int64_t at = begin;; at = std::min(last, at + kLookEveryBytes)) {
    char byte;
    const iovec out = {&byte, 1};
    ssize_t count = 0;
    do {
      count = ::preadv2(descriptor, &out, 1, at, RWF_NOWAIT);
    } while (count < 0 && errno == EINTR);
    if (count != 1) return false;
    if (at >= last) return true;
  }
}

}  // namespace tessera::worker
