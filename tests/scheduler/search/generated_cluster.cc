#include "tests/scheduler/search/generated_cluster.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tessera::tests {
namespace {

struct Shape {
  const char* kind;
  int count;
  const char* second_kind;  // null: none
  int second_count;
};

// What data centres, labs and offices have; 36 shapes.
constexpr Shape kShapes[] = {
    {"H100-SXM", 8, nullptr, 0},  {"H100-SXM", 4, nullptr, 0}, {"H100-PCIe", 4, nullptr, 0},
    {"H100-PCIe", 2, nullptr, 0}, {"A100-80", 8, nullptr, 0},  {"A100-80", 4, nullptr, 0},
    {"A100-40", 8, nullptr, 0},   {"A100-40", 4, nullptr, 0},  {"A100-40", 2, nullptr, 0},
    {"A40", 8, nullptr, 0},       {"A40", 4, nullptr, 0},      {"A40", 1, nullptr, 0},
    {"A6000", 8, nullptr, 0},     {"A6000", 4, nullptr, 0},    {"A6000", 3, nullptr, 0},
    {"A6000", 2, nullptr, 0},     {"L40S", 8, nullptr, 0},     {"L40S", 4, nullptr, 0},
    {"L40S", 2, nullptr, 0},      {"L40", 4, nullptr, 0},      {"L40", 6, nullptr, 0},
    {"A10", 4, nullptr, 0},       {"A10", 2, nullptr, 0},      {"A10", 1, nullptr, 0},
    {"L4", 8, nullptr, 0},        {"L4", 4, nullptr, 0},       {"L4", 1, nullptr, 0},
    {"V100-32", 8, nullptr, 0},   {"V100-32", 4, nullptr, 0},  {"T4", 4, nullptr, 0},
    {"T4", 1, nullptr, 0},        {"A5000", 4, nullptr, 0},    {"A5000", 2, nullptr, 0},
    {"A6000", 2, "A5000", 2},     {"A100-40", 2, "A40", 2},    {"L40S", 4, "L4", 4},
};

void SetLink(double gigabits, double latency_seconds, v1::Link* link) {
  link->set_bandwidth_bytes_per_second(gigabits * 1e9 / 8);
  link->set_latency_seconds(latency_seconds);
}

void AddDevices(const char* kind, int count, v1::Machine* machine) {
  v1::DeviceGroup* group = machine->add_devices();
  group->set_kind(kind);
  group->set_count(count);
}

}  // namespace

v1::Cluster GenerateCluster(int seed, int devices, int sites) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  // Not std::uniform_int_distribution: its results differ between libraries.
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  constexpr double kUplinks[] = {10, 25, 40, 100};  // Gbit/s, of a shape
  constexpr double kRegions[] = {1, 2, 5, 10};
  v1::Cluster cluster;
  SetLink(100, 30e-6, cluster.mutable_tiers()->mutable_site());
  if (sites > 1) SetLink(2, 30e-3, cluster.mutable_tiers()->mutable_region());
  for (int left = devices, i = 0; left > 0; ++i) {
    const size_t index = pick(std::size(kShapes));
    const Shape& shape = kShapes[index];
    v1::Machine* machine = cluster.add_machines();
    machine->set_name("m" + std::to_string(i));
    machine->set_site("s" + std::to_string(i % sites));
    const int count = std::min(left, shape.count);
    AddDevices(shape.kind, count, machine);
    left -= count;
    const int second = std::min(left, shape.second_count);
    if (second > 0) AddDevices(shape.second_kind, second, machine);
    left -= second;
    SetLink(kUplinks[index % std::size(kUplinks)], 20e-6, machine->mutable_uplink());
  }
  for (int a = 0; a < sites; ++a) {
    for (int b = a + 1; b < sites; ++b) {
      v1::PairLink* pair = cluster.add_links();
      pair->set_from("s" + std::to_string(a));
      pair->set_to("s" + std::to_string(b));
      SetLink(kRegions[pick(std::size(kRegions))], 5e-3 + 1e-3 * static_cast<double>(pick(60)),
              pair->mutable_link());
    }
  }
  return cluster;
}

}  // namespace tessera::tests
