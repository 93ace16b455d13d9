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
      carried_(links_.size(), 0),
      background_(links_.size()),
      flows_on_(links_.size(), 0),
      next_finish_(kInfinity),
      room_(links_.size()),
      part_(links_.size()),
      open_(links_.size()),
      flows_of_(links_.size()) {}

void KvNetwork::Advance(double now) {
  if (now == now_) return;
  Settle();
  for (Flow& flow : flows_) {
    const double sent = std::min(flow.left, flow.rate * (now - now_));
    flow.left -= sent;
    for (const int link : flow.links) carried_[static_cast<size_t>(link)] += sent;
  }
  now_ = now;
}

void KvNetwork::Change() {
  ++version_;
  changed_ = true;
}

void KvNetwork::Count(const Flow& flow, int more) {
  for (const int link : flow.links) {
    const auto l = static_cast<size_t>(link);
    if (flows_on_[l] == 0) in_use_.push_back(l);
    flows_on_[l] += more;
    if (flows_on_[l] == 0) std::erase(in_use_, l);
  }
}

std::vector<KvNetwork::Flow>::iterator KvNetwork::Find(int64_t flow) {
  return std::lower_bound(flows_.begin(), flows_.end(), flow,
                          [](const Flow& a, int64_t id) { return a.id < id; });
}

int64_t KvNetwork::Start(const std::vector<int>& links, double bytes, int64_t done, double now) {
  Advance(now);
  // Without a link it is through at once.
  flows_.push_back({++started_, links, links.empty() ? 0 : bytes, 1, done});
  Count(flows_.back(), 1);
  Change();
  return started_;
}

void KvNetwork::Extend(int64_t flow, double bytes, double now) {
  Advance(now);
  Flow& extended = *Find(flow);
  if (!extended.links.empty()) extended.left += bytes;
  finish_known_ = false;  // rates stay
}

void KvNetwork::Drop(int64_t flow, double now) {
  Advance(now);
  const auto dropped = Find(flow);
  if (dropped == flows_.end() || dropped->id != flow) return;
  Count(*dropped, -1);
  flows_.erase(dropped);
  Change();
}

std::vector<int64_t> KvNetwork::Finished(double now) {
  Advance(now);
  Settle();
  std::vector<int64_t> done;
  std::erase_if(flows_, [&](const Flow& flow) {
    // What is left may take less than time can tell.
    const bool through = flow.left <= kCrumbBytes || now + flow.left / flow.rate <= now;
    if (!through) return false;
    done.push_back(flow.done);
    Count(flow, -1);
    return true;
  });
  Change();
  return done;
}

double KvNetwork::next_finish_seconds() {
  Settle();
  if (std::exchange(finish_known_, true)) return next_finish_;
  next_finish_ = kInfinity;
  for (const Flow& flow : flows_)
    next_finish_ = std::min(next_finish_, now_ + flow.left / flow.rate);
  return next_finish_;
}

double KvNetwork::RateOf(int64_t flow) {
  Settle();
  return Find(flow)->rate;
}

double KvNetwork::RoomOf(size_t link, double senders) const {
  const SharedLink& l = links_[link];
  const double beyond = std::max(0.0, senders - l.incast_threshold);
  return 1 / (1 / l.bytes_per_second + beyond * l.incast_seconds_per_byte);
}

void KvNetwork::SetBackground(const std::vector<Background>& background, double now) {
  if (background == background_) return;
  Advance(now);
  background_ = background;
  if (!flows_.empty()) Change();
}

double KvNetwork::RateOfHop(const std::vector<int>& links, double own_bytes_per_second) const {
  double rate = kInfinity;
  for (const int link : links) {
    const auto l = static_cast<size_t>(link);
    const double others = std::max(0.0, background_[l].bytes_per_second - own_bytes_per_second);
    const double flows = flows_on_[l];
    // Its own sending may be part of the background already; a sender is counted once.
    const double senders = flows + std::max(1, background_[l].senders);
    const double room = RoomOf(l, senders);
    rate = std::min(rate, std::max(room - others, kMinLeft * room) / (flows + 1));
  }
  return rate;
}

void KvNetwork::Settle() {
  if (!std::exchange(changed_, false)) return;
  used_ = in_use_;
  for (const size_t l : used_) {
    const Background& background = background_[l];
    const double all = RoomOf(l, flows_on_[l] + background.senders);
    room_[l] = std::max(all - background.bytes_per_second, kMinLeft * all);
    flows_of_[l].clear();
    open_[l] = flows_on_[l];
  }
  size_t left = 0;
  for (Flow& flow : flows_) {
    flow.fixed = flow.links.empty();
    if (flow.fixed) continue;
    ++left;
    for (const int link : flow.links) flows_of_[static_cast<size_t>(link)].push_back(&flow);
  }
  while (left > 0) {
    double least = kInfinity;  // by which the fullest link can still raise each of its flows
    for (const size_t l : used_) {
      part_[l] = room_[l] / open_[l];
      least = std::min(least, part_[l]);
    }
    fixed_.clear();
    for (const size_t l : used_) {
      if (part_[l] > least * (1 + 1e-12)) continue;
      for (Flow* flow : flows_of_[l]) {
        if (!std::exchange(flow->fixed, true)) fixed_.push_back(flow);
      }
    }
    for (Flow* flow : fixed_) {
      flow->rate = least;
      for (const int link : flow->links) {
        room_[static_cast<size_t>(link)] -= least;
        --open_[static_cast<size_t>(link)];
      }
    }
    left -= fixed_.size();
    std::erase_if(used_, [&](size_t l) { return open_[l] == 0; });
  }
  finish_known_ = false;
}

}  // namespace tessera::scheduler
