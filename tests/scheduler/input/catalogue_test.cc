// The catalogue's figures, transcribed a second time: what data sheets print large is with
// sparsity, or with fp16 accumulation, twice what this project means by dense_flops_per_second.
#include "scheduler/input/catalogue.h"

#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace tessera::scheduler {
namespace {

// Largest fp16/bf16 figure with fp32 accumulation that the vendor prints, in TFLOPS, with 2:4
// sparsity where the card has it.
const std::map<std::string, double> kPrinted = {{"H100-SXM", 1979},
                                                {"H100-PCIe", 1513},
                                                {"H200-SXM", 1979},
                                                {"H20", 296},
                                                {"B200", 4500},
                                                {"A100-80", 624},
                                                {"A100-40", 624},
                                                {"A40", 299.4},
                                                {"A6000", 309.7},
                                                {"A5000", 222.2},
                                                {"A4000", 153.4},
                                                {"L40", 362.1},
                                                {"L40S", 724.1},
                                                {"L4", 242},
                                                {"A10", 250},
                                                {"A10G", 140},
                                                {"T4", 65},
                                                {"V100-16", 125},
                                                {"V100-32", 125},
                                                {"RTX3090", 142},
                                                {"RTX3090Ti", 160},
                                                {"RTX4090", 330.4},
                                                {"H100-NVL", 1671},
                                                {"H200-NVL", 1671},
                                                {"B300", 4500},
                                                {"RTX2080Ti", 53.8},
                                                {"RTX3060", 51},
                                                {"RTX3060-8", 51},
                                                {"RTX3060Ti", 64.8},
                                                {"RTX3070", 81.3},
                                                {"RTX3080", 119},
                                                {"RTX3080-20", 119},
                                                {"RTX3080-12", 122.6},
                                                {"RTX3080Ti", 136.4},
                                                {"RTX4060Ti-16", 88.2},
                                                {"RTX4070TiSuper", 176.4},
                                                {"RTX5060Ti", 94.8},
                                                {"RTX5060Ti-8", 94.8},
                                                {"RTX5070Ti", 175.8},
                                                {"RTX5080", 225.1},
                                                {"RTX5090", 419},
                                                {"RTX6000Ada", 728.5},
                                                {"RTXPRO6000", 1007.6},
                                                {"RTXPRO6000-MaxQ", 877.8},
                                                {"RTXPRO6000-Server", 960},
                                                {"GB10", 250},
                                                {"A2", 36},
                                                {"A16", 35.9},
                                                {"P100", 9.3},
                                                {"P40", 11.8},
                                                {"M3Ultra", 28.6},
                                                {"M4Max", 17.2}};

// No 2:4 sparsity: those before Ampere, and Apple's.
const std::set<std::string> kWithoutSparsity = {"T4",   "V100-16", "V100-32", "RTX2080Ti",
                                                "P100", "P40",     "M3Ultra", "M4Max"};

// What a chip can do by its parts: multiprocessors x clock x fp16 FLOP of one in a clock with fp32
// accumulation, and the memory's wires x bits per second of one.
struct Chip {
  const char* kind;
  int multiprocessors;
  double boost_mhz;
  int flops_per_clock;
  int bus_bits;
  double gbit_per_second;
};
constexpr Chip kChips[] = {{"RTX2080Ti", 68, 1545, 512, 352, 14},
                           {"RTX3060", 28, 1777, 512, 192, 15},
                           {"RTX3060-8", 28, 1777, 512, 128, 15},
                           {"RTX3060Ti", 38, 1665, 512, 256, 14},
                           {"RTX3070", 46, 1725, 512, 256, 14},
                           {"RTX3080", 68, 1710, 512, 320, 19},
                           {"RTX3080-12", 70, 1710, 512, 384, 19},
                           {"RTX3080-20", 68, 1710, 512, 320, 19},
                           {"RTX3080Ti", 80, 1665, 512, 384, 19},
                           {"RTX3090", 82, 1695, 512, 384, 19.5},
                           {"RTX3090Ti", 84, 1860, 512, 384, 21},
                           {"RTX4060Ti-16", 34, 2535, 512, 128, 18},
                           {"RTX4070TiSuper", 66, 2610, 512, 256, 21},
                           {"RTX4090", 128, 2520, 512, 384, 21},
                           {"RTX5060Ti", 36, 2572, 512, 128, 28},
                           {"RTX5060Ti-8", 36, 2572, 512, 128, 28},
                           {"RTX5070Ti", 70, 2452, 512, 256, 28},
                           {"RTX5080", 84, 2617, 512, 256, 30},
                           {"RTX5090", 170, 2407, 512, 512, 28},
                           {"A6000", 84, 1800, 1024, 384, 16},
                           {"RTX6000Ada", 142, 2505, 1024, 384, 20},
                           {"RTXPRO6000", 188, 2617, 1024, 512, 28},
                           {"RTXPRO6000-MaxQ", 188, 2280, 1024, 512, 28},
                           {"RTXPRO6000-Server", 188, 2493, 1024, 512, 25},
                           {"GB10", 48, 2550, 1024, 256, 8.533},
                           {"A2", 10, 1770, 1024, 128, 12.5},
                           {"A16", 10, 1755, 1024, 128, 12.5},
                           {"L4", 58, 2040, 1024, 192, 12.5},
                           {"T4", 40, 1590, 1024, 256, 10},
                           {"H100-NVL", 132, 1545, 4096, 6016, 5.237},
                           {"P40", 30, 1531, 256, 384, 7.2},
                           {"P100", 56, 1303, 128, 4096, 1.43}};

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
    const bool sparse = !kWithoutSparsity.contains(kind.name());
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
    // FLOPs per byte of memory bandwidth: 13 (P100) to 458 (GB10); a swapped unit is far outside.
    const double intensity =
        kind.dense_flops_per_second() / kind.memory_bandwidth_bytes_per_second();
    CHECK(intensity > 10);
    CHECK(intensity < 480);
    CHECK(kind.peer_link().bandwidth_bytes_per_second() < kind.memory_bandwidth_bytes_per_second());
    CHECK(kind.has_peer_link() == (kind.peer_link().latency_seconds() > 0));
    CHECK(kind.memory_bytes() >= int64_t{8} << 30);
    CHECK(kind.memory_bytes() <= int64_t{288} << 30);
    CHECK((kind.price_usd_per_hour() > 0) ==
          std::regex_search(kind.price_source(), std::regex("20[0-9]{2}-(0[1-9]|1[0-2])")));
  }
}

TEST_CASE("rates are those of the chip's parts") {
  const auto catalogue = BuiltInDevices();
  REQUIRE(catalogue.ok());
  for (const Chip& chip : kChips) {
    INFO(chip.kind);
    const v1::DeviceKind* kind = FindKind(*catalogue, chip.kind);
    REQUIRE(kind != nullptr);
    CHECK(kind->name() == chip.kind);
    CHECK(kind->dense_flops_per_second() ==
          Approx(chip.multiprocessors * chip.boost_mhz * 1e6 * chip.flops_per_clock).epsilon(0.01));
    CHECK(kind->memory_bandwidth_bytes_per_second() ==
          Approx(chip.bus_bits / 8.0 * chip.gbit_per_second * 1e9).epsilon(0.01));
  }
}

TEST_CASE("a name leads to one kind") {
  const auto catalogue = BuiltInDevices();
  REQUIRE(catalogue.ok());
  std::set<std::string> plain;
  for (const v1::DeviceKind& kind : catalogue->kinds()) {
    std::vector<std::string> names = {kind.name()};
    names.insert(names.end(), kind.aliases().begin(), kind.aliases().end());
    for (const std::string& name : names) {
      INFO(name);
      CHECK(FindKind(*catalogue, name)->name() == kind.name());
      CHECK(plain.insert(PlainKindName(name)).second);
    }
  }
  CHECK(FindKind(*catalogue, "rtx-3080 ti")->name() == "RTX3080Ti");
}

TEST_CASE("the catalogue says which kinds no worker runs on") {
  const auto catalogue = BuiltInDevices();
  REQUIRE(catalogue.ok());
  std::set<std::string> without;
  for (const v1::DeviceKind& kind : catalogue->kinds()) {
    if (!HasWorker(kind)) without.insert(kind.name());
  }
  CHECK(without == std::set<std::string>{"M3Ultra", "M4Max", "P100", "P40", "V100-16", "V100-32"});
  CHECK(HasWorker(v1::DeviceKind()));  // of which nothing is known
}

}  // namespace tessera::scheduler
