// How workers tell the coordinator that leads from one that has led before (coordinator/spare): each
// call that changes a worker, or opens a session to it, carries the caller's term.
// Thread rule: constants.
#pragma once

#include <string_view>

namespace tessera {

// gRPC metadata entry: a decimal number; none: 0. Higher ones lead.
inline constexpr std::string_view kLeaderTermKey = "tessera-leader-term";

}  // namespace tessera
