// How the devices of one machine are joined, two by two, and which of them are joined alike.
//
// A card in a narrow slot has its own link to all others, two cards with a bridge have one between
// them. Devices that are each other's best neighbours, at the same pace, are a group: stages stand
// on them as on a machine of its own. Thread rule: immutable. Cost: O(devices^3) where there are
// pairs.
#pragma once

#include <vector>

#include "scheduler/cost/hardware.h"

namespace tessera::scheduler {

inline constexpr int kAllOthers = -1;

struct DeviceJoint {
  int device = 0;
  int to = kAllOthers;  // what names both ends beats what names one
  LinkSpec link;
};

class DeviceJoints {
 public:
  // Devices are 0 to `devices` - 1, joined by `inside` where no pair says another link.
  DeviceJoints(int devices, const LinkSpec& inside, const std::vector<DeviceJoint>& pairs);

  // Each device in one of them, in order.
  const std::vector<std::vector<int>>& groups() const { return groups_; }

  // The slowest between devices of the two groups, or of one, which has at least two devices.
  LinkSpec Slowest(const std::vector<int>& from, const std::vector<int>& to) const;

 private:
  const LinkSpec& Between(int a, int b) const;
  LinkSpec BestOf(int device) const;
  void Group();

  const int devices_;
  const LinkSpec inside_;
  std::vector<LinkSpec> links_;  // by two devices; empty: all are `inside`
  std::vector<std::vector<int>> groups_;
};

}  // namespace tessera::scheduler
