#include "kernels/cuda/emulation/system_memory.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "kernels/cuda/emulation/device_turns.h"
#include "kernels/cuda/emulation/devices.h"

namespace tessera::kernels::cuda::emulated {
namespace {

// Long enough for the other device to have the core, and short beside an emulated kernel.
constexpr std::chrono::microseconds kPause{20};

void PassTurn(bool stores) {
  if (DeviceTurns* const turns = DeviceTurns::Current()) turns->Pass(stores);
}

void CheckReach(const void* address, const char* instruction, Place place) {
  const std::string why = WhyUnreached(address);
  if (!why.empty()) Block::Current().Fail({instruction, place}, why);
}

template <typename T>
T Load(const T* from, std::memory_order order) {
  PassTurn(false);
  return std::atomic_ref<T>(*const_cast<T*>(from)).load(order);
}

// The turn passes before and behind it: what others see in between shows a wrong order.
template <typename T>
void Store(T* to, T value, std::memory_order order) {
  PassTurn(false);
  std::atomic_ref<T>(*to).store(value, order);
  PassTurn(true);
}

}  // namespace

uint64_t LoadAcquireSystem(const uint64_t* from, Place place) {
  CheckReach(from, "LoadAcquireSystem", place);
  return Load(from, std::memory_order_acquire);
}

uint32_t LoadSystem(const uint32_t* from, Place place) {
  CheckReach(from, "LoadSystem", place);
  return Load(from, std::memory_order_relaxed);
}

float4 LoadSystem(const float4* from, Place place) {
  CheckReach(from, "LoadSystem", place);
  PassTurn(false);
  const auto element = [](const float* at) {
    return std::atomic_ref<float>(*const_cast<float*>(at)).load(std::memory_order_relaxed);
  };
  return {element(&from->x), element(&from->y), element(&from->z), element(&from->w)};
}

void StoreReleaseSystem(uint64_t* to, uint64_t value, Place place) {
  CheckReach(to, "StoreReleaseSystem", place);
  Store(to, value, std::memory_order_release);
}

void StoreSystem(uint32_t* to, uint32_t value, Place place) {
  CheckReach(to, "StoreSystem", place);
  Store(to, value, std::memory_order_relaxed);
}

void StoreSystem(uint64_t* to, uint64_t value, Place place) {
  CheckReach(to, "StoreSystem", place);
  Store(to, value, std::memory_order_relaxed);
}

void StoreSystem(float4* to, float4 value, Place place) {
  CheckReach(to, "StoreSystem", place);
  PassTurn(false);
  const auto store = [](float* at, float element) {
    std::atomic_ref<float>(*at).store(element, std::memory_order_relaxed);
  };
  store(&to->x, value.x);
  store(&to->y, value.y);
  store(&to->z, value.z);
  store(&to->w, value.w);
  PassTurn(true);
}

uint64_t SystemNanoseconds() {
  if (DeviceTurns::Current() != nullptr) return 1;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

void LetOtherDevicesRun(Place place) {
  DeviceTurns* const turns = DeviceTurns::Current();
  if (turns == nullptr) {
    std::this_thread::sleep_for(kPause);
    return;
  }
  const std::string deadlock = turns->Wait(NameOf(place));
  if (!deadlock.empty()) Block::Current().Fail({"LetOtherDevicesRun", place}, deadlock);
}

}  // namespace tessera::kernels::cuda::emulated
