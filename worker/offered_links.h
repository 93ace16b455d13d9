// What a worker lets others do with its device's memory: share a replica with it, and send keys and
// values to it or take them from it.
//
// Thread rule: called once, from the main thread. What is borrowed must outlive every engine that
// `setup` makes.
#pragma once

#include "worker/engine/engine_setup.h"
#include "worker/formation/link_hub.h"
#include "worker/transfer/kv_link_port.h"
#include "worker/worker_device.h"

namespace tessera::worker {

// No keys and values where the host does not read the device's memory: such a worker refuses, by
// name, a request whose keys and values come or go.
void OfferLinks(const WorkerDevice& worker, LinkHub* links, const KvLinkOptions& kv,
                SetupOptions* setup);

}  // namespace tessera::worker
