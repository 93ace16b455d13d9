#include "kernels/links/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status Failed(int64_t size_bytes) {
  return absl::ResourceExhaustedError(
      StrCat("shared memory of ", size_bytes, " bytes: ", std::strerror(errno)));
}

absl::StatusOr<SharedMemory> Map(FileDescriptor file, int64_t size_bytes) {
  const auto size = static_cast<size_t>(size_bytes);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return Failed(size_bytes);
  return SharedMemory{std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                                 [size](std::byte* data) { munmap(data, size); }),
                      size_bytes, std::move(file)};
}

}  // namespace

absl::StatusOr<SharedMemory> CreateSharedMemory(int64_t size_bytes) {
  FileDescriptor file(memfd_create("tessera", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made = file.valid() && ftruncate(file.get(), size_bytes) == 0 &&
                    fcntl(file.get(), F_ADD_SEALS, kSeals) == 0;
  if (!made) return Failed(size_bytes);
  return Map(std::move(file), size_bytes);
}

absl::StatusOr<SharedMemory> ReceiveSharedMemory(Link& link, int64_t size_bytes,
                                                 double timeout_seconds) {
  absl::StatusOr<FileDescriptor> file = link.ReceiveDescriptor(timeout_seconds);
  if (!file.ok()) return file.status();
  struct stat status = {};
  // A file that could shrink would turn our reads into a signal.
  if (fstat(file->get(), &status) == 0 && status.st_size == size_bytes &&
      fcntl(file->get(), F_GET_SEALS) == kSeals) {
    return Map(*std::move(file), size_bytes);
  }
  return absl::FailedPreconditionError(StrCat("link to ", link.peer(), ": a file of ",
                                              status.st_size, " bytes instead of ", size_bytes,
                                              " bytes of shared memory"));
}

}  // namespace tessera::kernels
