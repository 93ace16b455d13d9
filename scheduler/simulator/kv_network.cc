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

}  // namespace

KvNetwork::KvNetwork(std::vector<SharedLink> links)
    : links_(std::move(links)), carried_(links_.size(), 0), next_finish_(kInfinity) {}

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

void KvNetwork::Share() {
  std::vector<double> room(links_.size());
  std::vector<int> open(links_.size(), 0);
  for (const auto& [id, flow] : flows_) {
    for (const int link : flow.links) ++open[static_cast<size_t>(link)];
  }
  for (size_t l = 0; l < links_.size(); ++l) {
    const double beyond = std::max(0.0, open[l] - links_[l].incast_threshold);
    room[l] = 1 / (1 / links_[l].bytes_per_second + beyond * links_[l].incast_seconds_per_byte);
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
