#include "kernels/collectives/group_links.h"

#include "kernels/collectives/group.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {

absl::Status CheckGroupLinks(int rank, const std::vector<std::shared_ptr<Link>>& links) {
  const auto size = static_cast<int>(links.size());
  if (size < 1 || size > kMaxGroupSize || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(StrCat("rank ", rank, " of a group of ", size,
                                             " ranks; 1 to ", kMaxGroupSize, " are possible"));
  }
  for (int r = 0; r < size; ++r) {
    if ((links[r] == nullptr) == (r == rank)) continue;
    return absl::InvalidArgumentError(
        StrCat("rank ", rank, ": the link to rank ", r, " must be ", r == rank ? "null" : "given"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::kernels
