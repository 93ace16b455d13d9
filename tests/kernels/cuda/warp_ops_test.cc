// Each instruction of kernels/cuda/warp_ops.h against what it means. Which element a register holds
// comes from tests/golden/cuda/fragments.txt, which was made from NVIDIA's CuTe.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/half_floats.h"
#include "tests/kernels/cuda/test_device.h"
#include "tests/kernels/cuda/warp_probe.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using Place = std::vector<int>;  // row, column; or matrix, row, column

// [lane][value] of a table of fragments.txt.
std::vector<std::vector<Place>> ReadTable(const std::string& name) {
  std::ifstream file("tests/golden/cuda/fragments.txt");
  std::vector<std::vector<Place>> lanes(32);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string table, word;
    int lane = 0;
    if (!(words >> table >> lane) || table != name) continue;
    while (words >> word) {
      Place place(1);
      for (const char c : word) {
        if (c == ':') {
          place.push_back(0);
        } else {
          place.back() = place.back() * 10 + (c - '0');
        }
      }
      lanes.at(lane).push_back(place);
    }
  }
  REQUIRE_FALSE(lanes[31].empty());
  return lanes;
}

// Small whole numbers: sums are exact in any order.
float A(int row, int k) { return static_cast<float>((row * 5 + k * 3) % 13 - 6); }
float B(int k, int column) { return static_cast<float>((k * 7 + column * 2) % 11 - 5); }
float C(int row, int column) { return static_cast<float>(row * 100 + column); }

template <typename T>
std::vector<uint32_t> Registers(const std::string& table, float (*element)(int, int)) {
  std::vector<uint32_t> registers;
  for (const auto& lane : ReadTable(table)) {
    for (size_t v = 0; v < lane.size(); v += 2) {
      const uint32_t low = FromFloat<T>(element(lane[v][0], lane[v][1])).bits;
      const uint32_t high = FromFloat<T>(element(lane[v + 1][0], lane[v + 1][1])).bits;
      registers.push_back(low | high << 16);
    }
  }
  return registers;
}

template <typename T>
void CheckProduct(Product product, const std::string& table, int depth) {
  const std::vector<uint32_t> a = Registers<T>(table + "_a", &A);
  const std::vector<uint32_t> b = Registers<T>(table + "_b", &B);
  const auto places = ReadTable(table + "_c");
  std::vector<float> c, expected;
  for (const auto& lane : places) {
    REQUIRE(lane.size() == 4);
    for (const Place& place : lane) {
      float sum = C(place[0], place[1]);
      c.push_back(sum);
      for (int k = 0; k < depth; ++k) sum += A(place[0], k) * B(k, place[1]);
      expected.push_back(sum);
    }
  }
  CHECK(RunEverySchedule<float>([&](TestDevice& device) {
          const ProductParams params = {device.Upload(a), device.Upload(b), device.Upload(c)};
          device.Check(LaunchProduct(product, params, device.stream()));
          return device.Download(params.c, 128);
        }) == expected);
}

TEST_CASE("products of matrices, with the fragments of CuTe") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  CheckProduct<Float16>(Product::k16x8x16F16, "mma_16x8x16_f16", 16);
  CheckProduct<BFloat16>(Product::k16x8x16BF16, "mma_16x8x16_bf16", 16);
  CheckProduct<Float16>(Product::k16x8x8F16, "mma_16x8x8_f16", 8);
  CheckProduct<BFloat16>(Product::k16x8x8BF16, "mma_16x8x8_bf16", 8);
}

TEST_CASE("loads of matrices, with the fragments of CuTe") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  std::vector<uint16_t> matrices(256);
  for (int i = 0; i < 256; ++i) matrices[i] = static_cast<uint16_t>(1000 + i * 7);
  for (const bool transposed : {false, true}) {
    std::vector<uint32_t> expected;
    for (const auto& lane : ReadTable(transposed ? "load_matrices_transposed" : "load_matrices")) {
      const auto element = [&](const Place& p) -> uint32_t {
        return matrices[p[0] * 64 + p[1] * 8 + p[2]];
      };
      for (size_t v = 0; v < 8; v += 2) {
        expected.push_back(element(lane[v]) | element(lane[v + 1]) << 16);
      }
    }
    CHECK(RunEverySchedule<uint32_t>([&](TestDevice& device) {
            auto* registers = device.Allocate<uint32_t>(128);
            device.Check(
                LaunchLoad({device.Upload(matrices), registers, transposed}, device.stream()));
            return device.Download(registers, 128);
          }) == expected);
  }
}

TEST_CASE("asynchronous copies, with zeros for what is not valid") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  std::vector<uint32_t> in(256), expected(256);
  for (uint32_t i = 0; i < 256; ++i) {
    in[i] = i * 3 + 1;
    expected[i] = i < 128 || i / 4 % 2 == 0 ? in[i] : 0;
  }
  CHECK(RunEverySchedule<uint32_t>([&](TestDevice& device) {
          auto* out = device.Allocate<uint32_t>(256);
          device.Check(LaunchCopy({device.Upload(in), out}, device.stream()));
          return device.Download(out, 256);
        }) == expected);
}

TEST_CASE("named barriers hand values from warp to warp") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const std::vector<float> in = {1, 2, 4, 8, 16, 32, 64};
  CHECK(RunEverySchedule<float>([&](TestDevice& device) {
          auto* out = device.Allocate<float>(64);
          device.Check(LaunchBarrier({device.Upload(in), out, 7}, device.stream()));
          return device.Download(out, 64);
        }) == std::vector<float>(64, 127.0f));
}

// Powers first, as bits; then both kinds of pairs.
std::vector<uint32_t> Numbers(const std::vector<float>& in) {
  return RunEverySchedule<uint32_t>([&](TestDevice& device) {
    auto* out = device.Allocate<uint32_t>(96);
    device.Check(LaunchNumbers(
        {device.Upload(in), reinterpret_cast<float*>(out), out + 32, out + 64}, device.stream()));
    return device.Download(out, 96);
  });
}

TEST_CASE("powers of two, within 2^-22 of them") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  for (const float first : {-126.0f, -40.0f, -8.0f, -1.0f, 0.0f, 90.0f}) {
    std::vector<float> in(32);
    for (int i = 0; i < 32; ++i) in[i] = first + static_cast<float>(i) * 0.99f;
    const std::vector<uint32_t> out = Numbers(in);
    for (int i = 0; i < 32; ++i) {
      CAPTURE(in[i]);
      const double expected = std::exp2(double{in[i]});
      CHECK(std::fabs(FloatFromBits(out[i]) - expected) <= expected * 0x1p-22);
    }
  }
  std::vector<float> special(32, 0.0f);
  special[0] = -INFINITY;
  special[1] = -1e30f;
  special[2] = -127.5f;
  special[3] = 1e30f;
  special[4] = NAN;
  const std::vector<uint32_t> out = Numbers(special);
  CHECK(std::vector<float>{FloatFromBits(out[0]), FloatFromBits(out[1]), FloatFromBits(out[2]),
                           FloatFromBits(out[3]),
                           FloatFromBits(out[5])} == std::vector<float>{0, 0, 0, INFINITY, 1});
  CHECK(std::isnan(FloatFromBits(out[4])));
}

TEST_CASE("pairs of halves, rounded to nearest even, the first one low") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  // Ties of both types, what is subnormal in f16 or beyond its largest, and numbers without
  // meaning.
  std::vector<float> in = {0.0f,     -0.0f,    1.0f,    1.00390625f, 1.01171875f, 1.00048828125f,
                           65504.f,  65519.f,  65520.f, -1e6f,       0x1p-24f,    0x1.8p-24f,
                           0x1p-25f, 0x1p-26f, 3.3e38f, INFINITY,    -INFINITY,   1e-30f};
  for (int i = 0; in.size() < 32; ++i) in.push_back(std::ldexp(1.2345678f + 0.7f * i, i - 8));
  const std::vector<uint32_t> out = Numbers(in);
  for (int i = 0; i < 32; ++i) {
    CAPTURE(in[i], in[31 - i]);
    const auto bf16 = [](float x) -> uint32_t { return FromFloat<BFloat16>(x).bits; };
    const auto f16 = [](float x) -> uint32_t {
      return FromFloat<Float16>(std::clamp(x, -65504.0f, 65504.0f)).bits;
    };
    CHECK(out[32 + i] == (bf16(in[i]) | bf16(in[31 - i]) << 16));
    CHECK(out[64 + i] == (f16(in[i]) | f16(in[31 - i]) << 16));
  }
}

TEST_CASE("sums of pairs, rounded to nearest even, and bits under a mask") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  const auto check = [](auto type, bool bf16) {
    using T = decltype(type);
    std::vector<uint32_t> a(32), b(32), expected(64);
    for (int i = 0; i < 32; ++i) {
      // Whole numbers that cancel, a tie of each type, and fractions.
      const float low = i == 0 ? (bf16 ? 256.0f : 2048.0f) : 1000.0f + 8 * i, high = 0.3f * i;
      const float to_low = i == 0 ? 1.0f : -1024.0f, to_high = 1.7f - i;
      const auto bits = [](float x) -> uint32_t { return FromFloat<T>(x).bits; };
      const auto sum = [&](float x, float y) {
        return bits(ToFloat(FromFloat<T>(x)) + ToFloat(FromFloat<T>(y)));
      };
      a[i] = bits(low) | bits(high) << 16;
      b[i] = bits(to_low) | bits(to_high) << 16;
      expected[i] = sum(low, to_low) | sum(high, to_high) << 16;
      expected[32 + i] = (a[i] & 0x0ff00ff0u) | b[i];
    }
    CHECK(RunEverySchedule<uint32_t>([&](TestDevice& device) {
            auto* out = device.Allocate<uint32_t>(64);
            device.Check(LaunchPairSums({device.Upload(a), device.Upload(b), out, out + 32, bf16},
                                        device.stream()));
            return device.Download(out, 64);
          }) == expected);
  };
  check(Float16{}, false);
  check(BFloat16{}, true);
}

TEST_CASE("shuffles, votes and bytes") {
  TESSERA_SKIP_WITHOUT_DEVICE();
  std::vector<uint32_t> expected(8 * 32);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    expected[lane] = lane ^ 5;
    expected[32 + lane] = lane / 8 * 8 + 3;
    expected[64 + lane] = lane >= 2 ? lane - 2 : lane;
    expected[96 + lane] = lane % 16 < 14 ? lane + 2 : lane;
    expected[128 + lane] = 0x55555555u;
    expected[160 + lane] = 1;
    expected[192 + lane] = 0;
    expected[224 + lane] = 0x43000043u | lane << 8 | (lane + 64) << 16;
  }
  CHECK(RunEverySchedule<uint32_t>([&](TestDevice& device) {
          auto* out = device.Allocate<uint32_t>(8 * 32);
          device.Check(LaunchExchange({out}, device.stream()));
          return device.Download(out, 8 * 32);
        }) == expected);
}

}  // namespace
}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
