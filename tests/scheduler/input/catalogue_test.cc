// The catalogue's figures, transcribed a second time: what data sheets print large is with
// sparsity, or with fp16 accumulation, twice what this project means by dense_flops_per_second.
#include "scheduler/input/catalogue.h"

#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <string>

namespace tessera::scheduler {
namespace {

// Largest fp16/bf16 tensor figure with fp32 accumulation that the vendor prints, in TFLOPS, with
// 2:4 sparsity where the card has it (every one but V100 and T4).
const std::map<std::string, double> kPrinted = {
    {"H100-SXM", 1979}, {"H100-PCIe", 1513}, {"H200-SXM", 1979}, {"H20", 296},     {"B200", 4500},
    {"A100-80", 624},   {"A100-40", 624},    {"A40", 299.4},     {"A6000", 309.7}, {"A5000", 222.2},
    {"A4000", 153.4},   {"L40", 362.1},      {"L40S", 724.1},    {"L4", 242},      {"A10", 250},
    {"A10G", 140},      {"T4", 65},          {"V100-16", 125},   {"V100-32", 125}, {"RTX3090", 142},
    {"RTX3090Ti", 160}, {"RTX4090", 330.4}};

bool IsIsoDate(const std::string& text) {
  static const std::regex iso("20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])");
  return std::regex_match(text, iso);
}

}  // namespace

TEST_CASE("peaks are dense, with fp32 accumulation") {
  const auto catalogue = BuiltInDevices();
  REQUIRE(catalogue.status().message() == "");
  CHECK(catalogue->kinds_size() == static_cast<int>(kPrinted.size()));
  for (const v1::DeviceKind& kind : catalogue->kinds()) {
    INFO(kind.name());
    REQUIRE(kPrinted.contains(kind.name()));
    const bool sparse = kind.name() != "T4" && !kind.name().starts_with("V100");
    CHECK(kind.dense_flops_per_second() ==
          Approx(kPrinted.at(kind.name()) * 1e12 / (sparse ? 2 : 1)).epsilon(0.003));
  }
}

TEST_CASE(
    "every figure says where it is from and when it was compared, or that it is an estimate") {
  const auto catalogue = BuiltInDevices();
  REQUIRE(catalogue.ok());
  for (const v1::DeviceKind& kind : catalogue->kinds()) {
    INFO(kind.name());
    CHECK(kind.source().size() > 10);
    CHECK(IsIsoDate(kind.source_date()));
    const std::string& fitted = kind.efficiency_source();
    CHECK((fitted.empty() || fitted.starts_with("fitted to ") || fitted.starts_with("measured ")));
    // FLOPs per byte of memory bandwidth: 37 (H20) to 419 (L40S); a swapped unit is far outside.
    const double intensity =
        kind.dense_flops_per_second() / kind.memory_bandwidth_bytes_per_second();
    CHECK(intensity > 30);
    CHECK(intensity < 450);
    CHECK(kind.peer_link().bandwidth_bytes_per_second() < kind.memory_bandwidth_bytes_per_second());
    CHECK(kind.peer_link().latency_seconds() > 0);
    CHECK((kind.price_usd_per_hour() > 0) ==
          std::regex_search(kind.price_source(), std::regex("20[0-9]{2}-(0[1-9]|1[0-2])")));
  }
}

}  // namespace tessera::scheduler
