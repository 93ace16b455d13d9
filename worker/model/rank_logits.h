// The logits of a step on rank 0, where each rank of the stage has a part of the vocabulary.
//
// The group gathers them, which may be work of the hosts. Of two ranks whose devices sum
// (kernels/collectives/device_sums.h), a part that is small goes from device to device, in pieces
// that these take: then nothing of a step is a host's work.
//
// Thread rule: that of the stream. Borrows everything; memory must stay valid until the work ran.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "worker/model/model_buffers.h"

namespace tessera::worker {

// Enqueues it for the first `count` rows of buffers.logit_part; on rank 0 they end in
// buffers.logits. `widths`: ids that each rank's head has, in rank order; the same on all ranks.
absl::Status GatherLogits(const ModelBuffers& buffers, std::span<const int64_t> widths,
                          int64_t count, kernels::Ops& ops, kernels::Group& group,
                          kernels::Stream& stream);

}  // namespace tessera::worker
