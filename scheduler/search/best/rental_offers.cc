#include "scheduler/search/best/rental_offers.h"

#include <algorithm>
#include <tuple>

namespace tessera::scheduler {
namespace {

std::vector<std::tuple<const DeviceSpec*, int, double>> DevicesIn(const ClusterGraph& graph,
                                                                  const std::vector<int>& pools) {
  std::vector<std::tuple<const DeviceSpec*, int, double>> devices;
  for (const int p : pools) {
    const DevicePool& pool = graph.pools()[static_cast<size_t>(p)];
    devices.emplace_back(pool.spec, pool.count, pool.price_usd_per_hour);
  }
  return devices;
}

bool AreAlike(const ClusterGraph& graph, int a, int b) {
  const MachineNode& in_a = graph.machines()[static_cast<size_t>(a)];
  const MachineNode& in_b = graph.machines()[static_cast<size_t>(b)];
  return in_a.price_usd_per_hour == in_b.price_usd_per_hour &&
         in_a.priced_with == in_b.priced_with && in_a.place == in_b.place &&
         in_a.inside == in_b.inside;
}

}  // namespace

RentalOffers::RentalOffers(const ClusterGraph& graph) : graph_(graph) {
  std::vector<std::vector<int>> pools_of(graph.machines().size());
  for (size_t p = 0; p < graph.pools().size(); ++p)
    pools_of[static_cast<size_t>(graph.pools()[p].machine)].push_back(static_cast<int>(p));
  struct Group {
    int machine;                 // the first of them
    std::vector<size_t> offers;  // of its pools, or the one of the whole machine
  };
  std::vector<Group> groups;
  for (size_t m = 0; m < pools_of.size(); ++m) {
    const std::vector<int>& pools = pools_of[m];
    if (pools.empty()) continue;
    const bool whole = graph.machines()[m].price_usd_per_hour > 0;
    const auto devices = DevicesIn(graph, pools);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& other) {
      return devices == DevicesIn(graph, pools_of[static_cast<size_t>(other.machine)]) &&
             AreAlike(graph, other.machine, static_cast<int>(m));
    });
    if (group == groups.end()) {
      groups.push_back({static_cast<int>(m), {}});
      group = groups.end() - 1;
      for (size_t i = 0; i < (whole ? 1 : pools.size()); ++i) {
        group->offers.push_back(offers_.size());
        const DevicePool& pool = graph.pools()[static_cast<size_t>(pools[i])];
        offers_.push_back({whole ? graph.machines()[m].price_usd_per_hour : pool.price_usd_per_hour,
                           0,
                           whole,
                           {}});
      }
    }
    for (size_t i = 0; i < pools.size(); ++i) {
      RentalOffer& offer = offers_[group->offers[whole ? 0 : i]];
      offer.pools.push_back(pools[i]);
      if (!whole) offer.available += graph.pools()[static_cast<size_t>(pools[i])].count;
    }
    if (whole) ++offers_[group->offers[0]].available;
  }
  for (RentalOffer& offer : offers_) {
    const int machine = graph.pools()[static_cast<size_t>(offer.pools.front())].machine;
    const int together = graph.machines()[static_cast<size_t>(machine)].priced_with;
    if (!offer.whole || together < 0) continue;
    const std::vector<double>& prices = graph.prices_together()[static_cast<size_t>(together)];
    // Else some of them are unlike the others, and another offer.
    if (prices.size() > static_cast<size_t>(offer.available)) offer.prices = prices;
  }
}

std::vector<int> RentalOffers::Devices(std::span<const int> units) const {
  std::vector<int> devices(graph_.pools().size(), 0);
  for (size_t o = 0; o < offers_.size(); ++o) {
    const RentalOffer& offer = offers_[o];
    int left = units[o];
    const size_t pools_per_unit =
        offer.whole ? offer.pools.size() / static_cast<size_t>(offer.available) : 1;
    for (size_t i = 0; i < offer.pools.size(); ++i) {
      const auto pool = static_cast<size_t>(offer.pools[i]);
      const int count = graph_.pools()[pool].count;
      if (offer.whole) {
        if (i < static_cast<size_t>(left) * pools_per_unit) devices[pool] = count;
      } else {
        devices[pool] = std::min(left, count);
        left -= devices[pool];
      }
    }
  }
  return devices;
}

double RentalOffers::WorthOf(const RentalOffer& offer,
                             std::span<const double> device_worths) const {
  double worth = 0;
  for (const int p : offer.pools) {
    const auto pool = static_cast<size_t>(p);
    worth += device_worths[pool] * graph_.pools()[pool].count;
  }
  return worth / offer.available;
}

}  // namespace tessera::scheduler
