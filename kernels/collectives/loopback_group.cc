#include "kernels/collectives/loopback_group.h"

#include <cstring>
#include <new>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {

absl::StatusOr<std::vector<std::unique_ptr<Group>>> CreateLoopbackGroups(
    int size, const SlotGroupOptions& options) {
  if (size < 1 || size > kMaxGroupSize) {
    return absl::InvalidArgumentError(
        StrCat("a group of ", size, " ranks; 1 to ", kMaxGroupSize, " are possible"));
  }
  if (absl::Status status = SlotGroup::CheckOptions(options); !status.ok()) return status;
  constexpr std::align_val_t kAlignment{64};
  const auto bytes = static_cast<size_t>(SlotGroup::MemoryBytes(size, options.slot_bytes));
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(operator new(bytes, kAlignment)),
      [](std::byte* data) { operator delete(data, kAlignment); });
  std::memset(memory.get(), 0, bytes);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(
        std::make_unique<SlotGroup>(rank, size, memory, options, [] { return absl::OkStatus(); }));
  }
  return groups;
}

}  // namespace tessera::kernels
