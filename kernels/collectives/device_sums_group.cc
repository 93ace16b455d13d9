#include "kernels/collectives/device_sums_group.h"

#include "kernels/collectives/group_arguments.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {

std::string DeviceSumsGroup::transport() const {
  return StrCat(base_->transport(), "; sums of up to ", sums_->max_bytes() >> 10, " KiB by ",
                sums_->transport());
}

absl::Status DeviceSumsGroup::AllReduceSum(const TensorView& values, Stream& stream) {
  if (absl::Status status = CheckSum(values); !status.ok()) return status;
  if (size() == 1 || values.Elements() == 0) return absl::OkStatus();
  return DenseBytes(values) <= sums_->max_bytes() ? sums_->AllReduceSum(values, stream)
                                                  : base_->AllReduceSum(values, stream);
}

absl::Status DeviceSumsGroup::Broadcast(const TensorView& values, int root, Stream& stream) {
  const int64_t bytes = DenseBytes(values);
  if (bytes > sums_->max_bytes() || bytes % int64_t{sizeof(float)} != 0) {
    return base_->Broadcast(values, root, stream);
  }
  if (absl::Status status = CheckBroadcast(values, root, size()); !status.ok()) return status;
  return size() == 1 || bytes == 0 ? absl::OkStatus() : sums_->Broadcast(values, root, stream);
}

void DeviceSumsGroup::Abort(const absl::Status& reason) {
  sums_->Abort(reason);
  base_->Abort(reason);
}

absl::Status DeviceSumsGroup::status() const {
  absl::Status status = sums_->status();
  return status.ok() ? base_->status() : status;
}

}  // namespace tessera::kernels
