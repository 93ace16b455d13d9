#include "kvcache/snapshot_index.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace tessera::kvcache {

void SnapshotHold::Clear() {
  if (place_ != kNone) index_->Release(std::exchange(place_, kNone));
}

uint64_t SnapshotHold::name() const {
  return place_ == kNone ? 0 : index_->places_[static_cast<size_t>(place_)].name;
}

SnapshotIndex::SnapshotIndex(int32_t places) : places_(static_cast<size_t>(places)) {
  for (int32_t place = places; place > 0; --place) empty_.push_back(place - 1);
}

SnapshotHold SnapshotIndex::Use(PrefixNode node) {
  const auto found = by_node_.find(node);
  if (found == by_node_.end()) return {};
  ++uses_;
  for (auto at = found; at != by_node_.end();) {
    Place& place = places_[static_cast<size_t>(at->second)];
    place.used = uses_;
    at = by_node_.find(place.before);
  }
  ++places_[static_cast<size_t>(found->second)].holds;
  return {this, found->second};
}

SnapshotHold SnapshotIndex::Reserve() {
  if (empty_.empty()) {
    const int32_t victim = Victim();
    if (victim == SnapshotHold::kNone) return {};
    Forget(victim);
  }
  const int32_t number = empty_.back();
  empty_.pop_back();
  places_[static_cast<size_t>(number)] = {.name = ++names_, .holds = 1};
  return {this, number};
}

void SnapshotIndex::Commit(const SnapshotHold& hold, PrefixNode node, int64_t position,
                           PrefixNode before) {
  if (!by_node_.emplace(node, hold.place()).second) return;
  Place& place = places_[static_cast<size_t>(hold.place())];
  place.node = node;
  place.before = before;
  place.position = position;
  place.used = ++uses_;
}

void SnapshotIndex::Erase(PrefixNode node) {
  if (const auto found = by_node_.find(node); found != by_node_.end()) Forget(found->second);
}

void SnapshotIndex::Release(int32_t number) {
  Place& place = places_[static_cast<size_t>(number)];
  if (--place.holds == 0 && place.node == 0) empty_.push_back(number);
}

// Those behind it have the one before it as their neighbour from now on.
void SnapshotIndex::Forget(int32_t number) {
  Place& place = places_[static_cast<size_t>(number)];
  for (Place& other : places_) {
    if (other.node != 0 && other.before == place.node) other.before = place.before;
  }
  by_node_.erase(place.node);
  place.node = 0;
  if (place.holds == 0) empty_.push_back(number);
}

int32_t SnapshotIndex::Victim() const {
  std::unordered_map<PrefixNode, int64_t> nearest;  // position of the next snapshot behind a node
  for (const Place& place : places_) {
    if (place.node == 0 || place.before == 0) continue;
    const auto [it, is_new] = nearest.emplace(place.before, place.position);
    if (!is_new) it->second = std::min(it->second, place.position);
  }
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();  // of a first or last one
  const auto gap = [&](const Place& place) {
    const auto before = by_node_.find(place.before);
    const auto behind = nearest.find(place.node);
    if (before == by_node_.end() || behind == nearest.end()) return kEnd;
    return behind->second - places_[static_cast<size_t>(before->second)].position;
  };
  int32_t victim = SnapshotHold::kNone;
  std::tuple<int64_t, uint64_t, int64_t> least;
  for (int32_t i = 0; i < places(); ++i) {
    const Place& place = places_[static_cast<size_t>(i)];
    if (place.node == 0 || place.holds > 0) continue;
    // On a way that was used at one time, what is farthest from its start goes first.
    const std::tuple rank(gap(place), place.used, -place.position);
    if (victim != SnapshotHold::kNone && rank >= least) continue;
    victim = i;
    least = rank;
  }
  return victim;
}

}  // namespace tessera::kvcache
