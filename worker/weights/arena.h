// Many pieces of device memory in one allocation: sizes are collected first, so that the sum is
// known, and refused, before anything is read into it.
//
// Thread rule: one thread. The pointers given to Reserve must stay valid until Allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tessera::worker {

class Arena {
 public:
  // *data is set by Allocate, 64-byte aligned.
  void Reserve(std::byte** data, int64_t bytes);
  // For a view whose shape and type are set already.
  void Reserve(kernels::TensorView* view);

  int64_t bytes() const { return bytes_; }
  // ResourceExhausted, from the device, where the memory is not there.
  absl::StatusOr<kernels::Buffer> Allocate(kernels::Device& device) const;

 private:
  struct Piece {
    std::byte** data;
    int64_t offset;
  };
  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
};

}  // namespace tessera::worker
