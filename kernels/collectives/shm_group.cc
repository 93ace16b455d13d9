#include "kernels/collectives/shm_group.h"

#include <utility>

#include "kernels/collectives/group_links.h"
#include "kernels/links/shared_memory.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

absl::StatusOr<SharedMemory> CreateAndShare(const std::vector<std::shared_ptr<Link>>& links,
                                            int64_t size_bytes, double timeout_seconds) {
  absl::StatusOr<SharedMemory> memory = CreateSharedMemory(size_bytes);
  if (!memory.ok()) return memory;
  for (const auto& link : links) {
    if (link == nullptr) continue;
    absl::Status sent = link->SendDescriptor(memory->file.get(), timeout_seconds);
    if (!sent.ok()) return sent;
  }
  return memory;
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
  absl::StatusOr<SharedMemory> memory =
      rank == 0 ? CreateAndShare(links, size_bytes, timeout_seconds)
                : ReceiveSharedMemory(*links[0], size_bytes, timeout_seconds);
  if (!memory.ok()) return memory.status();
  return std::make_unique<SlotGroup>(rank, size, std::move(memory->memory), options,
                                     [links = std::move(links)] { return CheckPeers(links); });
}

}  // namespace tessera::kernels
