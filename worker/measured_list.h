// Measures the GPUs of a list: for `tessera plan init`, where the catalogue does not know a card.
//
// Thread rule: from the main thread, before others start; takes seconds for each GPU, which must
// not serve meanwhile. Units: bytes and floating-point operations per second.
#pragma once

#include "kernels/probe.h"
#include "proto/coordinator.pb.h"
#include "worker/worker_device.h"

namespace tessera::worker {

// Fills in the measured rates of every device without a problem. One that cannot be opened or
// measured has the reason as its problem afterwards.
void MeasureListed(const GpuOpener& open_gpu, const kernels::ProbeOptions& probe,
                   v1::DeviceList* list);

}  // namespace tessera::worker
