#include "kernels/cuda/emulation/device_turns.h"

#include <algorithm>
#include <thread>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr uint64_t kAlwaysPasses = 2;
constexpr uint64_t kFirstRandom = 3;

thread_local DeviceTurns* current = nullptr;
thread_local size_t own_device = 0;

}  // namespace

DeviceTurns* DeviceTurns::Current() { return current; }

void DeviceTurns::RunTogether(const std::vector<std::function<void()>>& devices, uint64_t seed) {
  DeviceTurns turns(devices.size(), seed);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&turns, &devices, i] { turns.Run(i, devices[i]); });
  }
  for (std::thread& thread : threads) thread.join();
}

void DeviceTurns::Run(size_t device, const std::function<void()>& work) {
  current = this;
  own_device = device;
  {
    std::unique_lock lock(mutex_);
    AwaitTurn(device, lock);
  }
  work();
  const std::lock_guard lock(mutex_);
  devices_[device].state = State::kEnded;
  // Where all others wait, one of them finds that it does so for ever.
  if (!GiveTurnLocked()) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i].state == State::kWaits) turn_ = i;
    }
  }
  changed_.notify_all();
}

void DeviceTurns::AwaitTurn(size_t device, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return turn_ == device; });
}

bool DeviceTurns::GiveTurnLocked() {
  std::vector<size_t> ready;
  for (size_t i = 1; i <= devices_.size(); ++i) {
    const size_t device = (turn_ + i) % devices_.size();
    if (devices_[device].state == State::kReady) ready.push_back(device);
  }
  if (ready.empty()) return false;
  turn_ = ready[seed_ < kFirstRandom ? 0 : random_.Below(static_cast<uint32_t>(ready.size()))];
  return true;
}

void DeviceTurns::Pass(bool stores) {
  std::unique_lock lock(mutex_);
  if (stores) {
    for (Device& device : devices_) {
      if (device.state == State::kWaits) device.state = State::kReady;
    }
  }
  if (seed_ < kAlwaysPasses) return;
  GiveTurnLocked();
  changed_.notify_all();
  AwaitTurn(own_device, lock);
}

std::string DeviceTurns::Wait(const std::string& place) {
  std::unique_lock lock(mutex_);
  Device& own = devices_[own_device];
  own = {State::kWaits, place};
  if (GiveTurnLocked()) {
    changed_.notify_all();
    AwaitTurn(own_device, lock);
  }
  if (own.state == State::kReady) return "";
  std::string deadlock = DescribeLocked();
  own.state = State::kReady;  // its kernel ends
  return deadlock;
}

std::string DeviceTurns::DescribeLocked() const {
  std::string text = "deadlock of devices: ";
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    text += StrCat(i == 0 ? "" : "; ", "device ", i, " ",
                   device.state == State::kEnded ? "has ended" : "waits at " + device.place);
  }
  return text;
}

}  // namespace tessera::kernels::cuda::emulated
