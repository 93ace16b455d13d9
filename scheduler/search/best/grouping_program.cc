#include "scheduler/search/best/grouping_program.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::scheduler {
namespace {

// A grouping of exactly the devices of its front.
struct Point {
  double prefilled = 0, decoded = 0;
  int column = -1;  // the last one added
  int rest = 0;     // the set of the others, and which point of its front they are
  int rest_point = -1;
};

Point Add(const Point& to, const Column& column) {
  Point point = to;
  if (column.role != Role::kDecode) point.prefilled += column.rate;
  if (column.role != Role::kPrefill) point.decoded += column.rate;
  return point;
}

class Fronts {
 public:
  Fronts(const PlacementProblem& problem, const DeviceSets& sets,
         const std::vector<Column>& columns)
      : problem_(problem), sets_(sets), columns_(columns) {
    by_first_pool_.resize(static_cast<size_t>(sets.pools()));
    for (size_t c = 0; c < columns.size(); ++c) {
      set_of_.push_back(sets.IndexOf(columns[c].devices));
      if (Usable(columns[c])) by_first_pool_[FirstPool(set_of_[c])].push_back(static_cast<int>(c));
    }
  }

  std::optional<ColumnGrouping> Best() {
    fronts_.assign(static_cast<size_t>(sets_.size()), {});
    fronts_[0].push_back({});
    int best_set = 0;
    size_t best_point = 0;
    double best_served = 0, best_cost = 0;
    for (const int set : InOrder()) {
      const double cost = sets_.usd_per_hour(set);
      if (problem_.goal == Goal::kPrice && best_served > 0 && cost > best_cost) break;
      if (set > 0) Fill(set);
      for (size_t i = 0; i < fronts_[static_cast<size_t>(set)].size(); ++i) {
        const Point& point = fronts_[static_cast<size_t>(set)][i];
        const double served = std::min(point.prefilled, point.decoded);
        if (!Better(served, cost, best_served, best_cost)) continue;
        best_set = set;
        best_point = i;
        best_served = served;
        best_cost = cost;
      }
    }
    if (best_served <= 0) return std::nullopt;
    return Trace(best_set, best_point);
  }

  // The groupings of the devices in `free` that serve more than `served` together with `chosen`.
  bool GrowAbove(double served, int free, const Point& so_far, size_t most,
                 std::vector<int>* chosen, std::vector<ColumnGrouping>* found) {
    const double cost = sets_.usd_per_hour(sets_.size() - 1 - free);
    if (!chosen->empty() && WithinBudget(cost) &&
        std::min(so_far.prefilled, so_far.decoded) > served) {
      if (found->size() == most) return false;
      found->push_back({*chosen, so_far.prefilled, so_far.decoded, cost});
    }
    const int after = chosen->empty() ? 0 : chosen->back();
    for (size_t c = static_cast<size_t>(after); c < columns_.size(); ++c) {
      const Column& column = columns_[c];
      if (!Usable(column) || !sets_.Within(set_of_[c], free)) continue;
      const Point next = Add(so_far, column);
      const int rest = free - set_of_[c];
      if (!CanExceed(next, rest, served)) continue;
      chosen->push_back(static_cast<int>(c));
      if (!GrowAbove(served, rest, next, most, chosen, found)) return false;
      chosen->pop_back();
    }
    return true;
  }

 private:
  // Every set after those within it. Where the cheapest is wanted those that cost less come first,
  // and others need not be looked at once one serves what is required.
  std::vector<int> InOrder() const {
    std::vector<int> order(static_cast<size_t>(sets_.size()));
    std::iota(order.begin(), order.end(), 0);
    if (problem_.goal != Goal::kPrice) return order;
    std::vector<double> usd;
    for (const int set : order) usd.push_back(sets_.usd_per_hour(set));
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return usd[static_cast<size_t>(a)] < usd[static_cast<size_t>(b)];
    });
    return order;
  }

  size_t FirstPool(int set) const { return static_cast<size_t>(sets_.first_pool(set)); }

  bool Usable(const Column& column) const {
    return column.rate > 0 && (problem_.allow_split || column.role == Role::kBoth);
  }

  bool WithinBudget(double cost) const {
    return problem_.goal != Goal::kBudget || cost <= problem_.budget_usd_per_hour * (1 + 1e-9);
  }

  bool Better(double served, double cost, double best_served, double best_cost) const {
    if (problem_.goal == Goal::kPrice) {
      if (served < problem_.required_requests_per_second * (1 - 1e-6)) return false;
      return best_served <= 0 || cost < best_cost || (cost == best_cost && served > best_served);
    }
    return WithinBudget(cost) && served > best_served;
  }

  void Fill(int set) {
    std::vector<Point> points;
    // The column that holds a device of the set's first pool: others come before or after it.
    for (const int c : by_first_pool_[FirstPool(set)]) {
      const Column& column = columns_[static_cast<size_t>(c)];
      const int part = set_of_[static_cast<size_t>(c)];
      if (!sets_.Within(part, set)) continue;
      const int rest = set - part;
      for (size_t i = 0; i < fronts_[static_cast<size_t>(rest)].size(); ++i) {
        Point point = Add(fronts_[static_cast<size_t>(rest)][i], column);
        point.column = c;
        point.rest = rest;
        point.rest_point = static_cast<int>(i);
        points.push_back(point);
      }
    }
    // What is dominated goes.
    std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
      return std::pair(-a.prefilled, -a.decoded) < std::pair(-b.prefilled, -b.decoded);
    });
    double decoded = -1;
    for (const Point& point : points) {
      if (point.decoded <= decoded) continue;
      decoded = point.decoded;
      fronts_[static_cast<size_t>(set)].push_back(point);
    }
  }

  ColumnGrouping Trace(int set, size_t point) const {
    ColumnGrouping grouping;
    const Point* at = &fronts_[static_cast<size_t>(set)][point];
    grouping.prefilled = at->prefilled;
    grouping.decoded = at->decoded;
    grouping.usd_per_hour = sets_.usd_per_hour(set);
    while (at->column >= 0) {
      grouping.columns.push_back(at->column);
      at = &fronts_[static_cast<size_t>(at->rest)][static_cast<size_t>(at->rest_point)];
    }
    std::sort(grouping.columns.begin(), grouping.columns.end());
    return grouping;
  }

  // May devices of `free` bring it above `served`?
  bool CanExceed(const Point& so_far, int free, double served) const {
    for (int set = 0; set <= free; ++set) {
      if (!sets_.Within(set, free)) continue;
      for (const Point& point : fronts_[static_cast<size_t>(set)]) {
        if (so_far.prefilled + point.prefilled > served && so_far.decoded + point.decoded > served)
          return true;
      }
    }
    return false;
  }

  const PlacementProblem& problem_;
  const DeviceSets& sets_;
  const std::vector<Column>& columns_;
  std::vector<int> set_of_;                      // of each column
  std::vector<std::vector<int>> by_first_pool_;  // columns
  std::vector<std::vector<Point>> fronts_;       // by set
};

}  // namespace

DeviceSets::DeviceSets(const ClusterGraph& graph) {
  for (const DevicePool& pool : graph.pools()) {
    radix_.push_back(size_);
    base_.push_back(pool.count + 1);
    size_ *= pool.count + 1;
  }
  for (int set = 0; set < size_; ++set) usd_per_hour_.push_back(graph.RentOf(Counts(set)));
  within_.assign(static_cast<size_t>(size_) * static_cast<size_t>(size_), 1);
  size_t at = 0;
  for (int whole = 0; whole < size_; ++whole) {
    for (int part = 0; part < size_; ++part, ++at) {
      for (size_t p = 0; p < base_.size(); ++p) {
        if (Digit(part, p) > Digit(whole, p)) within_[at] = 0;
      }
    }
  }
}

std::vector<int> DeviceSets::Counts(int set) const {
  std::vector<int> counts;
  for (size_t p = 0; p < base_.size(); ++p) counts.push_back(Digit(set, p));
  return counts;
}

int DeviceSets::IndexOf(const std::vector<int>& counts) const {
  return std::inner_product(counts.begin(), counts.end(), radix_.begin(), 0);
}

int DeviceSets::devices(int set) const {
  int devices = 0;
  for (size_t p = 0; p < base_.size(); ++p) devices += Digit(set, p);
  return devices;
}

int DeviceSets::first_pool(int set) const {
  size_t pool = 0;
  while (pool < base_.size() && Digit(set, pool) == 0) ++pool;
  return static_cast<int>(pool);
}

std::optional<ColumnGrouping> BestGrouping(const PlacementProblem& problem, const DeviceSets& sets,
                                           const std::vector<Column>& columns) {
  return Fronts(problem, sets, columns).Best();
}

std::optional<std::vector<ColumnGrouping>> GroupingsAbove(const PlacementProblem& problem,
                                                          const DeviceSets& sets,
                                                          const std::vector<Column>& columns,
                                                          double served, size_t most) {
  Fronts fronts(problem, sets, columns);
  std::vector<ColumnGrouping> found;
  if (!fronts.Best()) return found;
  std::vector<int> chosen;
  if (!fronts.GrowAbove(served, sets.size() - 1, {}, most, &chosen, &found)) return std::nullopt;
  std::stable_sort(
      found.begin(), found.end(),
      [](const ColumnGrouping& a, const ColumnGrouping& b) { return a.served() > b.served(); });
  return found;
}

}  // namespace tessera::scheduler
