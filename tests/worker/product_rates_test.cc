// What an emulated GPU's worker measures at its first start, and what the second one reads.
#include "worker/product_rates.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>

#include "tests/temporary_folder.h"
#include "worker/devices/cuda/emulated_cuda.h"

namespace tessera::worker {
namespace {

OpenedDevice Open(const std::string& folder, const std::string& build) {
  auto opened = kEmulatedCudaDevices.open(
      {.name = "cuda-emulated", .tuning_folder = folder, .build_version = build},
      {.cores = {0}, .memory_bytes = int64_t{64} << 20});
  REQUIRE(opened.status().message() == "");
  return *std::move(opened);
}

std::map<std::pair<std::string, int64_t>, double> RatesOf(const OpenedDevice& opened) {
  std::map<std::pair<std::string, int64_t>, double> rates;
  for (const auto& rate : ProductRates(*opened.device, opened.probe, *opened.tuning))
    rates[{rate.weights, rate.rows}] = rate.read_bytes_per_second;
  return rates;
}

// The time of a start is up but for this, in which one type of weights is begun: the emulator is
// slow.
constexpr double kTimeForOne = 1e-3;

void LeaveTime(const OpenedDevice& opened, double seconds) {
  opened.tuning->Spend(opened.tuning->seconds_left() - seconds);
}

TEST_CASE("a GPU's rates are measured once for each build, and kept") {
  const tests::TemporaryFolder folder;
  const std::string name = folder.path().string();
  const OpenedDevice opened = Open(name, "build a");
  LeaveTime(opened, kTimeForOne);
  const auto first = RatesOf(opened);
  REQUIRE(first.contains({"bfloat16", 1}));
  CHECK(first.at({"bfloat16", 1}) > 0);
  CHECK(first.contains({"bfloat16", 64}));
  CHECK_FALSE(first.contains({"int4", 1}));
  CHECK(std::filesystem::exists(folder.path() / "cuda-emulated"));
  const OpenedDevice again = Open(name, "build a");
  CHECK(again.tuning->rates().size() == first.size());
  LeaveTime(again, 0);
  const auto second = RatesOf(again);
  CHECK(second.size() == first.size());
  for (const auto& [product, rate] : first) CHECK(second.at(product) == Approx(rate));
  CHECK(Open(name, "build b").tuning->rates().empty());
}

TEST_CASE("what a start had no time for the next ones measure, type by type, and no type twice") {
  const tests::TemporaryFolder folder;
  const std::string name = folder.path().string();
  std::map<std::pair<std::string, int64_t>, double> known;
  size_t starts = 0;
  for (const char* weights : {"bfloat16", "int8", "int4", "fp8", "mxfp4"}) {
    CAPTURE(weights);
    const OpenedDevice opened = Open(name, "build a");
    LeaveTime(opened, kTimeForOne);
    const auto rates = RatesOf(opened);
    ++starts;
    CHECK(rates.contains({weights, 1}));
    CHECK(rates.contains({weights, 64}));
    for (const auto& [product, rate] : known) CHECK(rates.at(product) == Approx(rate));
    // As many of each type.
    if (starts > 1) CHECK(rates.size() * (starts - 1) == known.size() * starts);
    known = rates;
  }
  const OpenedDevice complete = Open(name, "build a");
  CHECK(RatesOf(complete).size() == known.size());
  CHECK(complete.tuning->seconds_left() == kernels::TuningTable::kBudgetSeconds);
}

TEST_CASE("an emulated GPU keeps nothing unless a folder is named") {
  CHECK(Open("", "build a").tuning == nullptr);
  CHECK(Open(std::string(kNoTuning), "build a").tuning == nullptr);
}

}  // namespace
}  // namespace tessera::worker
