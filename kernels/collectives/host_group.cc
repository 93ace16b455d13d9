#include "kernels/collectives/host_group.h"

#include <algorithm>

#include "kernels/collectives/group_arguments.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

absl::Span<std::byte> BytesOf(const TensorView& view) {
  return {view.data, static_cast<size_t>(DenseBytes(view))};
}

}  // namespace

absl::Status HostGroup::AllReduceSum(const TensorView& values, Stream& stream) {
  if (absl::Status status = CheckSum(values); !status.ok()) return status;
  if (size_ == 1 || values.Elements() == 0) return absl::OkStatus();
  return EnqueueHost(
      stream, +[](const Call& call) { return call.group->Run(call); },
      Call{.group = this, .kind = Kind::kSum, .out = values});
}

absl::Status HostGroup::Broadcast(const TensorView& values, int root, Stream& stream) {
  if (absl::Status status = CheckBroadcast(values, root, size_); !status.ok()) return status;
  if (size_ == 1 || values.Elements() == 0) return absl::OkStatus();
  return EnqueueHost(
      stream, +[](const Call& call) { return call.group->Run(call); },
      Call{.group = this, .kind = Kind::kBroadcast, .root = root, .out = values});
}

absl::Status HostGroup::AllGather(const TensorView& in, const TensorView& out, Stream& stream) {
  return EnqueueGather("AllGather", in, out, kEveryRank, stream);
}

absl::Status HostGroup::Gather(const TensorView& in, const TensorView& out, int root,
                               Stream& stream) {
  if (absl::Status status = CheckRoot("Gather", root, size_); !status.ok()) return status;
  return EnqueueGather("Gather", in, root == rank_ ? out : TensorView(), root, stream);
}

absl::Status HostGroup::EnqueueGather(const char* name, const TensorView& in, const TensorView& out,
                                      int root, Stream& stream) {
  absl::Status status = CheckGather(name, in, out, Receives(root));
  if (!status.ok()) return status;
  return EnqueueHost(
      stream, +[](const Call& call) { return call.group->Run(call); },
      Call{.group = this, .kind = Kind::kGather, .root = root, .in = in, .out = out});
}

absl::Status HostGroup::Run(const Call& call) {
  if (failed()) return status();
  const auto began = std::chrono::steady_clock::now();
  absl::Status result = Dispatch(call);
  call_nanoseconds_.fetch_add(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count(),
      std::memory_order_relaxed);
  if (result.ok()) return result;
  Abort(result);
  return status();
}

absl::Status HostGroup::Dispatch(const Call& call) {
  switch (call.kind) {
    case Kind::kSum:
      return SumNow({call.out.As<float>(), static_cast<size_t>(call.out.Elements())});
    case Kind::kBroadcast: return BroadcastNow(BytesOf(call.out), call.root);
    case Kind::kGather: break;
  }
  const absl::Span<const std::byte> in = BytesOf(call.in);
  const absl::Span<std::byte> out = BytesOf(call.out);
  if (size_ > 1 || takes_device_memory()) return GatherNow(in, out, call.root);
  if (in.size() != out.size()) {
    return absl::FailedPreconditionError(
        StrCat("gather: ", in.size(), " bytes where ", out.size(), " were expected"));
  }
  std::copy(in.begin(), in.end(), out.begin());
  return absl::OkStatus();
}

void HostGroup::Abort(const absl::Status& reason) {
  {
    const std::lock_guard lock(status_mutex_);
    if (!status_.ok()) return;
    status_ = reason.ok() ? absl::CancelledError("the group was ended") : reason;
    failed_.store(true, std::memory_order_release);
  }
  WakeAll(reason);
}

absl::Status HostGroup::status() const {
  const std::lock_guard lock(status_mutex_);
  return status_;
}

}  // namespace tessera::kernels
