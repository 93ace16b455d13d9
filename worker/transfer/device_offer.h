// How the two ends of a KV connection agree on whether KV goes from device to device, and through
// which pair (worker/transfer/device_pairs.h), before any of it is sent.
//
// The sender offers a pair: one that it kept from an earlier connection, or a new one by its id.
// The receiver answers that it has that one too, that it joins, or why it does not; a pair that it
// does not have any more is made again. Who joins says how that went, the receiver first; where one
// of them could not, KV goes through the hosts.
//
// Thread rule: one thread, that of the connection's end. Blocks, in bounded time.
// Errors: the link's, which end the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/links/link.h"
#include "worker/transfer/device_pairs.h"

namespace tessera::worker {

struct OfferedDevice {
  std::shared_ptr<PairedDevice> device;  // null: KV goes through the hosts
  std::string why_not;                   // with null
};

// The sender's part, to that peer. `over`: the KV is not wanted any more.
absl::StatusOr<OfferedDevice> OfferDevice(kernels::Link& link, DevicePairs& pairs, uint64_t peer,
                                          const std::function<bool()>& over);
// The receiver's: `offer` is the payload of a kDeviceOffer that came from that peer; `pairs` is
// null where its device joins none. Null: KV goes through the hosts, or another offer follows.
absl::StatusOr<std::shared_ptr<PairedDevice>> AnswerDeviceOffer(kernels::Link& link,
                                                                DevicePairs* pairs, uint64_t peer,
                                                                const std::string& offer);

}  // namespace tessera::worker
