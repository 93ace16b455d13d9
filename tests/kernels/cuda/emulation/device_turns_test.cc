// Two emulated devices that wait for each other's kernels: the right kernel gives the same bits
// whoever runs when, one bug of each class shows, and a deadlock is reported by name.
#include "kernels/cuda/emulation/device_turns.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/system_ops.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

using Catch::Contains;

enum class Bug {
  kNone,
  kFlagBeforeData,  // it is raised, then the values are stored
  kMissingBarrier,  // it is raised when the first warp has stored its values
  kMissingWait,     // the other's values are read at once
  kStaleTurn,       // the flag of the exchange before lets it go on
  kOnePlace,        // values are overwritten that the other may still read
  kWaitsForNext,    // for a flag that is raised behind the wait
};

constexpr int kThreads = 64;
constexpr int kExchanges = 4;
constexpr int kSeeds = 24;

struct Shared {
  uint64_t raised[2] = {0, 0};
  float4 places[2][2][kThreads];  // by parity of the turn, and device
};

// Each value becomes the sum of both devices'.
struct Exchange {
  Shared* shared;
  float* values;  // [kThreads]
  int device;
  uint64_t turn;  // from 1 on
};

template <Bug bug>
void ExchangeKernel(Exchange p) {
  const int thread = static_cast<int>(threadIdx.x), other = 1 - p.device;
  float4(&places)[2][kThreads] = p.shared->places[bug == Bug::kOnePlace ? 0 : p.turn % 2];
  const auto raise = [&] {
    if (thread == 0) StoreReleaseSystem(&p.shared->raised[p.device], p.turn);
  };
  if (bug == Bug::kFlagBeforeData) raise();
  const float own = p.values[thread];
  StoreSystem(&places[p.device][thread], float4{own, own, own, own});
  if (bug != Bug::kMissingBarrier) __syncthreads();
  if (bug != Bug::kFlagBeforeData) raise();
  const uint64_t wanted = bug == Bug::kStaleTurn      ? p.turn - 1
                          : bug == Bug::kWaitsForNext ? p.turn + 1
                                                      : p.turn;
  if (thread == 0 && bug != Bug::kMissingWait) {
    while (LoadAcquireSystem(&p.shared->raised[other]) < wanted) LetOtherDevicesRun();
  }
  __syncthreads();
  const float theirs = LoadSystem(&places[other][thread]).x;
  p.values[thread] = p.device == 0 ? own + theirs : theirs + own;
}

using Kernel = void (*)(Exchange);

float Begin(int device, int thread, int exchange) {
  return static_cast<float>(1000 * exchange + 100 * device + thread);
}

// What device `device` does: exchanges of values that are new each time. Returns the first fault.
std::string RunDevice(Kernel kernel, Shared& shared, int device, uint64_t seed) {
  EmulatedStream stream;
  stream.set_schedule(ScheduleFromSeed(seed));
  std::vector<float> values(kThreads);
  std::string fault;
  for (int exchange = 1; exchange <= kExchanges; ++exchange) {
    for (int i = 0; i < kThreads; ++i) values[i] = Begin(device, i, exchange);
    Launch(kernel, {.threads = {kThreads}}, &stream,
           {&shared, values.data(), device, static_cast<uint64_t>(exchange)});
    if (!stream.failure().ok()) return std::string(stream.failure().message());
    for (int i = 0; i < kThreads && fault.empty(); ++i) {
      if (values[i] == Begin(0, i, exchange) + Begin(1, i, exchange)) continue;
      fault = StrCat("exchange ", exchange, ", device ", device, ", value ", i, ": ", values[i]);
    }
  }
  return fault;
}

std::vector<std::string> Faults(Kernel kernel) {
  std::vector<std::string> faults;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Shared shared;
    constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
    for (auto& parity : shared.places) {
      for (auto& places : parity) {
        for (float4& place : places) place = {kPoison, kPoison, kPoison, kPoison};
      }
    }
    std::array<std::string, 2> of_devices;
    DeviceTurns::RunTogether({[&] { of_devices[0] = RunDevice(kernel, shared, 0, seed); },
                              [&] { of_devices[1] = RunDevice(kernel, shared, 1, seed); }},
                             seed);
    for (const std::string& fault : of_devices) {
      if (!fault.empty()) faults.push_back(StrCat("seed ", seed, ": ", fault));
    }
  }
  return faults;
}

TEST_CASE("the right exchange gives the same bits whoever runs when") {
  CHECK(Faults(&ExchangeKernel<Bug::kNone>) == std::vector<std::string>{});
}

TEST_CASE("a bug of each class of exchange shows") {
  CHECK(Faults(&ExchangeKernel<Bug::kFlagBeforeData>).size() >= 1);
  CHECK(Faults(&ExchangeKernel<Bug::kMissingBarrier>).size() >= 1);
  CHECK(Faults(&ExchangeKernel<Bug::kMissingWait>).size() >= 1);
  CHECK(Faults(&ExchangeKernel<Bug::kStaleTurn>).size() >= 1);
  CHECK(Faults(&ExchangeKernel<Bug::kOnePlace>).size() >= 1);
}

TEST_CASE("devices that wait for each other for ever are reported by name") {
  const std::vector<std::string> faults = Faults(&ExchangeKernel<Bug::kWaitsForNext>);
  REQUIRE(faults.size() == 2 * kSeeds);  // both devices, in every order
  CHECK_THAT(faults[0],
             Contains("CUDA kernel launched at device_turns_test.cc:") &&
                 Contains("block (0, 0, 0)") && Contains("thread (0, 0, 0)") &&
                 Contains("deadlock of devices: device 0 waits at device_turns_test.cc:"));
  CHECK_THAT(faults[0] + faults[1], Contains("device 1 waits at device_turns_test.cc:"));
}

TEST_CASE("a device that waits for one that has ended is reported by name") {
  Shared shared;
  std::string fault;
  DeviceTurns::RunTogether(
      {[] {}, [&] { fault = RunDevice(&ExchangeKernel<Bug::kNone>, shared, 1, 0); }}, 0);
  CHECK_THAT(fault, Contains("deadlock of devices: device 0 has ended; device 1 waits at"));
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated
