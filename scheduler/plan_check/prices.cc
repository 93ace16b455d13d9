#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/plan_check/parts.h"

namespace tessera::scheduler {
namespace {

constexpr double kRelative = 1e-3;  // shares of the routing are rounded
constexpr double kCents = 1e-9;

bool Near(double a, double b) {
  return std::abs(a - b) <= kRelative * std::max(std::abs(a), std::abs(b)) + kCents;
}

// USD per hour of one device; least and most differ where its machine may be rented as spot. Those
// that are used of a machine with a price pay all of it, each as much as the next.
struct Price {
  double least = 0, most = 0;
  bool spot = false;
};

class PriceCheck {
 public:
  PriceCheck(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
             const std::map<std::string, double>& kind_prices)
      : plan_(plan) {
    for (const v1::SpotMix& mix : plan.spot()) mixes_[mix.machine()] = &mix;
    for (const v1::Replica& replica : plan.replicas()) {
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers()) ++used_[CopyOf(worker)];
      }
    }
    for (const v1::Machine& machine : cluster.machines()) AddMachine(machine, kind_prices);
  }

  absl::Status Run() const {
    if (absl::Status s = CheckMixes(); !s.ok()) return s;
    std::map<std::string, double> sent;
    for (const v1::RoutingShare& share : plan_.routing()) {
      sent[share.decode_replica()] += share.share();
    }
    double least = 0, most = 0;
    bool known = true;
    for (const v1::Replica& replica : plan_.replicas()) {
      Price sum;
      bool priced = true;
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers()) {
          const Price& one = devices_.at(worker.device());
          priced = priced && one.most > 0;
          sum.least += one.least;
          sum.most += one.most;
          if (one.spot) continue;  // counted by machine, below
          least += one.least;
          most += one.most;
        }
      }
      known = known && priced;
      const double rate = sent[replica.name()] * plan_.prediction().requests_per_second();
      absl::Status s = CheckUsd(absl::StrCat("replica ", replica.name()), replica.prediction(),
                                rate, sum, priced);
      if (!s.ok()) return s;
    }
    for (const auto& [machine, mix] : mixes_) {
      least += mix->usd_per_hour();
      most += mix->usd_per_hour();
    }
    return CheckUsd("the plan", plan_.prediction(), plan_.prediction().requests_per_second(),
                    {least, most, false}, known);
  }

 private:
  // The machine as the plan names it: of a market one of several copies.
  static std::string CopyOf(const v1::PlannedWorker& worker) {
    return worker.device().substr(0, worker.device().rfind('/'));
  }

  void AddMachine(const v1::Machine& machine, const std::map<std::string, double>& kind_prices) {
    machines_[machine.name()] = &machine;
    for (int copy = 1; copy <= std::max(1, machine.available()); ++copy) {
      const std::string name =
          machine.available() > 1 ? absl::StrCat(machine.name(), ".", copy) : machine.name();
      machine_of_[name] = machine.name();
      int index = 0;
      for (const v1::DeviceGroup& group : machine.devices()) {
        const int used = std::max(1, used_[name]);
        Price price;
        price.most = machine.price_usd_per_hour() > 0 ? machine.price_usd_per_hour() / used
                     : group.price_usd_per_hour() > 0 ? group.price_usd_per_hour()
                                                      : kind_prices.at(group.kind());
        price.least = price.most;
        price.spot = mixes_.contains(machine.name());
        if (price.spot) price.least = machine.spot_price_usd_per_hour() / used;
        for (int i = 0; i < std::max(1, group.count()); ++i)
          devices_[absl::StrCat(name, "/", index++)] = price;
      }
    }
  }

  absl::Status CheckMixes() const {
    std::map<std::string, std::set<std::string>> used;  // copies, by machine
    for (const v1::Replica& replica : plan_.replicas()) {
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers()) {
          const std::string name = CopyOf(worker);
          used[machine_of_.at(name)].insert(name);
        }
      }
    }
    for (const auto& [name, mix] : mixes_) {
      const auto machine = machines_.find(name);
      if (machine == machines_.end() || machine->second->spot_price_usd_per_hour() <= 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("spot: ", name, " is no machine with a spot price"));
      }
      const auto needed = static_cast<int>(used[name].size());
      if (mix->target() != needed || mix->on_demand() < 0 || mix->spot() < 0 ||
          int64_t{mix->on_demand()} + mix->spot() < needed) {
        return absl::InvalidArgumentError(
            absl::StrCat("spot: ", mix->on_demand(), " ", name, " on demand and ", mix->spot(),
                         " as spot are rented for ", mix->target(), "; the plan uses ", needed));
      }
      const double usd = mix->on_demand() * machine->second->price_usd_per_hour() +
                         mix->spot() * machine->second->spot_price_usd_per_hour();
      if (Near(usd, mix->usd_per_hour())) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "spot: %s is said to cost %.4f USD/h; %d on demand and %d as spot cost %.4f", name,
          mix->usd_per_hour(), mix->on_demand(), mix->spot(), usd));
    }
    return absl::OkStatus();
  }

  // USD per million output tokens at so many requests per second.
  absl::Status CheckUsd(const std::string& what, const v1::Prediction& prediction, double rate,
                        const Price& price, bool known) const {
    const double said = prediction.usd_per_million_output_tokens();
    if (said == 0) return absl::OkStatus();
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": USD are predicted, but the price of a device is not known"));
    }
    const double tokens_per_hour = rate * plan_.basis().output_tokens() * 3600;
    const double least = price.least / tokens_per_hour * 1e6;
    const double most = price.most / tokens_per_hour * 1e6;
    if (tokens_per_hour > 0 && (said > least || Near(said, least)) &&
        (said < most || Near(said, most)))
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %.4g USD per million output tokens are predicted; its rented machines "
                        "cost %.4f USD/h, so %.4g",
                        what, said, price.most, most));
  }

  const v1::DeploymentPlan& plan_;
  std::map<std::string, const v1::SpotMix*> mixes_;
  std::map<std::string, const v1::Machine*> machines_;
  std::map<std::string, int> used_;                // devices, by copy
  std::map<std::string, std::string> machine_of_;  // description's name, by copy
  std::map<std::string, Price> devices_;
};

}  // namespace

absl::Status CheckPrices(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                         const std::map<std::string, double>& kind_prices) {
  return PriceCheck(plan, cluster, kind_prices).Run();
}

}  // namespace tessera::scheduler
