#include "worker/weights/arena.h"

namespace tessera::worker {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

void Arena::Reserve(std::byte** data, int64_t bytes) {
  pieces_.push_back({data, bytes_});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void Arena::Reserve(kernels::TensorView* view) {
  Reserve(&view->data, view->Elements() * kernels::SizeInBytes(view->dtype));
}

absl::StatusOr<kernels::Buffer> Arena::Allocate(kernels::Device& device) const {
  absl::StatusOr<kernels::Buffer> buffer = device.Allocate(bytes_);
  if (!buffer.ok()) return buffer.status();
  for (const Piece& piece : pieces_) *piece.data = buffer->data() + piece.offset;
  return buffer;
}

}  // namespace tessera::worker
