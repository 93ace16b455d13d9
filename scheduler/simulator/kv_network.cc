#include "scheduler/simulator/kv_network.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Bytes under which a flow is through: rounding leaves crumbs.
constexpr double kCrumbBytes = 1e-3;
// The part of a link that KV always has, however much activations take: sums of averages may exceed
// it for a while.
constexpr double kMinLeft = 0.05;

}  // namespace

KvNetwork::KvNetwork(std::vector<SharedLink> links)
    : links_(std::move(links)),
      flows_on_(links_.size()),
      carried_(links_.size(), 0),
      background_(links_.size()),
      next_finish_(kInfinity),
      room_(links_.size()),
      part_(links_.size()),
      open_(links_.size()),
      link_found_(links_.size(), false) {}

void KvNetwork::Advance(double now) {
  if (now == now_) return;
  Settle();
  now_ = now;
}

void KvNetwork::Send(Flow* flow) {
  const double sent = std::min(flow->left, flow->rate * (now_ - flow->since));
  flow->left -= sent;
  flow->since = now_;
  for (const int link : flow->links) carried_[static_cast<size_t>(link)] += sent;
}

void KvNetwork::Remove(int place) {
  Flow& flow = flows_[static_cast<size_t>(place)];
  for (const int link : flow.links) {
    std::vector<int>& on = flows_on_[static_cast<size_t>(link)];
    on.erase(std::find(on.begin(), on.end(), place));
    changed_.push_back(link);
  }
  flow.links.clear();
  free_places_.push_back(place);
  ++version_;
  finish_known_ = false;
}

std::vector<int>::iterator KvNetwork::Find(int64_t flow) {
  return std::lower_bound(order_.begin(), order_.end(), flow, [&](int place, int64_t id) {
    return flows_[static_cast<size_t>(place)].id < id;
  });
}

int64_t KvNetwork::Start(const std::vector<int>& links, double bytes, int64_t done, double now) {
  Advance(now);
  if (free_places_.empty()) {
    free_places_.push_back(static_cast<int>(flows_.size()));
    flows_.emplace_back();
  }
  const int place = free_places_.back();
  free_places_.pop_back();
  Flow& flow = flows_[static_cast<size_t>(place)];
  // Without a link it is through at once.
  flow = {++started_, links, links.empty() ? 0 : bytes, now, links.empty() ? 1.0 : 0.0, now, done};
  for (const int link : links) {
    flows_on_[static_cast<size_t>(link)].push_back(place);
    changed_.push_back(link);
  }
  order_.push_back(place);
  ++version_;
  finish_known_ = false;
  return started_;
}

void KvNetwork::Extend(int64_t flow, double bytes, double now) {
  Advance(now);
  Flow& extended = flows_[static_cast<size_t>(*Find(flow))];
  if (extended.links.empty()) return;
  Send(&extended);
  extended.left += bytes;
  // Rates stay; one that has none yet gets it with its finish.
  if (extended.rate > 0) extended.finish = now_ + extended.left / extended.rate;
  finish_known_ = false;
}

void KvNetwork::Drop(int64_t flow, double now) {
  Advance(now);
  const auto dropped = Find(flow);
  if (dropped == order_.end() || flows_[static_cast<size_t>(*dropped)].id != flow) return;
  Send(&flows_[static_cast<size_t>(*dropped)]);
  Remove(*dropped);
  order_.erase(dropped);
}

std::vector<int64_t> KvNetwork::Finished(double now) {
  Advance(now);
  Settle();
  std::vector<int64_t> done;
  std::erase_if(order_, [&](int place) {
    Flow& flow = flows_[static_cast<size_t>(place)];
    const double left = flow.left - flow.rate * (now - flow.since);
    // What is left may take less than time can tell.
    const bool through = flow.finish <= now || left <= kCrumbBytes || now + left / flow.rate <= now;
    if (!through) return false;
    done.push_back(flow.done);
    Send(&flow);
    Remove(place);
    return true;
  });
  return done;
}

double KvNetwork::next_finish_seconds() {
  Settle();
  if (std::exchange(finish_known_, true)) return next_finish_;
  next_finish_ = kInfinity;
  for (const int place : order_)
    next_finish_ = std::min(next_finish_, flows_[static_cast<size_t>(place)].finish);
  return next_finish_;
}

double KvNetwork::RateOf(int64_t flow) {
  Settle();
  return flows_[static_cast<size_t>(*Find(flow))].rate;
}

double KvNetwork::RoomOf(size_t link, double senders) const {
  const SharedLink& l = links_[link];
  const double beyond = std::max(0.0, senders - l.incast_threshold);
  return 1 / (1 / l.bytes_per_second + beyond * l.incast_seconds_per_byte);
}

void KvNetwork::SetBackground(int link, const Background& background, double now) {
  Background& there = background_[static_cast<size_t>(link)];
  if (background == there) return;
  Advance(now);
  there = background;
  if (!flows_on_[static_cast<size_t>(link)].empty()) changed_.push_back(link);
}

double KvNetwork::RateOfHop(const std::vector<int>& links, double own_bytes_per_second) const {
  double rate = kInfinity;
  for (const int link : links) {
    const auto l = static_cast<size_t>(link);
    const double others = std::max(0.0, background_[l].bytes_per_second - own_bytes_per_second);
    const auto flows = static_cast<double>(flows_on_[l].size());
    // Its own sending may be part of the background already; a sender is counted once.
    const double senders = flows + std::max(1, background_[l].senders);
    const double room = RoomOf(l, senders);
    rate = std::min(rate, std::max(room - others, kMinLeft * room) / (flows + 1));
  }
  return rate;
}

void KvNetwork::Settle() {
  if (changed_.empty()) return;
  FindChanged();
  ShareOut();
  finish_known_ = false;
}

void KvNetwork::FindChanged() {
  used_.clear();
  found_.clear();
  const auto add = [&](int link) {
    const auto l = static_cast<size_t>(link);
    if (link_found_[l] || flows_on_[l].empty()) return;
    link_found_[l] = true;
    used_.push_back(link);
  };
  for (const int link : changed_) add(link);
  changed_.clear();
  for (size_t i = 0; i < used_.size(); ++i) {  // grows
    for (const int place : flows_on_[static_cast<size_t>(used_[i])]) {
      Flow& flow = flows_[static_cast<size_t>(place)];
      if (std::exchange(flow.found, true)) continue;
      found_.push_back(place);
      for (const int link : flow.links) add(link);
    }
  }
}

void KvNetwork::ShareOut() {
  for (const int link : used_) {
    const auto l = static_cast<size_t>(link);
    const Background& background = background_[l];
    const auto flows = static_cast<int>(flows_on_[l].size());
    const double all = RoomOf(l, flows + background.senders);
    room_[l] = std::max(all - background.bytes_per_second, kMinLeft * all);
    open_[l] = flows;
    link_found_[l] = false;
  }
  for (const int place : found_) {
    Flow& flow = flows_[static_cast<size_t>(place)];
    Send(&flow);
    flow.found = flow.fixed = false;
  }
  size_t left = found_.size();
  while (left > 0) {
    double least = kInfinity;  // by which the fullest link can still raise each of its flows
    for (const int link : used_) {
      const auto l = static_cast<size_t>(link);
      part_[l] = room_[l] / open_[l];
      least = std::min(least, part_[l]);
    }
    fixed_.clear();
    for (const int link : used_) {
      const auto l = static_cast<size_t>(link);
      if (part_[l] > least * (1 + 1e-12)) continue;
      for (const int place : flows_on_[l]) {
        if (!std::exchange(flows_[static_cast<size_t>(place)].fixed, true)) fixed_.push_back(place);
      }
    }
    for (const int place : fixed_) {
      Flow& flow = flows_[static_cast<size_t>(place)];
      flow.rate = least;
      flow.finish = now_ + flow.left / least;
      for (const int link : flow.links) {
        room_[static_cast<size_t>(link)] -= least;
        --open_[static_cast<size_t>(link)];
      }
    }
    left -= fixed_.size();
    std::erase_if(used_, [&](int link) { return open_[static_cast<size_t>(link)] == 0; });
  }
}

}  // namespace tessera::scheduler
