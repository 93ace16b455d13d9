#include "scheduler/simulator/kv_network.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Bytes under which a flow is through: rounding leaves crumbs.
constexpr double kCrumbBytes = 1e-3;
// Of a link, however much activations take: sums of averages may exceed it for a while.
constexpr double kLeastLeft = 0.05;

}  // namespace

KvNetwork::KvNetwork(std::vector<SharedLink> links)
    : links_(std::move(links)),
      carried_(links_.size(), 0),
      background_(links_.size()),
      flows_on_(links_.size(), 0),
      next_finish_(kInfinity) {}

void KvNetwork::Advance(double now) {
  for (auto& [id, flow] : flows_) {
    const double sent = std::min(flow.left, flow.rate * (now - now_));
    flow.left -= sent;
    for (const int link : flow.links) carried_[static_cast<size_t>(link)] += sent;
  }
  now_ = now;
}

int64_t KvNetwork::Start(const std::vector<int>& links, double bytes, int64_t done, double now) {
  Advance(now);
  // Without a link it is through at once.
  flows_[++started_] = {links, links.empty() ? 0 : bytes, 1, done};
  Share();
  return started_;
}

void KvNetwork::Extend(int64_t flow, double bytes, double now) {
  Advance(now);
  Flow& extended = flows_.at(flow);
  if (!extended.links.empty()) extended.left += bytes;
  Share();
}

void KvNetwork::Drop(int64_t flow, double now) {
  Advance(now);
  flows_.erase(flow);
  Share();
}

std::vector<int64_t> KvNetwork::Finished(double now) {
  Advance(now);
  std::vector<int64_t> done;
  for (auto it = flows_.begin(); it != flows_.end();) {
    // What is left may take less than time can tell.
    const bool through =
        it->second.left <= kCrumbBytes || now + it->second.left / it->second.rate <= now;
    if (through) done.push_back(it->second.done);
    it = through ? flows_.erase(it) : std::next(it);
  }
  Share();
  return done;
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
  if (!flows_.empty()) Share();
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
    rate = std::min(rate, std::max(room - others, kLeastLeft * room) / (flows + 1));
  }
  return rate;
}

void KvNetwork::Share() {
  ++version_;
  std::vector<double> room(links_.size());
  flows_on_.assign(links_.size(), 0);
  for (const auto& [id, flow] : flows_) {
    for (const int link : flow.links) ++flows_on_[static_cast<size_t>(link)];
  }
  std::vector<int> open = flows_on_;
  for (size_t l = 0; l < links_.size(); ++l) {
    const Background& background = background_[l];
    const double all = RoomOf(l, open[l] + background.senders);
    room[l] = std::max(all - background.bytes_per_second, kLeastLeft * all);
  }
  std::vector<Flow*> left;
  for (auto& [id, flow] : flows_) {
    if (!flow.links.empty()) left.push_back(&flow);
  }
  while (!left.empty()) {
    double least = kInfinity;  // by which the fullest link can still raise each of its flows
    for (size_t l = 0; l < links_.size(); ++l) {
      if (open[l] > 0) least = std::min(least, room[l] / open[l]);
    }
    std::vector<Flow*> rest;
    std::vector<Flow*> fixed;
    for (Flow* flow : left) {
      const bool full = std::any_of(flow->links.begin(), flow->links.end(), [&](int l) {
        const auto link = static_cast<size_t>(l);
        return room[link] / open[link] <= least * (1 + 1e-12);
      });
      (full ? fixed : rest).push_back(flow);
    }
    for (Flow* flow : fixed) {
      flow->rate = least;
      for (const int link : flow->links) {
        room[static_cast<size_t>(link)] -= least;
        --open[static_cast<size_t>(link)];
      }
    }
    left = std::move(rest);
  }
  next_finish_ = kInfinity;
  for (const auto& [id, flow] : flows_)
    next_finish_ = std::min(next_finish_, now_ + flow.left / flow.rate);
}

}  // namespace tessera::scheduler
