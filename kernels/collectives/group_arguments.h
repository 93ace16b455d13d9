// What every group asks of its calls' arguments. Pure functions, thread-safe. Errors are
// INVALID_ARGUMENT and name the call.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

// Bytes of a dense view; 0 of an empty one.
inline int64_t DenseBytes(const TensorView& view) {
  return view.Elements() * SizeInBytes(view.dtype);
}

// Checks arguments of Group::AllReduceSum.
absl::Status CheckSum(const TensorView& values);
// Checks arguments of Group::Broadcast in a group of `size` ranks.
absl::Status CheckBroadcast(const TensorView& values, int root, int size);
// Checks arguments of Group::AllGather, and of Group::Gather; `receives`: this rank gets `out`.
absl::Status CheckGather(const char* call, const TensorView& in, const TensorView& out,
                         bool receives);
// Checks that `root` is a rank of the group.
absl::Status CheckRoot(const char* call, int root, int size);

}  // namespace tessera::kernels
