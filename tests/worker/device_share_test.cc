#include "worker/devices/device_share.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera::worker {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
const std::vector<int> kAffinity = {0, 1, 2, 5};
const CpuShare kAll = {.cores = kAffinity, .memory_bytes = 4 * kGiB};

std::string Refusal(std::string_view cpus, int64_t memory_bytes) {
  const auto share = ChooseDeviceShare(cpus, memory_bytes, kAffinity, kAll);
  REQUIRE_FALSE(share.ok());
  CHECK(share.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(share.status().message());
}

TEST_CASE("without flags: all that is allowed, and cores may be anybody's") {
  const auto share = ChooseDeviceShare("", 0, kAffinity, kAll);
  REQUIRE(share.ok());
  CHECK(share->cores == kAffinity);
  CHECK(share->memory_bytes == 4 * kGiB);
  CHECK(share->cores_shared);
  CHECK(share->warning.empty());
}

TEST_CASE("named cores are ours alone, unless there is but one for all our threads") {
  const auto two = ChooseDeviceShare("1,5", kGiB, kAffinity, kAll);
  REQUIRE(two.ok());
  CHECK(two->cores == std::vector<int>{1, 5});
  CHECK(two->memory_bytes == kGiB);
  CHECK_FALSE(two->cores_shared);
  CHECK(ChooseDeviceShare("2", 0, kAffinity, kAll)->cores_shared);
}

TEST_CASE("cores outside the affinity mask are refused: which, and which there are") {
  CHECK_THAT(Refusal("99", 0), Catch::Contains("--cpus 99") && Catch::Contains("core 99") &&
                                   Catch::Contains("allow 0-2,5"));
  CHECK_THAT(Refusal("1-6", 0), Catch::Contains("cores 3-4,6;"));
  CHECK_THAT(Refusal("one", 0), Catch::Contains("--cpus") && Catch::Contains("\"one\""));
}

TEST_CASE(
    "memory below what a worker needs, or above what there is, is refused with both numbers") {
  CHECK_THAT(Refusal("", 10), Catch::Contains("--memory is 10 bytes") &&
                                  Catch::Contains(std::to_string(kMinMemoryBytes)) &&
                                  Catch::Contains(std::to_string(4 * kGiB)));
  CHECK_THAT(Refusal("", 4 * kGiB + 1), Catch::Contains(std::to_string(4 * kGiB + 1)) &&
                                            Catch::Contains(std::to_string(4 * kGiB)));
  CHECK(ChooseDeviceShare("", kMinMemoryBytes, kAffinity, kAll).ok());
  CHECK(ChooseDeviceShare("", 4 * kGiB, kAffinity, kAll).ok());
}

TEST_CASE("more cores than the CPU quota pays for are allowed, and said") {
  const CpuShare quota = {.cores = {0, 1}, .memory_bytes = kGiB};
  CHECK(ChooseDeviceShare("", 0, kAffinity, quota)->cores == std::vector<int>{0, 1});
  CHECK(ChooseDeviceShare("2,5", 0, kAffinity, quota)->warning.empty());
  CHECK_THAT(ChooseDeviceShare("0-2", 0, kAffinity, quota)->warning,
             Catch::Contains("3 cores") && Catch::Contains("allows 2"));
}

TEST_CASE("a worker stays on the cores near its GPU, where it may use any of them") {
  CHECK(NearCores({0, 1, 2, 5}, {2, 3, 5, 7}) == std::vector<int>{2, 5});
  CHECK(NearCores({0, 1}, {2, 3}) == std::vector<int>{0, 1});
  CHECK(NearCores({0, 1}, {}) == std::vector<int>{0, 1});
}

}  // namespace
}  // namespace tessera::worker
