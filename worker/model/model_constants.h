// Constants of a forward pass that no checkpoint holds: frequencies of rotations, ones and numbers.
// Thread rule: one thread.
#pragma once

#include "absl/status/status.h"
#include "kernels/device.h"
#include "worker/model/model_buffers.h"
#include "worker/weights/model_options.h"

namespace tessera::worker {

// Fills those of `buffers`, and waits for the stream.
absl::Status FillConstants(const ModelOptions& options, const ModelBuffers& buffers,
                           kernels::Stream& stream);

}  // namespace tessera::worker
