// How workers tell the coordinator that leads from one that has led before (coordinator/spare):
// each call that changes a worker, or opens a session to it, carries the caller's term; and a
// worker's own calls carry the term that it obeys, so that one who led before sends it on. Thread
// rule: pure functions.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

namespace tessera {

// gRPC metadata entry: a decimal number; none: 0. Higher ones lead.
inline constexpr std::string_view kLeaderTermKey = "tessera-leader-term";

// The term in a call's metadata, a multimap of gRPC's string_ref; 0: none, or no number.
template <typename Metadata>
uint64_t LeaderTermIn(const Metadata& metadata) {
  uint64_t term = 0;
  const auto found = metadata.find({kLeaderTermKey.data(), kLeaderTermKey.size()});
  if (found != metadata.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), term);
  return term;
}

}  // namespace tessera
