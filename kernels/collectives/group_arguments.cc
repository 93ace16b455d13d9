#include "kernels/collectives/group_arguments.h"

#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

absl::Status CheckDense(const char* call, const TensorView& view) {
  if (view.Elements() == 0 || (view.IsDense() && view.data != nullptr)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(call, ": the tensor must be dense"));
}

}  // namespace

absl::Status CheckRoot(const char* call, int root, int size) {
  if (root >= 0 && root < size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(call, ": root ", root, " in a group of ", size, " ranks"));
}

absl::Status CheckSum(const TensorView& values) {
  if (absl::Status status = CheckDense("AllReduceSum", values); !status.ok()) return status;
  if (values.dtype == DType::kF32) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("AllReduceSum: the values must be float32, not ", Name(values.dtype)));
}

absl::Status CheckBroadcast(const TensorView& values, int root, int size) {
  absl::Status status = CheckDense("Broadcast", values);
  return status.ok() ? CheckRoot("Broadcast", root, size) : status;
}

absl::Status CheckGather(const char* call, const TensorView& in, const TensorView& out,
                         bool receives) {
  if (absl::Status status = CheckDense(call, in); !status.ok()) return status;
  if (absl::Status status = CheckDense(call, out); !status.ok()) return status;
  if (!receives || DenseBytes(out) >= DenseBytes(in)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(call, ": ", DenseBytes(in), " bytes do not fit into ", DenseBytes(out)));
}

}  // namespace tessera::kernels
