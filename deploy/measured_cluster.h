// A cluster description (proto/cluster.proto) as YAML, from what `tessera profile` measured.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"

namespace tessera::deploy {

// A description names a device by its machine and its place there, counted from 0: workers with
// these names can be described. InvalidArgument names the worker that has another name or whose
// neighbour is missing.
absl::Status CheckCanDescribe(const std::vector<std::string>& workers);

// `measured_on`: an ISO date; `measured_at`: the same with the time, for people. Every worker is a
// device with the memory that it registered. Neighbours of one machine that measured alike (rates
// within 20 %) are one kind, with the least of what they measured; others have a kind of their own.
// Between two machines there is one link for each direction. InvalidArgument as
// CheckCanDescribe, and for a rate that is not above 0.
absl::StatusOr<std::string> DescribeMeasured(const v1::ProfileClusterReply& measured,
                                             std::string_view measured_on,
                                             std::string_view measured_at);

}  // namespace tessera::deploy
