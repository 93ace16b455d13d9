#include "scheduler/simulator/hop_sharing.h"

#include <algorithm>
#include <set>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

absl::Status HopSharing::Start(const TransferSetup& transfers, const Replicas& replicas) {
  const size_t links = transfers.links.size();
  std::vector<int> users(links, 0);  // KV counts as two: a hop beside it is not alone
  for (const std::vector<KvStream>& route : transfers.routes) {
    for (const KvStream& stream : route) {
      for (const int link : stream.links) users[static_cast<size_t>(link)] = 2;
    }
  }
  for (const auto& replica : replicas) {
    std::set<int> own;
    for (const std::vector<int>& hop : replica->setup().hop_links)
      own.insert(hop.begin(), hop.end());
    for (const int link : own) {
      if (link < 0 || static_cast<size_t>(link) >= links) {
        return absl::InvalidArgumentError(StrCat("replica ", replica->setup().name,
                                                 ": its activations pass link ", link,
                                                 ", but there are ", links));
      }
      ++users[static_cast<size_t>(link)];
    }
  }
  for (size_t r = 0; r < replicas.size(); ++r) {
    Sharing sharing;
    sharing.replica = static_cast<int>(r);
    bool any = false;
    for (const std::vector<int>& hop : replicas[r]->setup().hop_links) {
      std::vector<int>& shared = sharing.hops.emplace_back();
      for (const int link : hop) {
        if (users[static_cast<size_t>(link)] > 1) shared.push_back(link);
      }
      any |= !shared.empty();
    }
    sharing.delays.assign(sharing.hops.size(), 0);
    if (any) sharing_.push_back(std::move(sharing));
  }
  std::set<int> shared;
  for (const Sharing& s : sharing_) {
    for (const std::vector<int>& hop : s.hops) shared.insert(hop.begin(), hop.end());
  }
  links_.assign(shared.begin(), shared.end());
  background_.resize(links);
  return absl::OkStatus();
}

bool HopSharing::Update(double now, bool started, KvNetwork* network, Replicas& replicas) {
  if (sharing_.empty()) return false;
  bool changed = network->version() != version_;
  for (Sharing& s : sharing_) {
    const double sent = replicas[static_cast<size_t>(s.replica)]->activation_bytes_per_second();
    changed |= sent != s.bytes_per_second;
    s.bytes_per_second = sent;
  }
  if (!changed) return false;
  for (const int link : links_) background_[static_cast<size_t>(link)] = {};
  for (const Sharing& s : sharing_) {
    if (s.bytes_per_second <= 0) continue;
    for (const std::vector<int>& hop : s.hops) {
      for (const int link : hop) {
        background_[static_cast<size_t>(link)].bytes_per_second += s.bytes_per_second;
        ++background_[static_cast<size_t>(link)].senders;
      }
    }
  }
  for (const int link : links_)
    network->SetBackground(link, background_[static_cast<size_t>(link)], now);
  version_ = network->version();
  bool cut = false;
  for (Sharing& s : sharing_) {
    delays_.clear();
    for (const std::vector<int>& hop : s.hops) {
      double alone = 0;
      for (const int link : hop) {
        alone = std::max(alone, 1 / network->links()[static_cast<size_t>(link)].bytes_per_second);
      }
      const double shared = hop.empty() ? 0 : 1 / network->RateOfHop(hop, s.bytes_per_second);
      delays_.push_back(std::max(0.0, shared - alone));
    }
    if (delays_ == s.delays) continue;
    replicas[static_cast<size_t>(s.replica)]->SetHopDelays(delays_, now, started);
    s.delays.swap(delays_);
    cut = true;
  }
  return cut;
}

}  // namespace tessera::scheduler
