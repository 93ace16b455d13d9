#include "worker/devices/rehearsed_devices.h"

#include "proto/emulated_kind.h"

namespace tessera::worker {
namespace {

bool NamesKinds(std::string_view device) {
  for (const std::string& kind : RehearsedKinds(device)) {
    if (kind.empty()) return false;
  }
  return true;
}

}  // namespace

const DeviceType kRehearsedDevices = {
    .name = kEmulatedKind,
    .text = "emulated:KIND[,KIND...], which compute nothing (tessera rehearse)",
    .takes = &NamesKinds};

std::vector<std::string> RehearsedKinds(std::string_view device) {
  std::vector<std::string> kinds(1);
  for (const char c : device.substr(kEmulatedKind.size())) {
    if (c == ',') {
      kinds.emplace_back();
    } else {
      kinds.back() += c;
    }
  }
  return kinds;
}

}  // namespace tessera::worker
