#include "scheduler/planner/spot.h"

#include <algorithm>
#include <cmath>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kRounding = 1e-9;
constexpr int kMaxExtra = 1000;

// Spot machines: whole ones, so that the share is never exceeded.
int HopedFor(double share, int machines) {
  return static_cast<int>(std::floor(share * machines + kRounding));
}

// Its name, or one of the copies "name.1" ... that a market offers.
bool Names(const v1::Machine& machine, const std::string& node) {
  if (machine.available() <= 1) return node == machine.name();
  const size_t dot = node.rfind('.');
  return dot != std::string::npos && node.substr(0, dot) == machine.name();
}

v1::SpotMix MixOf(const v1::Machine& machine, const SpotOptions& options, int target) {
  const int copies = std::max(1, machine.available());
  const int extra = target > 0 ? std::min(options.extra, copies - target) : 0;
  const int offered = machine.spot_available() > 0 ? machine.spot_available() : copies;
  const int spot = std::min(offered, HopedFor(options.share, target + extra));
  v1::SpotMix mix;
  mix.set_machine(machine.name());
  mix.set_target(target);
  mix.set_spot(spot);
  mix.set_on_demand(OnDemand(target, extra, spot));
  mix.set_usd_per_hour(mix.on_demand() * machine.price_usd_per_hour() +
                       spot * machine.spot_price_usd_per_hour());
  mix.set_available(copies);
  mix.set_extra(extra);
  mix.set_asked_extra(options.extra);
  mix.set_few_spot(spot < HopedFor(options.share, target + extra));
  return mix;
}

}  // namespace

absl::Status CheckSpot(const v1::Cluster& cluster, const SpotOptions& options,
                       std::string_view file) {
  if (!(options.share >= 0) || options.share > 1)
    return absl::InvalidArgumentError("--spot-share: must lie between 0 and 1");
  if (options.extra < 0 || options.extra > kMaxExtra)
    return absl::InvalidArgumentError(
        StrCat("--spot-extra: must be a number of machines from 0 to ", kMaxExtra));
  bool offered = false;
  for (int i = 0; i < cluster.machines_size(); ++i) {
    const v1::Machine& machine = cluster.machines(i);
    const std::string key = StrCat(file, ": machines[", i, "].");
    if (machine.spot_available() < 0)
      return absl::InvalidArgumentError(StrCat(key, "spot_available: must not be negative"));
    if (machine.spot_available() > std::max(1, machine.available()))
      return absl::InvalidArgumentError(StrCat(key,
                                               "spot_available: more machines than are available (",
                                               std::max(1, machine.available()), ")"));
    if (machine.spot_price_usd_per_hour() <= 0) {
      if (machine.spot_available() > 0)
        return absl::InvalidArgumentError(
            StrCat(key, "spot_available: needs spot_price, for example \"1.2 USD/h\""));
      continue;
    }
    offered = true;
    if (machine.price_usd_per_hour() <= 0)
      return absl::InvalidArgumentError(
          StrCat(key, "spot_price: needs price as well, what the machine costs on demand"));
    if (machine.spot_price_usd_per_hour() > machine.price_usd_per_hour())
      return absl::InvalidArgumentError(
          StrCat(key, "spot_price: is above price; leave it out, on demand is cheaper"));
  }
  if (options.extra > 0 && options.share <= 0)
    return absl::InvalidArgumentError("--spot-extra: needs --spot-share above 0");
  if (options.share > 0 && !offered)
    return absl::InvalidArgumentError(StrCat("--spot-share: no machine of ", file,
                                             " has a spot_price, for example \"1.2 USD/h\""));
  return absl::OkStatus();
}

int OnDemand(int target, int extra, int ready_spot) {
  return std::clamp(target + extra - ready_spot, 0, target);
}

v1::Cluster WithSpotPrices(const v1::Cluster& cluster, const SpotOptions& options) {
  v1::Cluster priced = cluster;
  if (options.share <= 0) return priced;
  for (v1::Machine& machine : *priced.mutable_machines()) {
    if (machine.spot_price_usd_per_hour() <= 0) continue;
    // Never above what machines will cost, so that bounds within a budget stay bounds.
    machine.set_price_usd_per_hour((1 - options.share) * machine.price_usd_per_hour() +
                                   options.share * machine.spot_price_usd_per_hour());
  }
  return priced;
}

std::vector<v1::SpotMix> SpotMixes(const v1::Cluster& cluster, const SpotOptions& options,
                                   const std::set<std::string>& used) {
  std::vector<v1::SpotMix> mixes;
  if (options.share <= 0) return mixes;
  for (const v1::Machine& machine : cluster.machines()) {
    if (machine.spot_price_usd_per_hour() <= 0) continue;
    const auto target = static_cast<int>(std::count_if(
        used.begin(), used.end(), [&](const std::string& node) { return Names(machine, node); }));
    if (target > 0) mixes.push_back(MixOf(machine, options, target));
  }
  return mixes;
}

void PriceSpot(const v1::Cluster& cluster, const SpotOptions& options, ClusterGraph* graph) {
  if (options.share <= 0) return;
  for (const v1::Machine& machine : cluster.machines()) {
    if (machine.spot_price_usd_per_hour() <= 0) continue;
    std::vector<int> copies;
    std::vector<double> prices = {0};
    for (size_t m = 0; m < graph->machines().size(); ++m) {
      if (!Names(machine, graph->machines()[m].name)) continue;
      copies.push_back(static_cast<int>(m));
      prices.push_back(MixOf(machine, options, static_cast<int>(copies.size())).usd_per_hour());
    }
    graph->PriceTogether(copies, std::move(prices));
  }
}

bool IsIn(const std::vector<v1::SpotMix>& mixes, const std::string& machine) {
  return std::any_of(mixes.begin(), mixes.end(), [&](const v1::SpotMix& mix) {
    return machine == mix.machine() || machine.substr(0, machine.rfind('.')) == mix.machine();
  });
}

v1::SpotTerms SpotTermsOf(const SpotOptions& options) {
  v1::SpotTerms terms;
  terms.set_share(options.share);
  terms.set_extra(options.extra);
  return terms;
}

}  // namespace tessera::scheduler
