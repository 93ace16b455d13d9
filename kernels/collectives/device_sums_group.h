// A group whose small sums and broadcasts the ranks' devices make among themselves (device_sums.h),
// and all else another group. All ranks have the same two.
//
// Contract, thread rule and errors: group.h, with one difference: where ranks make different calls,
// of which the devices make one, the error may be that of a late rank. Both are borrowed.
#pragma once

#include <string>

#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/group.h"

namespace tessera::kernels {

class DeviceSumsGroup final : public Group {
 public:
  DeviceSumsGroup(Group* base, DeviceSums* sums) : base_(base), sums_(sums) {}

  int rank() const override { return base_->rank(); }
  int size() const override { return base_->size(); }
  std::string transport() const override;
  bool takes_device_memory() const override { return base_->takes_device_memory(); }
  absl::Status AllReduceSum(const TensorView& values, Stream& stream) override;
  absl::Status Broadcast(const TensorView& values, int root, Stream& stream) override;
  absl::Status AllGather(const TensorView& in, const TensorView& out, Stream& stream) override {
    return base_->AllGather(in, out, stream);
  }
  absl::Status Gather(const TensorView& in, const TensorView& out, int root,
                      Stream& stream) override {
    return base_->Gather(in, out, root, stream);
  }
  void Abort(const absl::Status& reason) override;
  absl::Status status() const override;
  std::chrono::nanoseconds call_time() const override {
    return base_->call_time() + sums_->wait_time();
  }

 private:
  Group* const base_;
  DeviceSums* const sums_;
};

}  // namespace tessera::kernels
