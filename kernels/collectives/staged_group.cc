#include "kernels/collectives/staged_group.h"

#include <utility>

#include "kernels/collectives/group_arguments.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int kEveryRank = -1;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

absl::Status ToHost(const TensorView& staged, const TensorView& view, Stream& stream) {
  return stream.CopyToHost(staged.data, view.data, DenseBytes(view));
}

absl::Status ToDevice(const TensorView& view, const TensorView& staged, Stream& stream) {
  return stream.CopyToDevice(view.data, staged.data, DenseBytes(view));
}

}  // namespace

int64_t StagedGroup::StagingBytes(int64_t in_bytes, int64_t out_bytes) {
  return Aligned(in_bytes) + Aligned(out_bytes);
}

absl::StatusOr<std::unique_ptr<StagedGroup>> StagedGroup::Create(Group* host, Device& device,
                                                                 int64_t staging_bytes) {
  auto staging = device.AllocateHost(staging_bytes);
  if (!staging.ok()) return staging.status();
  return std::unique_ptr<StagedGroup>(new StagedGroup(host, *std::move(staging)));
}

std::string StagedGroup::transport() const {
  return StrCat("staged through ", staging_.size_bytes(), " bytes of host memory, then ",
                host_->transport());
}

absl::Status StagedGroup::Stage(const char* call, const TensorView& in, const TensorView& out,
                                TensorView* staged_in, TensorView* staged_out) const {
  const int64_t in_bytes = DenseBytes(in), out_bytes = DenseBytes(out);
  if (StagingBytes(in_bytes, out_bytes) > staging_.size_bytes()) {
    return absl::InvalidArgumentError(StrCat(call, ": ", in_bytes + out_bytes,
                                             " bytes; the staging of this group has room for ",
                                             staging_.size_bytes()));
  }
  *staged_in = in;
  *staged_out = out;
  if (in_bytes > 0) staged_in->data = staging_.data();
  if (out_bytes > 0) staged_out->data = staging_.data() + Aligned(in_bytes);
  return absl::OkStatus();
}

absl::Status StagedGroup::AllReduceSum(const TensorView& values, Stream& stream) {
  TensorView none, staged;
  absl::Status status = CheckSum(values);
  if (status.ok()) status = Stage("AllReduceSum", {}, values, &none, &staged);
  if (status.ok()) status = ToHost(staged, values, stream);
  if (status.ok()) status = host_->AllReduceSum(staged, stream);
  return status.ok() ? ToDevice(values, staged, stream) : status;
}

absl::Status StagedGroup::Broadcast(const TensorView& values, int root, Stream& stream) {
  TensorView none, staged;
  const bool sends = root == rank();
  absl::Status status = CheckBroadcast(values, root, size());
  if (status.ok()) status = Stage("Broadcast", {}, values, &none, &staged);
  if (status.ok() && sends) status = ToHost(staged, values, stream);
  if (status.ok()) status = host_->Broadcast(staged, root, stream);
  return status.ok() && !sends ? ToDevice(values, staged, stream) : status;
}

absl::Status StagedGroup::AllGather(const TensorView& in, const TensorView& out, Stream& stream) {
  return EnqueueGather("AllGather", in, out, kEveryRank, stream);
}

absl::Status StagedGroup::Gather(const TensorView& in, const TensorView& out, int root,
                                 Stream& stream) {
  if (absl::Status status = CheckRoot("Gather", root, size()); !status.ok()) return status;
  return EnqueueGather("Gather", in, root == rank() ? out : TensorView(), root, stream);
}

absl::Status StagedGroup::EnqueueGather(const char* call, const TensorView& in,
                                        const TensorView& out, int root, Stream& stream) {
  TensorView staged_in, staged_out;
  const bool everywhere = root == kEveryRank;
  absl::Status status = CheckGather(call, in, out, everywhere || root == rank());
  if (status.ok()) status = Stage(call, in, out, &staged_in, &staged_out);
  if (status.ok()) status = ToHost(staged_in, in, stream);
  if (status.ok()) {
    status = everywhere ? host_->AllGather(staged_in, staged_out, stream)
                        : host_->Gather(staged_in, staged_out, root, stream);
  }
  return status.ok() ? ToDevice(out, staged_out, stream) : status;
}

}  // namespace tessera::kernels
