// Two emulated devices that wait for each other's kernels: the right kernel gives the same bits
// whoever runs when, one bug of each class shows, and a deadlock is reported by name.
#include "kernels/cuda/emulation/device_turns.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/devices.h"
#include "kernels/cuda/emulation/peers.h"
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

// What comes from each device: into one in host memory, or into one in the memory of each.
struct Inbox {
  uint64_t raised[2];
  float4 places[2][2][kThreads];  // by parity of the turn, and device
};

// Each value becomes the sum of both devices'.
struct Exchange {
  Inbox *to, *from;
  float* values;  // [kThreads]
  int device;
  uint64_t turn;  // from 1 on
};

template <Bug bug>
void ExchangeKernel(Exchange p) {
  const int thread = static_cast<int>(threadIdx.x), other = 1 - p.device;
  const uint64_t parity = bug == Bug::kOnePlace ? 0 : p.turn % 2;
  const auto raise = [&] {
    if (thread == 0) StoreReleaseSystem(&p.to->raised[p.device], p.turn);
  };
  if (bug == Bug::kFlagBeforeData) raise();
  const float own = p.values[thread];
  StoreSystem(&p.to->places[parity][p.device][thread], float4{own, own, own, own});
  if (bug != Bug::kMissingBarrier) __syncthreads();
  if (bug != Bug::kFlagBeforeData) raise();
  const uint64_t wanted = bug == Bug::kStaleTurn      ? p.turn - 1
                          : bug == Bug::kWaitsForNext ? p.turn + 1
                                                      : p.turn;
  if (thread == 0 && bug != Bug::kMissingWait) {
    while (LoadAcquireSystem(&p.from->raised[other]) < wanted) LetOtherDevicesRun();
  }
  __syncthreads();
  const float theirs = LoadSystem(&p.from->places[parity][other][thread]).x;
  p.values[thread] = p.device == 0 ? own + theirs : theirs + own;
}

using Kernel = void (*)(Exchange);

float Begin(int device, int thread, int exchange) {
  return static_cast<float>(1000 * exchange + 100 * device + thread);
}

// In host memory, or one in the memory of either of two devices, with or without access.
class Inboxes {
 public:
  enum class Where { kHost, kPeers, kPeersWithoutAccess };

  explicit Inboxes(Where where) : where_(where) {
    if (where != Where::kHost) SetPeers({.devices = 2});
    for (int device = 0; device < 2; ++device) {
      void* memory = &in_host_;
      if (where != Where::kHost) {
        cudaSetDevice(device);
        REQUIRE(cudaMalloc(&memory, sizeof(Inbox)) == cudaSuccess);
      }
      inboxes_[device] = static_cast<Inbox*>(memory);
      std::memset(memory, 0xff, sizeof(Inbox));  // NaN, until values are stored
      std::memset(inboxes_[device]->raised, 0, sizeof(Inbox::raised));
    }
    cudaSetDevice(0);
  }
  ~Inboxes() {
    if (where_ == Where::kHost) return;
    for (Inbox* inbox : inboxes_) cudaFree(inbox);
    SetPeers({});
  }
  Inboxes(const Inboxes&) = delete;
  Inboxes& operator=(const Inboxes&) = delete;

  // That from which the device reads.
  Inbox* Of(int device) const { return inboxes_[device]; }
  // The calling thread runs the device.
  void Begin(int device) const {
    if (where_ != Where::kHost) cudaSetDevice(device);
    if (where_ == Where::kPeers) cudaDeviceEnablePeerAccess(1 - device, 0);
  }

 private:
  const Where where_;
  Inbox in_host_;
  std::array<Inbox*, 2> inboxes_;
};
using Where = Inboxes::Where;

// What device `device` does: exchanges of values that are new each time. Returns the first fault.
std::string RunDevice(Kernel kernel, const Inboxes& inboxes, int device, uint64_t seed) {
  inboxes.Begin(device);
  EmulatedStream stream;
  stream.set_schedule(ScheduleFromSeed(seed));
  std::vector<float> values(kThreads);
  std::string fault;
  for (int exchange = 1; exchange <= kExchanges; ++exchange) {
    for (int i = 0; i < kThreads; ++i) values[i] = Begin(device, i, exchange);
    Launch(kernel, {.threads = {kThreads}}, &stream,
           {inboxes.Of(1 - device), inboxes.Of(device), values.data(), device,
            static_cast<uint64_t>(exchange)});
    if (!stream.failure().ok()) return std::string(stream.failure().message());
    for (int i = 0; i < kThreads && fault.empty(); ++i) {
      if (values[i] == Begin(0, i, exchange) + Begin(1, i, exchange)) continue;
      fault = StrCat("exchange ", exchange, ", device ", device, ", value ", i, ": ", values[i]);
    }
  }
  return fault;
}

std::vector<std::string> Faults(Kernel kernel, Where where) {
  std::vector<std::string> faults;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Inboxes inboxes(where);
    std::array<std::string, 2> of_devices;
    DeviceTurns::RunTogether({[&] { of_devices[0] = RunDevice(kernel, inboxes, 0, seed); },
                              [&] { of_devices[1] = RunDevice(kernel, inboxes, 1, seed); }},
                             seed);
    for (const std::string& fault : of_devices) {
      if (!fault.empty()) faults.push_back(StrCat("seed ", seed, ": ", fault));
    }
  }
  return faults;
}

TEST_CASE("the right exchange gives the same bits whoever runs when") {
  for (const Where where : {Where::kHost, Where::kPeers}) {
    CHECK(Faults(&ExchangeKernel<Bug::kNone>, where) == std::vector<std::string>{});
  }
}

TEST_CASE("a bug of each class of exchange shows, in host memory and in that of peers") {
  for (const Where where : {Where::kHost, Where::kPeers}) {
    CHECK(Faults(&ExchangeKernel<Bug::kFlagBeforeData>, where).size() >= 1);
    CHECK(Faults(&ExchangeKernel<Bug::kMissingBarrier>, where).size() >= 1);
    CHECK(Faults(&ExchangeKernel<Bug::kMissingWait>, where).size() >= 1);
    CHECK(Faults(&ExchangeKernel<Bug::kStaleTurn>, where).size() >= 1);
    CHECK(Faults(&ExchangeKernel<Bug::kOnePlace>, where).size() >= 1);
  }
}

TEST_CASE("memory of a peer that a device has no access to is reported by name") {
  const std::vector<std::string> faults =
      Faults(&ExchangeKernel<Bug::kNone>, Where::kPeersWithoutAccess);
  REQUIRE(faults.size() == 2 * kSeeds);
  CHECK_THAT(faults[0], Contains("StoreSystem at device_turns_test.cc:") &&
                            Contains("device 0 has no access to the memory of device 1"));
}

TEST_CASE("devices that wait for each other for ever are reported by name") {
  const std::vector<std::string> faults = Faults(&ExchangeKernel<Bug::kWaitsForNext>, Where::kHost);
  REQUIRE(faults.size() == 2 * kSeeds);  // both devices, in every order
  CHECK_THAT(faults[0],
             Contains("CUDA kernel launched at device_turns_test.cc:") &&
                 Contains("block (0, 0, 0)") && Contains("thread (0, 0, 0)") &&
                 Contains("deadlock of devices: device 0 waits at device_turns_test.cc:"));
  CHECK_THAT(faults[0] + faults[1], Contains("device 1 waits at device_turns_test.cc:"));
}

TEST_CASE("a device that waits for one that has ended is reported by name") {
  const Inboxes inboxes(Where::kHost);
  std::string fault;
  DeviceTurns::RunTogether(
      {[] {}, [&] { fault = RunDevice(&ExchangeKernel<Bug::kNone>, inboxes, 1, 0); }}, 0);
  CHECK_THAT(fault, Contains("deadlock of devices: device 0 has ended; device 1 waits at"));
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated
