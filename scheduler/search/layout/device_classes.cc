#include "scheduler/search/layout/device_classes.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tessera::scheduler {
namespace {

constexpr int kMaxPlaces = 40;  // that make shapes: of more, groups and the best of their links do

// What tells two machines' shapes apart.
struct ShapeKey {
  int group = 0, place = 0;
  LinkSpec inside, uplink;
  double price_usd_per_hour = 0;                                    // of the whole
  std::vector<std::tuple<const DeviceSpec*, int, double>> devices;  // kind, free ones, price
  auto operator<=>(const ShapeKey&) const = default;
};

std::vector<ShapeKey> KeysOfMachines(const ClusterGraph& graph, std::span<const int> free,
                                     bool merge_groups) {
  std::vector<ShapeKey> keys(graph.machines().size());
  int places = 0;
  for (const MachineNode& machine : graph.machines())
    places = std::max(places, machine.wide_place + 1);
  const bool by_place = !merge_groups && places <= kMaxPlaces;
  for (size_t m = 0; m < keys.size(); ++m) {
    const MachineNode& machine = graph.machines()[m];
    // Uplinks of a wide place are alike.
    keys[m] = {merge_groups ? 0 : machine.group,
               by_place ? machine.wide_place : 0,
               machine.inside,
               by_place ? LinkSpec() : machine.uplink.value_or(LinkSpec()),
               machine.price_usd_per_hour,
               {}};
  }
  for (size_t p = 0; p < graph.pools().size(); ++p) {
    const DevicePool& pool = graph.pools()[p];
    if (free[p] == 0) continue;
    keys[static_cast<size_t>(pool.machine)].devices.emplace_back(pool.spec, free[p],
                                                                 pool.price_usd_per_hour);
  }
  return keys;
}

}  // namespace

DeviceClasses::DeviceClasses(const ClusterGraph& graph, std::span<const int> free,
                             bool merge_groups) {
  const std::vector<ShapeKey> keys = KeysOfMachines(graph, free, merge_groups);
  std::map<ShapeKey, int> shape_of;
  std::map<int, int> group_of;
  std::vector<int> shape(keys.size(), -1);
  std::vector<std::vector<int>> machines;  // by shape
  for (size_t m = 0; m < keys.size(); ++m) {
    if (keys[m].devices.empty()) continue;
    const auto [at, fresh] = shape_of.emplace(keys[m], static_cast<int>(machines.size()));
    if (fresh) machines.emplace_back();
    shape[m] = at->second;
    machines[static_cast<size_t>(at->second)].push_back(static_cast<int>(m));
    group_of.emplace(keys[m].group, static_cast<int>(group_of.size()));
  }
  shapes_ = static_cast<int>(machines.size());
  groups_ = merge_groups ? 1 : static_cast<int>(group_of.size());

  std::map<std::tuple<int, const DeviceSpec*, int>, size_t> class_of;
  for (size_t p = 0; p < graph.pools().size(); ++p) {
    if (free[p] == 0) continue;
    const DevicePool& pool = graph.pools()[p];
    const MachineNode& machine = graph.machines()[static_cast<size_t>(pool.machine)];
    const int s = shape[static_cast<size_t>(pool.machine)];
    const auto [at, fresh] = class_of.emplace(std::tuple(s, pool.spec, free[p]), classes_.size());
    if (fresh) {
      classes_.push_back({pool.spec,
                          merge_groups ? 0 : group_of[machine.group],
                          s,
                          free[p],
                          machine.inside,
                          pool.price_usd_per_hour,
                          machine.price_usd_per_hour,
                          {}});
    }
    classes_[at->second].pools.push_back(static_cast<int>(p));
  }
  machine_devices_.assign(static_cast<size_t>(shapes_), 0);
  for (const DeviceClass& of : classes_)
    machine_devices_[static_cast<size_t>(of.shape)] += of.devices();
  for (size_t s = 0; s < machines.size(); ++s) {
    machines_.push_back(static_cast<int>(machines[s].size()));
    machine_devices_[s] /= machines_.back();
  }

  apart_.resize(static_cast<size_t>(shapes_) * static_cast<size_t>(shapes_));
  for (int a = 0; a < shapes_; ++a) {
    for (int b = 0; b < shapes_; ++b) {
      LinkSpec best;
      best.latency_seconds = std::numeric_limits<double>::infinity();
      for (const int from : machines[static_cast<size_t>(a)]) {
        for (const int to : machines[static_cast<size_t>(b)]) {
          if (from == to) continue;
          const LinkSpec& link = graph.Between(from, to);
          best.bytes_per_second = std::max(best.bytes_per_second, link.bytes_per_second);
          best.latency_seconds = std::min(best.latency_seconds, link.latency_seconds);
        }
      }
      apart_[static_cast<size_t>(a * shapes_ + b)] = best;
    }
  }
}

}  // namespace tessera::scheduler
