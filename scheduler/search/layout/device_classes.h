// Devices counted by class instead of listed: a class is kind x machine shape x group.
//
// Problem: thousands of devices, most of them alike. Machines of one group with the same devices,
// the same links inside and alike ones to others have one shape; equal devices in machines of one
// shape are one class, and a search needs to say how many of a class it takes, not which. Between
// classes the best link between any of their machines stands for all: good for a bound, an estimate
// for a placement. Thread rule: immutable; borrows the graph. Complexity: O(machines^2) for the
// links. Deterministic: classes come in the order of their first pool.
#pragma once

#include <span>
#include <vector>

#include "scheduler/input/cluster_graph.h"

namespace tessera::scheduler {

struct DeviceClass {
  const DeviceSpec* spec = nullptr;
  int group = 0;                          // of near machines, in the order of first appearance
  int shape = 0;                          // of the machine
  int per_machine = 0;                    // devices in each machine
  LinkSpec inside;                        // between devices of one machine
  double price_usd_per_hour = 0;          // of one device
  double machine_price_usd_per_hour = 0;  // of the whole; 0: rented device by device
  std::vector<int> pools;                 // of the graph, one per machine

  int devices() const { return per_machine * static_cast<int>(pools.size()); }
};

class DeviceClasses {
 public:
  // Classes of `free[p]` devices of each pool p of the graph: the others are taken. `merge_groups`:
  // all groups and places count as one, its links the best of any; fewer classes, and still good
  // for a bound.
  DeviceClasses(const ClusterGraph& graph, std::span<const int> free, bool merge_groups = false);

  const std::vector<DeviceClass>& all() const { return classes_; }
  const DeviceClass& operator[](int c) const { return classes_[static_cast<size_t>(c)]; }
  int size() const { return static_cast<int>(classes_.size()); }
  int groups() const { return groups_; }

  // Best link between two different machines of these classes, component by component; of no
  // bandwidth where there is one machine only.
  const LinkSpec& Apart(int a, int b) const {
    return apart_[static_cast<size_t>(Shape(a) * shapes_ + Shape(b))];
  }
  // May a machine hold devices of both?
  bool Together(int a, int b) const { return Shape(a) == Shape(b); }
  int shapes() const { return shapes_; }
  // Devices, of all classes, in a machine that holds this one.
  int MachineDevices(int c) const { return machine_devices_[static_cast<size_t>(Shape(c))]; }
  // Machines that are alike to the one that holds this class.
  int Machines(int c) const { return machines_[static_cast<size_t>(Shape(c))]; }

 private:
  int Shape(int c) const { return classes_[static_cast<size_t>(c)].shape; }

  std::vector<DeviceClass> classes_;
  std::vector<LinkSpec> apart_;                  // by pair of shapes
  std::vector<int> machine_devices_, machines_;  // by shape
  int shapes_ = 0;
  int groups_ = 0;
};

}  // namespace tessera::scheduler
