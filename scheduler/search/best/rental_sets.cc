#include "scheduler/search/best/rental_sets.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::scheduler {
namespace {

constexpr double kRounding = 1 + 1e-9;

class Knapsack {
 public:
  Knapsack(const std::vector<RentalItem>& items, double budget, size_t most, int max_nodes)
      : items_(items), order_(items.size()), most_(most), nodes_(max_nodes) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return items[a].worth * items[b].usd_per_hour > items[b].worth * items[a].usd_per_hour;
    });
    now_.counts.assign(items.size(), 0);
    budget_ = budget * kRounding;
  }

  RentalSets Run() {
    const double relaxed = Relaxed(0);
    Grow(0);
    sets_.bound = relaxed * kRounding;
    if (nodes_ > 0 && !sets_.best.empty()) sets_.bound = sets_.best.front().worth * kRounding;
    return std::move(sets_);
  }

 private:
  double left() const { return budget_ - now_.usd_per_hour; }

  // What the items from this one on could add if they could be cut.
  double Relaxed(size_t from) const {
    double usd = left(), worth = 0;
    for (size_t i = from; i < order_.size() && usd > 0; ++i) {
      const RentalItem& item = items_[order_[i]];
      const double all = item.available * item.usd_per_hour;
      worth += item.available * item.worth * (all > usd ? usd / all : 1);
      usd -= all;
    }
    return worth;
  }

  bool Full() const {
    for (size_t i = 0; i < items_.size(); ++i) {
      const int count = now_.counts[i];
      if (count < items_[i].available &&
          items_[i].UsdOf(count + 1) - items_[i].UsdOf(count) <= left())
        return false;
    }
    return true;
  }

  void Keep() {
    if (!Full()) return;
    const auto at =
        std::find_if(sets_.best.begin(), sets_.best.end(),
                     [&](const RentalSets::Set& set) { return set.worth < now_.worth; });
    sets_.best.insert(at, now_);
    if (sets_.best.size() > most_) sets_.best.pop_back();
  }

  void Grow(size_t depth) {
    if (nodes_ <= 0) return;
    --nodes_;
    if (depth == order_.size()) {
      Keep();
      return;
    }
    const RentalItem& item = items_[order_[depth]];
    int& count = now_.counts[order_[depth]];
    const RentalSets::Set before = now_;
    count = item.available;
    while (count > 0 && item.UsdOf(count) > left()) --count;
    for (; count >= 0; --count) {
      now_.worth = before.worth + count * item.worth;
      now_.usd_per_hour = before.usd_per_hour + item.UsdOf(count);
      const bool full = sets_.best.size() == most_;
      if (full && now_.worth + Relaxed(depth + 1) <= sets_.best.back().worth) break;
      Grow(depth + 1);
    }
    now_ = before;
  }

  const std::vector<RentalItem>& items_;
  std::vector<size_t> order_;  // most worth for their price first
  double budget_ = 0;
  const size_t most_;
  int nodes_;
  RentalSets::Set now_;
  RentalSets sets_;
};

}  // namespace

RentalSets MostWorth(const std::vector<RentalItem>& items, double budget_usd_per_hour, size_t most,
                     int max_nodes) {
  return Knapsack(items, budget_usd_per_hour, most, max_nodes).Run();
}

}  // namespace tessera::scheduler
