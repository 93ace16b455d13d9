// Tensors between two processes: sent over a link, enqueued on a stream.
//
// Thread rule: as the stream; a link carries one tensor at a time in each direction. Link and
// memory must outlive what is enqueued.
// Errors: InvalidArgument (a tensor that is not dense or too large) at once; the link's failures
// and a size that differs from the sender's (FAILED_PRECONDITION) on the stream. Waits are bounded
// by timeout_seconds.
#pragma once

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/links/link.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

// values [...], dense. Done once the link has taken the bytes.
absl::Status SendTensor(const TensorView& values, Link& link, double timeout_seconds,
                        Stream& stream);
// values [...], dense, as large as what the peer sends.
absl::Status ReceiveTensor(const TensorView& values, Link& link, double timeout_seconds,
                           Stream& stream);

}  // namespace tessera::kernels
