// A segment of int4 weights becomes the i8 segment that the kernels of either coding read. Compiled
// for AVX2 alone, so that the order of paths that this processor lacks is tested too.
#include "kernels/cpu/linear/nibble_panel.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "kernels/cpu/isa.h"

namespace tessera::kernels::cpu::linear {
namespace {

constexpr int64_t kSteps = 9;

struct Segment {
  uint32_t words[kPanelColumns];
  uint8_t nibbles[kSteps][kPanelColumns];  // by place
};

template <bool kSignMagnitude>
void CheckWidened() {
  std::mt19937 random(3);
  Segment segment;
  for (uint32_t& word : segment.words) word = (random() & ~0xfu) | (random() & 0xfu);
  for (auto& step : segment.nibbles) {
    for (uint8_t& byte : step) byte = static_cast<uint8_t>(random());
  }
  alignas(64) std::byte out[kScaleBytes + kSteps * kCodeStepBytes];
  WidenNibbles<kSignMagnitude>(out, reinterpret_cast<const std::byte*>(&segment), kSteps);
  for (int64_t c = 0; c < kPanelColumns; ++c) {
    uint32_t scale;
    std::memcpy(&scale, out + c * 4, 4);
    CHECK(scale == (segment.words[c] & ~0xfu));
    const int zero = static_cast<int>(segment.words[c] & 0xfu);
    const int64_t place = kSignMagnitude ? SignMagnitudeByte(c, 0) / 2 : c;
    for (int64_t step = 0; step < kSteps; ++step) {
      for (int64_t parity = 0; parity < 2; ++parity) {
        const int code = segment.nibbles[step][place] >> (4 * parity) & 0xf;
        const auto expected = static_cast<int8_t>(code - zero);
        const int64_t at =
            kSignMagnitude ? SignMagnitudeByte(c, parity) : parity * kPanelColumns + c;
        const auto byte = static_cast<uint8_t>(out[kScaleBytes + step * kCodeStepBytes + at]);
        CAPTURE(c, step, parity, code, zero);
        CHECK(byte ==
              (kSignMagnitude ? ToSignMagnitude(expected) : static_cast<uint8_t>(expected)));
      }
    }
  }
}

TEST_CASE("int4 segments widen to i8 in two's complement, and in sign and magnitude") {
  if (!DetectCpuFeatures().avx2) {
    WARN("left out: this processor lacks AVX2");
    return;
  }
  CheckWidened<false>();
  CheckWidened<true>();
}

}  // namespace
}  // namespace tessera::kernels::cpu::linear
