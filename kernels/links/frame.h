// The header of a frame, which is all that a link itself says on the wire: a mark with the version,
// the type of the payload and its length. What the payload means is the matter of its type's owner.
//
//   bytes 0-3   'T' 'L' 'K' and the version, 1
//   bytes 4-5   type, little endian
//   bytes 6-7   zero
//   bytes 8-15  payload bytes, little endian, at most kMaxPayloadBytes
//
// Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::kernels {

inline constexpr int64_t kFrameHeaderBytes = 16;
inline constexpr int64_t kMaxPayloadBytes = int64_t{1} << 30;

// Types that kernels/ uses. Owners of links number theirs from kFirstOwnerFrame on.
inline constexpr uint16_t kHelloFrame = 1;
inline constexpr uint16_t kProofFrame = 2;
inline constexpr uint16_t kAcceptFrame = 3;
inline constexpr uint16_t kReadyFrame = 4;
inline constexpr uint16_t kRefusalFrame = 5;
inline constexpr uint16_t kPingFrame = 6;
inline constexpr uint16_t kDescriptorFrame = 7;
inline constexpr uint16_t kReduceFrame = 17;
inline constexpr uint16_t kSumFrame = 18;
inline constexpr uint16_t kBroadcastFrame = 19;
inline constexpr uint16_t kGatherFrame = 20;
inline constexpr uint16_t kFirstOwnerFrame = 64;

struct FrameHeader {
  uint16_t type = 0;
  int64_t payload_bytes = 0;
};

using EncodedFrameHeader = std::array<std::byte, kFrameHeaderBytes>;

EncodedFrameHeader EncodeFrameHeader(const FrameHeader& header);

// InvalidArgument says what is wrong: not kFrameHeaderBytes, another mark or version, a payload
// above the limit.
absl::StatusOr<FrameHeader> ParseFrameHeader(absl::Span<const std::byte> bytes);

}  // namespace tessera::kernels
