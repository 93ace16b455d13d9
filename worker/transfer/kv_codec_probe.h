// How fast a worker writes keys and values for the wire and reads them back.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/probe.h"
#include "worker/transfer/kv_coder.h"

namespace tessera::worker {

// Bytes of raw bfloat16 KV per second that one thread writes as int8, or reads: the slower of both,
// the best of options.runs, from and to a pool on the device of at most 4 MiB and
// options.buffer_bytes. Takes some 20 ms of a CPU. What a codec must beat: raw KV costs two copies.
absl::StatusOr<double> ProbeKvCodecRate(kernels::Device& device, KvCoder& coder,
                                        const kernels::ProbeOptions& options);

}  // namespace tessera::worker
