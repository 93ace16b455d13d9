#include "kernels/links/frame.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera::kernels {
namespace {

std::string FailureOf(const EncodedFrameHeader& bytes) {
  const auto header = ParseFrameHeader(bytes);
  return header.ok() ? "" : std::string(header.status().message());
}

TEST_CASE("a header is read as it was written") {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{4097}, kMaxPayloadBytes}) {
    for (const uint16_t type : {uint16_t{0}, uint16_t{0x1234}, uint16_t{0xffff}}) {
      const auto header = ParseFrameHeader(EncodeFrameHeader({type, bytes}));
      REQUIRE(header.ok());
      CHECK(header->type == type);
      CHECK(header->payload_bytes == bytes);
    }
  }
}

TEST_CASE("the bytes on the wire are fixed") {
  const EncodedFrameHeader bytes = EncodeFrameHeader({.type = 0x0201, .payload_bytes = 0x030405});
  const std::array<int, 16> expected = {'T', 'L', 'K', 1, 1, 2, 0, 0, 5, 4, 3, 0, 0, 0, 0, 0};
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::to_integer<int>(bytes[i]) == expected[i]);
  }
}

TEST_CASE("what is no header is refused by what is wrong") {
  const EncodedFrameHeader good = EncodeFrameHeader({.type = 7, .payload_bytes = 9});
  EncodedFrameHeader bytes = good;
  bytes[0] = std::byte{'G'};
  CHECK_THAT(FailureOf(bytes), Catch::Contains("not a frame"));
  bytes = good;
  bytes[3] = std::byte{2};
  CHECK_THAT(FailureOf(bytes), Catch::Contains("version 2"));
  bytes = good;
  bytes[7] = std::byte{1};
  CHECK_THAT(FailureOf(bytes), Catch::Contains("not zero"));
  CHECK_THAT(FailureOf(EncodeFrameHeader({.type = 7, .payload_bytes = kMaxPayloadBytes + 1})),
             Catch::Contains(std::to_string(kMaxPayloadBytes + 1)));
  CHECK_THAT(FailureOf(EncodeFrameHeader({.type = 7, .payload_bytes = -1})),
             Catch::Contains("at most"));
  CHECK_FALSE(ParseFrameHeader(absl::MakeConstSpan(good).subspan(1)).ok());
}

}  // namespace
}  // namespace tessera::kernels
