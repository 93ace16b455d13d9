#include "kernels/collectives/shm_group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/collectives/group_links.h"
#include "kernels/links/file_descriptor.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::StatusOr<FileDescriptor> CreateMemory(int64_t size_bytes) {
  FileDescriptor file(memfd_create("tessera-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const bool made = file.valid() && ftruncate(file.get(), size_bytes) == 0 &&
                    fcntl(file.get(), F_ADD_SEALS, kSeals) == 0;
  if (made) return file;
  return absl::ResourceExhaustedError(
      StrCat("shared memory of ", size_bytes, " bytes for a group: ", std::strerror(errno)));
}

absl::StatusOr<FileDescriptor> ReceiveMemory(Link& link, int64_t size_bytes,
                                             double timeout_seconds) {
  absl::StatusOr<FileDescriptor> file = link.ReceiveDescriptor(timeout_seconds);
  if (!file.ok()) return file.status();
  struct stat status = {};
  // A file that could shrink would turn our reads into a signal.
  if (fstat(file->get(), &status) == 0 && status.st_size == size_bytes &&
      fcntl(file->get(), F_GET_SEALS) == kSeals) {
    return file;
  }
  return absl::FailedPreconditionError(StrCat("link to ", link.peer(), ": a file of ",
                                              status.st_size, " bytes instead of ", size_bytes,
                                              " bytes of memory for the group"));
}

absl::StatusOr<std::shared_ptr<std::byte>> Map(const FileDescriptor& file, int64_t size_bytes) {
  const auto size = static_cast<size_t>(size_bytes);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat("mapping ", size_bytes, " bytes for a group: ", std::strerror(errno)));
  }
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                    [size](std::byte* data) { munmap(data, size); });
}

absl::StatusOr<FileDescriptor> CreateAndShare(const std::vector<std::shared_ptr<Link>>& links,
                                              int64_t size_bytes, double timeout_seconds) {
  absl::StatusOr<FileDescriptor> file = CreateMemory(size_bytes);
  if (!file.ok()) return file;
  for (const auto& link : links) {
    if (link == nullptr) continue;
    absl::Status sent = link->SendDescriptor(file->get(), timeout_seconds);
    if (!sent.ok()) return sent;
  }
  return file;
}

absl::Status CheckPeers(const std::vector<std::shared_ptr<Link>>& links) {
  for (const auto& link : links) {
    if (link == nullptr || !link->PeerClosed()) continue;
    if (absl::Status status = link->status(); !status.ok()) return status;
    return absl::UnavailableError(StrCat("link to ", link->peer(), ": it closed the connection"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Group>> CreateShmGroup(int rank,
                                                      std::vector<std::shared_ptr<Link>> links,
                                                      const SlotGroupOptions& options) {
  if (absl::Status status = CheckGroupLinks(rank, links); !status.ok()) return status;
  if (absl::Status status = SlotGroup::CheckOptions(options); !status.ok()) return status;
  const auto size = static_cast<int>(links.size());
  const int64_t size_bytes = SlotGroup::MemoryBytes(size, options.slot_bytes);
  const double timeout_seconds = options.group.timeout_seconds;
  absl::StatusOr<FileDescriptor> file = rank == 0
                                            ? CreateAndShare(links, size_bytes, timeout_seconds)
                                            : ReceiveMemory(*links[0], size_bytes, timeout_seconds);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::shared_ptr<std::byte>> memory = Map(*file, size_bytes);
  if (!memory.ok()) return memory.status();
  return std::make_unique<SlotGroup>(rank, size, *std::move(memory), options,
                                     [links = std::move(links)] { return CheckPeers(links); });
}

}  // namespace tessera::kernels
