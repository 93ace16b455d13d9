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
                                                {"RTX2060", 25.8},
                                                {"RTX2060-12", 28.7},
                                                {"RTX2060Super", 28.7},
                                                {"RTX2070", 29.9},
                                                {"RTX2070Super", 36.2},
                                                {"RTX2080", 40.3},
                                                {"RTX2080Super", 44.6},
                                                {"RTX2080Ti-22", 53.8},
                                                {"TITANRTX", 130.5},
                                                {"QuadroRTX4000", 57},
                                                {"QuadroRTX5000", 89.2},
                                                {"QuadroRTX6000", 130.5},
                                                {"QuadroRTX8000", 130.5},
                                                {"RTX3050", 36.4},
                                                {"RTX3050-6", 27},
                                                {"RTX3070Ti", 87},
                                                {"RTX4060", 60.4},
                                                {"RTX4060Ti-8", 88.2},
                                                {"RTX4070", 116.6},
                                                {"RTX4070Super", 142},
                                                {"RTX4070Ti", 160.4},
                                                {"RTX4080", 195},
                                                {"RTX4080Super", 208.8},
                                                {"RTX4090D", 294.2},
                                                {"RTX4090-48", 330.4},
                                                {"RTX5050", 52.6},
                                                {"RTX5060", 76.8},
                                                {"RTX5070", 123.4},
                                                {"A2000", 63.8},
                                                {"A2000-6", 63.8},
                                                {"A4500", 189.2},
                                                {"A5500", 272.8},
                                                {"RTX2000Ada", 96},
                                                {"RTX4000SFFAda", 153.4},
                                                {"RTX4000Ada", 213.8},
                                                {"RTX4500Ada", 317},
                                                {"RTX5000Ada", 522.2},
                                                {"RTXPRO2000", 135.8},
                                                {"RTXPRO4000", 375.2},
                                                {"RTXPRO4500", 439.4},
                                                {"RTXPRO5000", 535.4},
                                                {"RTXPRO5000-72", 535.4},
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
const std::set<std::string> kWithoutSparsity = {
    "T4",           "V100-16",  "V100-32",       "RTX2080Ti",     "P100",
    "P40",          "M3Ultra",  "M4Max",         "RTX2060",       "RTX2060-12",
    "RTX2060Super", "RTX2070",  "RTX2070Super",  "RTX2080",       "RTX2080Super",
    "RTX2080Ti-22", "TITANRTX", "QuadroRTX4000", "QuadroRTX5000", "QuadroRTX6000",
    "QuadroRTX8000"};

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
                           {"RTX2060", 30, 1680, 512, 192, 14},
                           {"RTX2060-12", 34, 1650, 512, 192, 14},
                           {"RTX2060Super", 34, 1650, 512, 256, 14},
                           {"RTX2070", 36, 1620, 512, 256, 14},
                           {"RTX2070Super", 40, 1770, 512, 256, 14},
                           {"RTX2080", 46, 1710, 512, 256, 14},
                           {"RTX2080Super", 48, 1815, 512, 256, 15.5},
                           {"RTX2080Ti-22", 68, 1545, 512, 352, 14},
                           {"TITANRTX", 72, 1770, 1024, 384, 14},
                           {"QuadroRTX4000", 36, 1545, 1024, 256, 13},
                           {"QuadroRTX5000", 48, 1815, 1024, 256, 14},
                           {"QuadroRTX6000", 72, 1770, 1024, 384, 14},
                           {"QuadroRTX8000", 72, 1770, 1024, 384, 14},
                           {"RTX3050", 20, 1777, 512, 128, 14},
                           {"RTX3050-6", 18, 1470, 512, 96, 14},
                           {"RTX3070Ti", 48, 1770, 512, 256, 19},
                           {"RTX4060", 24, 2460, 512, 128, 17},
                           {"RTX4060Ti-8", 34, 2535, 512, 128, 18},
                           {"RTX4070", 46, 2475, 512, 192, 21},
                           {"RTX4070Super", 56, 2475, 512, 192, 21},
                           {"RTX4070Ti", 60, 2610, 512, 192, 21},
                           {"RTX4080", 76, 2505, 512, 256, 22.4},
                           {"RTX4080Super", 80, 2550, 512, 256, 23},
                           {"RTX4090D", 114, 2520, 512, 384, 21},
                           {"RTX4090-48", 128, 2520, 512, 384, 21},
                           {"RTX5050", 20, 2572, 512, 128, 20},
                           {"RTX5060", 30, 2497, 512, 128, 28},
                           {"RTX5070", 48, 2512, 512, 192, 28},
                           {"A2000", 26, 1200, 1024, 192, 12},
                           {"A2000-6", 26, 1200, 1024, 192, 12},
                           {"A4500", 56, 1650, 1024, 320, 16},
                           {"A5500", 80, 1665, 1024, 384, 16},
                           {"RTX2000Ada", 22, 2130, 1024, 128, 14},
                           {"RTX4000SFFAda", 48, 1560, 1024, 160, 14},
                           {"RTX4000Ada", 48, 2175, 1024, 160, 18},
                           {"RTX4500Ada", 60, 2580, 1024, 192, 18},
                           {"RTX5000Ada", 100, 2550, 1024, 256, 18},
                           {"RTXPRO2000", 34, 1950, 1024, 128, 18},
                           {"RTXPRO4000", 70, 2617, 1024, 192, 28},
                           {"RTXPRO4500", 82, 2617, 1024, 256, 28},
                           {"RTXPRO5000", 110, 2377, 1024, 384, 28},
                           {"RTXPRO5000-72", 110, 2377, 1024, 384, 28},
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
    CHECK(kind.memory_bytes() >= int64_t{6} << 30);
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
