#include "kernels/cuda/emulation/devices.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

struct Memory {
  int64_t size_bytes;
  int device;
  int64_t openings = 0;
};

struct Devices {
  std::mutex mutex;
  Peers peers;
  int64_t tried = 0;  // openings since SetPeers
  int64_t open = 0, given_back_while_open = 0;
  std::map<const std::byte*, Memory> memory;
  std::set<std::pair<int, int>> accesses;  // device, peer
};

Devices& All() {
  static auto& devices = *new Devices;
  return devices;
}

std::atomic<bool> are_several{false};
thread_local int chosen = 0;

int OwnerLocked(const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  auto found = All().memory.upper_bound(at);
  if (found == All().memory.begin()) return -1;
  --found;
  return at < found->first + found->second.size_bytes ? found->second.device : -1;
}

}  // namespace

void SetPeers(const Peers& peers) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().peers = peers;
  All().tried = 0;
  All().accesses.clear();
  are_several = peers.devices > 1;
}

Peers CurrentPeers() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().peers;
}

bool ChooseDevice(int device) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  if (device < 0 || device >= All().peers.devices) return false;
  chosen = device;
  return true;
}

int ChosenDevice() { return chosen; }

void TakeMemory(const std::byte* data, int64_t size_bytes) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().memory[data] = {.size_bytes = size_bytes, .device = chosen};
}

void GiveMemoryBack(const std::byte* data) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const auto found = All().memory.find(data);
  if (found == All().memory.end()) return;
  All().open -= found->second.openings;
  if (found->second.openings > 0) ++All().given_back_while_open;
  All().memory.erase(found);
}

int OwnerOf(const void* address) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return OwnerLocked(address);
}

int64_t SizeFrom(const void* data) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const auto found = All().memory.find(static_cast<const std::byte*>(data));
  return found == All().memory.end() ? 0 : found->second.size_bytes;
}

void OpenMemory(const void* data) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  ++All().memory.at(static_cast<const std::byte*>(data)).openings;
  ++All().open;
}

bool CloseMemory(const void* data) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const auto found = All().memory.find(static_cast<const std::byte*>(data));
  if (found == All().memory.end() || found->second.openings == 0) return false;
  --found->second.openings;
  --All().open;
  return true;
}

int64_t OpenHandles() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().open;
}

int64_t GivenBackWhileOpen() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().given_back_while_open;
}

bool MayOpen() {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return ++All().tried != All().peers.failing_open;
}

bool CanAccess(int device, int peer) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const Peers& peers = All().peers;
  return device != peer && (peers.can_access == nullptr || peers.can_access(device, peer));
}

bool EnableAccess(int device, int peer) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  return All().accesses.emplace(device, peer).second;
}

std::string WhyUnreached(const void* address) {
  if (!are_several) return "";
  const std::lock_guard<std::mutex> lock(All().mutex);
  const int owner = OwnerLocked(address);
  if (owner < 0 || owner == chosen || All().accesses.contains({chosen, owner})) return "";
  return StrCat("device ", chosen, " has no access to the memory of device ", owner);
}

}  // namespace tessera::kernels::cuda::emulated
