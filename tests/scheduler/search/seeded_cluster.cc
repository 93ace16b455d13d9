#include "tests/scheduler/search/seeded_cluster.h"

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "scheduler/search/math/seeded_random.h"

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

// Some compute much for what they read, the others read much: prefill and decode are better apart.
constexpr Shape kComputersAndReaders[] = {
    {"H20", 8, nullptr, 0},     {"H20", 4, nullptr, 0},     {"H20", 2, nullptr, 0},
    {"L40S", 8, nullptr, 0},    {"L40S", 4, nullptr, 0},    {"RTX4090", 8, nullptr, 0},
    {"RTX4090", 4, nullptr, 0}, {"V100-32", 8, nullptr, 0}, {"V100-32", 4, nullptr, 0},
    {"A10", 4, nullptr, 0},     {"A6000", 4, nullptr, 0},
};
constexpr double kFastUplinks[] = {100, 200, 400};  // Gbit/s

// Gbit/s: what networks have.
constexpr double kUplinks[] = {10, 25, 40, 100};  // of a shape
constexpr double kNetworks[] = {10, 25, 40, 100, 200};
constexpr double kRegions[] = {1, 2, 5, 10};

std::string Link(double gigabits, const std::string& latency) {
  return absl::StrFormat("{bandwidth: %g Gbit/s, latency: %s}", gigabits, latency);
}

class Writer {
 public:
  explicit Writer(const SeededClusterOptions& options)
      : options_(options),
        random_(static_cast<uint32_t>(options.seed)),
        links_(static_cast<uint64_t>(options.seed) * 7919 + 17) {}

  std::string Write() {
    text_ = absl::StrFormat("# seed %d, %d devices, %d sites%s\nmachines:\n", options_.seed,
                            options_.devices, options_.sites,
                            options_.unlike_links ? ", unlike links" : "");
    for (int left = options_.devices; left > 0; ++machines_) AddMachine(&left);
    const double alike = options_.splitting ? 400 : 100;
    text_ += "tiers:\n  site: " +
             Link(options_.unlike_links ? kNetworks[links_.Below(5)] : alike, "30 us") + "\n";
    if (options_.unlike_links)
      text_ += "  rack: " + Link(kNetworks[links_.Below(5)], "20 us") + "\n";
    if (options_.sites > 1) text_ += "  region: " + Link(2, "30 ms") + "\n";
    AddLinks();
    return std::move(text_);
  }

 private:
  // Not std::uniform_int_distribution: its results differ between libraries.
  size_t Pick(size_t n) { return static_cast<size_t>(random_() % n); }

  void AddMachine(int* left) {
    const std::span<const Shape> shapes =
        options_.splitting ? std::span<const Shape>(kComputersAndReaders) : kShapes;
    const std::span<const double> uplinks =
        options_.splitting ? std::span<const double>(kFastUplinks) : kUplinks;
    const size_t index = Pick(shapes.size());
    const Shape& shape = shapes[index];
    const int count = std::min(*left, shape.count);
    *left -= count;
    text_ += absl::StrFormat("- {name: m%d, site: s%d, devices: [{kind: %s, count: %d}", machines_,
                             machines_ % options_.sites, shape.kind, count);
    const int second = std::min(*left, shape.second_count);
    if (second > 0)
      absl::StrAppendFormat(&text_, ", {kind: %s, count: %d}", shape.second_kind, second);
    *left -= second;
    text_ += "], uplink: " + Link(uplinks[index % uplinks.size()], "20 us");
    if (options_.unlike_links) {
      absl::StrAppendFormat(&text_, ", rack: r%d", links_.Below(2));
      // Cards without peer access fall back to about 4 GB/s.
      if (links_.Below(4) == 0) text_ += ", inside: {bandwidth: 4 GB/s, latency: 30 us}";
    }
    text_ += "}\n";
  }

  void AddLinks() {
    const bool direct = options_.unlike_links && machines_ > 1;
    const bool between_sites = std::min(options_.sites, machines_) > 1;
    if (between_sites || direct) text_ += "links:\n";
    for (int a = 0; a < options_.sites; ++a) {
      for (int b = a + 1; b < options_.sites; ++b) {
        const std::string latency = absl::StrFormat("%d ms", 5 + static_cast<int>(Pick(60)));
        const std::string link = Link(kRegions[Pick(std::size(kRegions))], latency);
        if (b >= machines_) continue;  // a site of no machine
        absl::StrAppendFormat(&text_, "- {from: s%d, to: s%d, link: %s}\n", a, b, link);
      }
    }
    std::set<std::pair<int, int>> joined;  // a pair is described once
    for (int i = 0; direct && i < machines_ / 3 + 1; ++i) {
      const int from = links_.Below(machines_),
                to = (from + 1 + links_.Below(machines_ - 1)) % machines_;
      const double gigabits = kNetworks[links_.Below(5)];
      const std::string link = Link(gigabits, absl::StrFormat("%d us", 10 + links_.Below(90)));
      if (!joined.insert({std::min(from, to), std::max(from, to)}).second) continue;
      absl::StrAppendFormat(&text_, "- {from: m%d, to: m%d, link: %s}\n", from, to, link);
    }
  }

  const SeededClusterOptions options_;
  std::mt19937 random_;            // machines and links between sites
  scheduler::SeededRandom links_;  // what unlike_links adds: leaves the rest as it is
  std::string text_;
  int machines_ = 0;
};

}  // namespace

std::string SeededCluster(const SeededClusterOptions& options) { return Writer(options).Write(); }

}  // namespace tessera::tests
