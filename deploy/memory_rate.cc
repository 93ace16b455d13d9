#include "deploy/memory_rate.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <thread>
#include <vector>

namespace tessera::deploy {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytesPerCore = size_t{64} << 20;
constexpr auto kDuration = std::chrono::milliseconds(400);
constexpr size_t kLanes = 8;  // sums that do not wait for each other

int Cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

uint64_t Sum(const std::vector<uint64_t>& words) {
  uint64_t sums[kLanes] = {};
  for (size_t i = 0; i + kLanes <= words.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t one : sums) sum += one;
  return sum;
}

}  // namespace

double MemoryReadBytesPerSecond() {
  std::atomic<uint64_t> checksum{0};  // so that the sums are not left out
  std::atomic<int64_t> rate{0};       // of all cores
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (int core = 0; core < Cores(); ++core) {
    threads.emplace_back([&] {
      try {
        const std::vector<uint64_t> words(kBytesPerCore / sizeof(uint64_t), 1);
        int64_t bytes = 0;
        const auto begin = Clock::now();
        while (Clock::now() - begin < kDuration) {
          checksum += Sum(words);
          bytes += static_cast<int64_t>(kBytesPerCore);
        }
        const std::chrono::duration<double> taken = Clock::now() - begin;
        rate += static_cast<int64_t>(static_cast<double>(bytes) / taken.count());
      } catch (const std::bad_alloc&) {
        failed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed || checksum == 0 ? 0 : static_cast<double>(rate);
}

}  // namespace tessera::deploy
