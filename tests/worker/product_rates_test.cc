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

TEST_CASE("a GPU's rates are measured once for each build, and kept") {
  const tests::TemporaryFolder folder;
  const std::string name = folder.path().string();
  const OpenedDevice opened = Open(name, "build a");
  opened.tuning->Spend(4.9);  // the emulator is slow: no type is begun behind the first
  const auto first = RatesOf(opened);
  REQUIRE(first.contains({"bfloat16", 1}));
  CHECK(first.at({"bfloat16", 1}) > 0);
  CHECK(first.contains({"bfloat16", 64}));
  CHECK_FALSE(first.contains({"int4", 1}));
  CHECK(std::filesystem::exists(folder.path() / "cuda-emulated"));
  const OpenedDevice again = Open(name, "build a");
  CHECK(again.tuning->rates().size() == first.size());
  const auto second = RatesOf(again);
  for (const auto& [product, rate] : first) CHECK(second.at(product) == Approx(rate));
  CHECK(again.tuning->seconds_left() == kernels::TuningTable::kBudgetSeconds);
  CHECK(Open(name, "build b").tuning->rates().empty());
}

TEST_CASE("an emulated GPU keeps nothing unless a folder is named") {
  CHECK(Open("", "build a").tuning == nullptr);
  CHECK(Open(std::string(kNoTuning), "build a").tuning == nullptr);
}

}  // namespace
}  // namespace tessera::worker
