#include "worker/model/rank_logits.h"

#include <algorithm>

#include "kernels/graph_stream.h"

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::TensorView;

constexpr int64_t kElementBytes = sizeof(float);
// A part goes from device to device in so many pieces: larger ones are copied by the hosts.
constexpr int64_t kMaxPieces = 4;

TensorView Elements(const TensorView& of, int64_t begin, int64_t count) {
  return TensorView(of.data + begin * kElementBytes, DType::kF32, {count});
}

// The largest call that the ranks' devices make by themselves; 0: they make none.
int64_t MaxElements(kernels::Stream& stream) {
  const kernels::GraphStream* const repeating = stream.repeating();
  return repeating == nullptr ? 0 : repeating->group_call_bytes() / kElementBytes;
}

// Rank 1's part, `elements` at `part`, from there, or to there on rank 0.
absl::Status SendToRank0(const TensorView& part, int64_t elements, int64_t piece,
                         kernels::Group& group, kernels::Stream& stream) {
  absl::Status status;
  for (int64_t at = 0; status.ok() && at < elements; at += piece) {
    status = group.Broadcast(Elements(part, at, std::min(piece, elements - at)), 1, stream);
  }
  return status;
}

}  // namespace

absl::Status GatherLogits(const ModelBuffers& buffers, std::span<const int64_t> widths,
                          int64_t count, kernels::Ops& ops, kernels::Group& group,
                          kernels::Stream& stream) {
  const TensorView own = buffers.logit_part.Rows(count), all = buffers.logit_parts;
  const int64_t piece = MaxElements(stream);
  const bool on_devices = widths.size() == 2 && count * widths[1] <= kMaxPieces * piece;
  const bool is_first = group.rank() == 0;
  absl::Status status;
  if (on_devices) {
    const TensorView part =
        is_first ? Elements(all, count * widths[0], count * widths[1]) : buffers.logit_part;
    status = SendToRank0(part, count * widths[1], piece, group, stream);
  } else {
    const TensorView out =
        is_first ? TensorView(all.data, DType::kF32, {1, count * buffers.logits.RowElements()})
                 : TensorView();
    status = group.Gather(own, out, 0, stream);
  }
  if (!is_first) return status;
  int64_t first = 0;
  for (size_t rank = 0; status.ok() && rank < widths.size(); ++rank) {
    const int64_t width = widths[rank];
    const TensorView in = rank == 0 ? own
                                    : TensorView(all.data + count * first * kElementBytes,
                                                 DType::kF32, {count, width});
    TensorView out(buffers.logits.data + first * kElementBytes, DType::kF32, {count, width});
    out.row_stride = buffers.logits.RowElements();
    status =
        ops.GatherRows({.out = out, .in = in, .rows = buffers.row_numbers.Rows(count)}, stream);
    first += width;
  }
  return status;
}

}  // namespace tessera::worker
