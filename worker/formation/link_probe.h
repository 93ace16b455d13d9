// Measures a link between two workers: one side measures, the other echoes.
//
// Every exchange is one frame to the echo and one back, so that a single clock times both. Latency
// is half of the median round trip of 4 KiB frames. Bandwidth is that of large frames one way and
// 4 KiB back, without the round trip of 4 KiB: the median of the frames of the largest size, which
// doubles from 64 KiB to 4 MiB as long as the link is quick enough.
//
// Thread rule: pure functions over the link, which nobody else uses meanwhile; they block.
// Bounds: both end within their `seconds`, whatever the other side does.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link.h"

namespace tessera::worker {

// The time for one pair of workers, from connecting to the last frame.
inline constexpr double kProbeSeconds = 2;

struct LinkRates {
  double latency_seconds = 0;  // of 4 KiB, one way
  double sent_bytes_per_second = 0;
  double received_bytes_per_second = 0;
};

// DEADLINE_EXCEEDED where the other side does not answer in time; else the link's errors. Takes
// about half of kProbeSeconds on a link that is quick.
absl::StatusOr<LinkRates> MeasureLink(kernels::Link& link, double seconds);

// Answers until the measuring side closes the link (OK) or the time is over.
absl::Status EchoProbe(kernels::Link& link, double seconds);

}  // namespace tessera::worker
