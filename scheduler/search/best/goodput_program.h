// Which of the replicas known serve most together within their limits, and what that makes devices
// and roles worth.
//
// A column c is a replica on a device set, valued by what it serves alone, r_c requests per second
// (goodput.h); of it there are y_c. Split ones meet in places, which are machines (or twin_pools;
// where these are many, groups), in each of which a replica has the part a of its layers:
//   max  sum over role both r_c y_c + sum over places p, q of s_pq
//   sum over c of devices_c y_c <= devices, of each kind of pools
//   sum over q of s_pq <= sum over prefilling c of a_cp r_c y_c, for all p
//   sum over p of s_pq <= sum over decoding c of a_cq r_c y_c, for all q
//   0 <= s_pq <= what half of the links between the two places carries: with more KV comes late
// Of twins no more have a replica of more than half of their devices than there are.
// Its relaxation prices devices and, by place, prefilling and decoding. That the layers of two
// replicas match, and that each side may use up the limits that both share, is left out: what a
// deal of whole columns really served is learnt. Thread rule: one thread per object; borrows what
// it is given. Units: requests per second.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "scheduler/search/best/column_program.h"
#include "scheduler/search/best/twin_pools.h"
#include "scheduler/search/layout/device_groups.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

class GoodputProgram {
 public:
  using Counts = TwinPools::Counts;

  GoodputProgram(const PlacementProblem& problem, const TwinPools& twins);

  // The best replica of one role on copies of one set stays.
  void Add(const PlacedReplica& replica);
  bool empty() const { return columns_.empty(); }
  // The replica of that role on the first copy of the set; null: there is none. Until the next Add.
  const PlacedReplica* Find(Role role, const Counts& set) const;

  // Solves the relaxation, without `split` for role both alone. False: it has no solution.
  bool Relax(bool split);
  double value() const { return value_; }
  Grouping used() const;  // the columns that the relaxation uses; copies of a set are one
  double PriceOf(const Counts& set) const;
  // By pool: what one device more would bring, in requests per second.
  std::vector<double> DevicePrices() const;
  // What a request per second is worth of a replica of this role on this set.
  double WorthOf(Role role, const Counts& set) const;

  // Replicas of role both whose rate is worth at least this part of the price of their devices.
  std::vector<PlacedReplica> NearPrice(double part) const;

  // Whole columns that serve most together, none of them where nothing serves.
  std::vector<PlacedReplica> Pack(bool split);
  double packed_value() const { return packed_value_; }  // that they should serve
  // Replicas that prefill or decode served less in this placement, which was made of `dealt`, than
  // their columns say: those come down towards that. False: none did.
  bool Learn(const std::vector<PlacedReplica>& dealt, const Placement& placement);

 private:
  using Parts = std::vector<std::pair<size_t, double>>;  // place, part of the layers
  struct Known {
    PlacedReplica replica;  // its rate stays what was given
    Counts used;
    Column column;  // devices of group g of twins at 2 * g, pools of which it has most behind them
  };

  void MakePlaces();
  Counts ByGroup(const Counts& set) const;  // as Column::devices
  double PriceOf(const Column& column) const;
  Counts UsedBy(const PlacedReplica& replica) const;
  Parts PartsOf(const PlacedReplica& replica) const;
  double WorthOf(Role role, const Parts& parts) const;
  bool Solve(bool whole, bool split, const std::vector<size_t>& chosen,
             std::vector<double>* values);
  void PriceUnusedRoles();
  // At the prices, columns that come closest; and those that were packed the last time.
  std::vector<size_t> Promising(bool split) const;
  std::vector<PlacedReplica> Placed(const std::vector<size_t>& columns) const;

  const PlacementProblem& problem_;
  const std::vector<DevicePool>& pools_;
  const TwinPools& twins_;
  std::vector<size_t> place_of_;            // by pool
  std::vector<std::vector<double>> links_;  // s_pq at most
  std::vector<Known> columns_;
  std::map<std::pair<Role, Counts>, size_t> column_of_;
  std::vector<double> copies_;                          // by column; of the relaxation
  std::vector<double> prices_;                          // as Column::devices
  std::vector<double> prefill_prices_, decode_prices_;  // by place
  double value_ = 0, packed_value_ = 0;
  // Programs are solved once for the columns that are there.
  struct Packing {
    int64_t version = -1;
    int64_t whole_version = -1;  // of the packing without split ones that it began with
    double value = 0;
    std::vector<size_t> columns;
  };
  Packing packed_[2];                               // the last time, without and with split ones
  int64_t version_ = 0;                             // of the columns and their rates
  std::pair<int64_t, bool> relaxed_ = {-1, false};  // version, with split ones
};

}  // namespace tessera::scheduler
