#include "scheduler/input/machine_groups.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

namespace tessera::scheduler {
namespace {

constexpr double kNear = 4;  // times the time to the nearest

uint64_t Mix(uint64_t hash, double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

uint64_t HashOf(const LinkSpec& link) {
  uint64_t hash = Mix(Mix(1, link.bytes_per_second), link.latency_seconds);
  return Mix(Mix(hash, link.incast_threshold), link.incast_seconds_per_byte);
}

class Alike {
 public:
  explicit Alike(const PlaceLinks& places) : p_(places), n_(places.places()) {
    // Compares the links to all other machines, in any order.
    for (int a = 0; a < n_; ++a) {
      uint64_t sum = 0;
      for (int b = 0; b < n_; ++b) {
        const int others = p_.machines[static_cast<size_t>(b)] - (a == b ? 1 : 0);
        sum += static_cast<uint64_t>(others) * (others > 0 ? HashOf(Link(a, b)) : 0);
      }
      prints_.push_back(sum);
    }
  }

  std::vector<int> Run() const {
    std::vector<int> merged, first;
    for (int a = 0; a < n_; ++a) {
      const auto at = std::find_if(first.begin(), first.end(), [&](int b) { return Same(a, b); });
      merged.push_back(static_cast<int>(at - first.begin()));
      if (at == first.end()) first.push_back(a);
    }
    return merged;
  }

 private:
  const LinkSpec& Link(int a, int b) const {
    return p_.links[static_cast<size_t>(a) * static_cast<size_t>(n_) + static_cast<size_t>(b)];
  }
  bool Several(int a) const { return p_.machines[static_cast<size_t>(a)] > 1; }

  bool Same(int a, int b) const {
    if (prints_[static_cast<size_t>(a)] != prints_[static_cast<size_t>(b)] ||
        p_.shares[static_cast<size_t>(a)] != p_.shares[static_cast<size_t>(b)] ||
        p_.uplinks[static_cast<size_t>(a)] != p_.uplinks[static_cast<size_t>(b)] ||
        Link(a, b) != Link(b, a) || (Several(a) && Link(a, a) != Link(a, b)) ||
        (Several(b) && Link(b, b) != Link(a, b))) {
      return false;
    }
    for (int c = 0; c < n_; ++c) {
      if (c == a || c == b) continue;
      if (Link(a, c) != Link(b, c) || Link(c, a) != Link(c, b)) return false;
    }
    return true;
  }

  const PlaceLinks& p_;
  const int n_;
  std::vector<uint64_t> prints_;
};

bool AlikeFigures(double a, double b) {
  return a == b || std::max(a, b) < kAlikeLinks * std::min(a, b);
}

bool AlikeLinks(const LinkSpec& a, const LinkSpec& b) {
  return AlikeFigures(a.bytes_per_second, b.bytes_per_second) &&
         AlikeFigures(a.latency_seconds, b.latency_seconds) &&
         a.incast_threshold == b.incast_threshold &&
         AlikeFigures(a.incast_seconds_per_byte, b.incast_seconds_per_byte);
}

class Wide {
 public:
  explicit Wide(const PlaceLinks& places) : p_(places), n_(static_cast<size_t>(places.places())) {}

  std::vector<int> Run() const {
    std::vector<int> wide;
    std::vector<std::vector<size_t>> members;
    for (size_t a = 0; a < n_; ++a) {
      size_t at = 0;
      while (at < members.size() && !Fits(a, members[at])) ++at;
      if (at == members.size()) members.emplace_back();
      members[at].push_back(a);
      wide.push_back(static_cast<int>(at));
    }
    return wide;
  }

 private:
  const LinkSpec& Link(size_t a, size_t b) const { return p_.links[a * n_ + b]; }

  bool Fits(size_t a, const std::vector<size_t>& members) const {
    const size_t first = members.front();
    if (p_.shares[a] != p_.shares[first] || !AlikeLinks(p_.uplinks[a], p_.uplinks[first]))
      return false;
    for (size_t c = 0; c < n_; ++c) {
      if (c == a || c == first) continue;
      if (!AlikeLinks(Link(a, c), Link(first, c)) || !AlikeLinks(Link(c, a), Link(c, first)))
        return false;
    }
    // Between two members as from each to a third.
    const auto with = [&](size_t b, const LinkSpec& link) {
      return AlikeLinks(Link(a, b), link) && AlikeLinks(Link(b, a), link);
    };
    if (p_.machines[a] > 1 && !with(first, Link(a, a))) return false;
    if (p_.machines[first] > 1) return with(first, Link(first, first));
    return members.size() == 1 || with(first, Link(first, members[1]));
  }

  const PlaceLinks& p_;
  const size_t n_;
};

}  // namespace

std::vector<int> WidePlaces(const PlaceLinks& places) { return Wide(places).Run(); }

std::vector<int> AlikePlaces(const PlaceLinks& places) { return Alike(places).Run(); }

std::vector<int> NearPlaces(const PlaceLinks& places) {
  const auto n = static_cast<size_t>(places.places());
  const auto apart = [&](size_t a, size_t b) {
    return std::max(places.near_seconds[a * n + b], places.near_seconds[b * n + a]);
  };
  const auto counts = [&](size_t a, size_t b) { return a != b || places.machines[a] > 1; };
  std::vector<double> nearest(n, std::numeric_limits<double>::infinity());
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) {
      if (counts(a, b)) nearest[a] = std::min(nearest[a], apart(a, b));
    }
  }
  std::vector<size_t> root(n);
  std::iota(root.begin(), root.end(), size_t{0});
  const auto find = [&](size_t a) {
    while (root[a] != a) a = root[a] = root[root[a]];
    return a;
  };
  std::vector<bool> lonely(n, true);
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = a; b < n; ++b) {
      if (!counts(a, b) || !(apart(a, b) <= kNear * std::min(nearest[a], nearest[b]))) continue;
      lonely[a] = lonely[b] = false;
      const size_t low = std::min(find(a), find(b)), high = std::max(find(a), find(b));
      root[high] = low;
    }
  }
  std::vector<int> groups(n, -1);
  int next = 0;
  for (size_t a = 0; a < n; ++a) {
    if (lonely[a]) continue;
    const size_t first = find(a);  // the lowest of its group, which has its number by now
    groups[a] = first == a ? next++ : groups[first];
  }
  return groups;
}

}  // namespace tessera::scheduler
