#include "kernels/links/frame.h"

#include <algorithm>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr std::array<std::byte, 4> kMark = {std::byte{'T'}, std::byte{'L'}, std::byte{'K'},
                                            std::byte{1}};
// The first bytes of a TLS record that begins a connection (RFC 8446, 5.1).
constexpr std::byte kTlsHandshake{0x16}, kTlsMajorVersion{0x03};

uint64_t ReadLittleEndian(absl::Span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | std::to_integer<uint64_t>(bytes[i - 1]);
  }
  return value;
}

void WriteLittleEndian(uint64_t value, absl::Span<std::byte> bytes) {
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(value & 0xff);
    value >>= 8;
  }
}

}  // namespace

EncodedFrameHeader EncodeFrameHeader(const FrameHeader& header) {
  EncodedFrameHeader bytes = {};
  std::copy(kMark.begin(), kMark.end(), bytes.begin());
  WriteLittleEndian(header.type, absl::MakeSpan(bytes).subspan(4, 2));
  WriteLittleEndian(static_cast<uint64_t>(header.payload_bytes),
                    absl::MakeSpan(bytes).subspan(8, 8));
  return bytes;
}

absl::StatusOr<FrameHeader> ParseFrameHeader(absl::Span<const std::byte> bytes) {
  if (bytes.size() != kFrameHeaderBytes) {
    return absl::InvalidArgumentError(
        StrCat("a frame header has ", kFrameHeaderBytes, " bytes, not ", bytes.size()));
  }
  if (bytes[0] == kTlsHandshake && bytes[1] == kTlsMajorVersion) {
    return absl::InvalidArgumentError(
        "the other end speaks TLS: this one has no certificate of the cluster (--cluster-tls)");
  }
  if (!std::equal(kMark.begin(), kMark.end() - 1, bytes.begin())) {
    return absl::InvalidArgumentError("the received bytes are not a frame of a link");
  }
  if (bytes[3] != kMark[3]) {
    return absl::InvalidArgumentError(StrCat("frames of version ", std::to_integer<int>(bytes[3]),
                                             ", not ", std::to_integer<int>(kMark[3])));
  }
  if (ReadLittleEndian(bytes.subspan(6, 2)) != 0) {
    return absl::InvalidArgumentError("bytes 6 and 7 of a frame header are not zero");
  }
  const uint64_t payload_bytes = ReadLittleEndian(bytes.subspan(8, 8));
  if (payload_bytes > static_cast<uint64_t>(kMaxPayloadBytes)) {
    return absl::InvalidArgumentError(
        StrCat("a frame of ", payload_bytes, " bytes; at most ", kMaxPayloadBytes));
  }
  return FrameHeader{.type = static_cast<uint16_t>(ReadLittleEndian(bytes.subspan(4, 2))),
                     .payload_bytes = static_cast<int64_t>(payload_bytes)};
}

}  // namespace tessera::kernels
