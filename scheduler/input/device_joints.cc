#include "scheduler/input/device_joints.h"

#include <algorithm>
#include <numeric>

namespace tessera::scheduler {
namespace {

bool Slower(const LinkSpec& a, const LinkSpec& b) {
  return a.bytes_per_second != b.bytes_per_second ? a.bytes_per_second < b.bytes_per_second
                                                  : a.latency_seconds > b.latency_seconds;
}

}  // namespace

DeviceJoints::DeviceJoints(int devices, const LinkSpec& inside,
                           const std::vector<DeviceJoint>& pairs)
    : devices_(devices), inside_(inside) {
  if (pairs.empty()) {
    groups_.emplace_back(static_cast<size_t>(devices));
    std::iota(groups_[0].begin(), groups_[0].end(), 0);
    return;
  }
  links_.assign(static_cast<size_t>(devices * devices), inside);
  for (const bool both : {false, true}) {
    for (const DeviceJoint& pair : pairs) {
      if ((pair.to != kAllOthers) != both) continue;
      for (int other = 0; other < devices; ++other) {
        if (both && other != pair.to) continue;
        links_[static_cast<size_t>(pair.device * devices + other)] = pair.link;
        links_[static_cast<size_t>(other * devices + pair.device)] = pair.link;
      }
    }
  }
  Group();
}

const LinkSpec& DeviceJoints::Between(int a, int b) const {
  return links_.empty() ? inside_ : links_[static_cast<size_t>(a * devices_ + b)];
}

LinkSpec DeviceJoints::BestOf(int device) const {
  LinkSpec best;
  for (int other = 0; other < devices_; ++other) {
    const LinkSpec& link = Between(device, other);
    if (other != device && (best.bytes_per_second == 0 || Slower(best, link))) best = link;
  }
  return best;
}

void DeviceJoints::Group() {
  std::vector<bool> placed(static_cast<size_t>(devices_), false);
  for (int a = 0; a < devices_; ++a) {
    if (placed[static_cast<size_t>(a)]) continue;
    std::vector<int> members = {a};
    const LinkSpec best = BestOf(a);
    for (int b = a + 1; b < devices_; ++b) {
      if (placed[static_cast<size_t>(b)] || best != BestOf(b)) continue;
      const bool alike = std::all_of(members.begin(), members.end(),
                                     [&](int member) { return Between(member, b) == best; });
      if (alike) members.push_back(b);
    }
    for (const int member : members) placed[static_cast<size_t>(member)] = true;
    groups_.push_back(std::move(members));
  }
}

LinkSpec DeviceJoints::Slowest(const std::vector<int>& from, const std::vector<int>& to) const {
  if (links_.empty()) return inside_;
  LinkSpec slowest;
  for (const int a : from) {
    for (const int b : to) {
      const LinkSpec& link = Between(a, b);
      if (a != b && (slowest.bytes_per_second == 0 || Slower(link, slowest))) slowest = link;
    }
  }
  return slowest;
}

}  // namespace tessera::scheduler
