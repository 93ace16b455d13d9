#include "scheduler/search/layout/stage_sequences.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMaxPrices = 8;
constexpr int kMaxTries = 4000;

}  // namespace

StageSequences::StageSequences(std::vector<StageType> types, const std::vector<LayoutPool>& pools,
                               int machines)
    : types_(std::move(types)), machines_(machines) {
  std::vector<int> radix;
  for (const LayoutPool& pool : pools) {
    radix.push_back(states_);
    states_ *= pool.count + 1;
    depth_ += pool.count;
  }
  for (const StageType& type : types_) {
    const auto pool = static_cast<size_t>(type.pool);
    for (int used = 0; used < states_; ++used)
      has_.push_back(used / radix[pool] % (pools[pool].count + 1) >= type.width ? 1 : 0);
  }
  reached_.assign(static_cast<size_t>(depth_), {});
  reached_[0] = {0};
  ends_.assign(static_cast<size_t>(depth_), std::vector<std::vector<int>>(types_.size()));
  for (int stage = 1; stage < depth_; ++stage) {
    const std::vector<int>& before = reached_[static_cast<size_t>(stage - 1)];
    for (int used = 0; used < states_; ++used) {
      bool reached = false;
      for (size_t t = 0; t < types_.size(); ++t) {
        if (!Has(used, t) ||
            !std::binary_search(before.begin(), before.end(), used - types_[t].used)) {
          continue;
        }
        ends_[static_cast<size_t>(stage)][t].push_back(used);
        reached = true;
      }
      if (reached) reached_[static_cast<size_t>(stage)].push_back(used);
    }
  }
}

StagePlace StageSequences::PlaceOf(int stage) const {
  if (limits_->stages == 1) return StagePlace::kOnly;
  if (stage == 1) return StagePlace::kFirst;
  return stage == limits_->stages ? StagePlace::kLast : StagePlace::kInner;
}

// Seconds of a stage less the price of its layers: as many as bring something.
void StageSequences::SetCosts(double price, Table* table) const {
  table->price = price;
  for (int place = 0; place < 4; ++place) {
    const bool head = place == static_cast<int>(StagePlace::kLast) ||
                      place == static_cast<int>(StagePlace::kOnly);
    table->cost[place].assign(types_.size(), kInfinity);
    for (size_t t = 0; t < types_.size(); ++t) {
      const int most = limits_->most[place][t];
      if (most == 0) continue;
      const double each = limits_->layer_seconds[t] - price;
      table->cost[place][t] = limits_->fixed_seconds[t] + (head ? limits_->head_seconds[t] : 0) +
                              each * (each < 0 ? most : 1);
    }
  }
}

void StageSequences::SetRooms(Table* table) const {
  for (int place = 0; place < 4; ++place) {
    table->cost[place].assign(types_.size(), kInfinity);
    for (size_t t = 0; t < types_.size(); ++t) {
      if (limits_->most[place][t] > 0) table->cost[place][t] = -limits_->most[place][t];
    }
  }
}

void StageSequences::Fill(const std::vector<double>& hops, Table* table) const {
  table->value.assign(At(machines_, 0, 0), kInfinity);
  for (int first = 0; first < machines_; ++first) {
    for (size_t t = 0; t < types_.size(); ++t) {
      if (types_[t].machine != first) continue;
      double& value =
          table->value[At(first, 1, types_[t].used) + static_cast<size_t>(types_[t].machine)];
      value = std::min(value, table->cost[static_cast<int>(PlaceOf(1))][t]);
    }
    for (int stage = 2; stage <= limits_->stages; ++stage) {
      const std::vector<double>& cost = table->cost[static_cast<int>(PlaceOf(stage))];
      for (size_t t = 0; t < types_.size(); ++t) {
        if (cost[t] == kInfinity) continue;
        for (const int used : ends_[static_cast<size_t>(stage)][t]) {
          const double* before = &table->value[At(first, stage - 1, used - types_[t].used)];
          double least = before[0] + hops[t];
          for (size_t last = 1; last < static_cast<size_t>(machines_); ++last)
            least = std::min(least, before[last] + hops[last * types_.size() + t]);
          double& value =
              table->value[At(first, stage, used) + static_cast<size_t>(types_[t].machine)];
          value = std::min(value, least + cost[t]);
        }
      }
    }
  }
}

// The least value of a whole pipeline, and its types.
double StageSequences::Least(const Table& table, bool with_back, std::vector<int>* order) const {
  double least = kInfinity;
  int end_first = 0, end_used = 0, end_last = 0;
  for (int first = 0; first < machines_; ++first) {
    for (const int used : reached_[static_cast<size_t>(limits_->stages)]) {
      const double* value = &table.value[At(first, limits_->stages, used)];
      for (int last = 0; last < machines_; ++last) {
        if (value[last] == kInfinity) continue;
        double whole = value[last];
        if (limits_->stages > 1) {
          const double back = limits_->back_seconds[static_cast<size_t>(last * machines_ + first)];
          whole += back == kInfinity || with_back ? back : 0;
        }
        if (whole >= least) continue;
        least = whole;
        end_first = first;
        end_used = used;
        end_last = last;
      }
    }
  }
  if (least < kInfinity && order != nullptr) Trace(table, end_first, end_used, end_last, order);
  return least;
}

void StageSequences::Trace(const Table& table, int first, int used, int last,
                           std::vector<int>* order) const {
  order->assign(static_cast<size_t>(limits_->stages), -1);
  for (int stage = limits_->stages; stage >= 1; --stage) {
    const double value = table.value[At(first, stage, used) + static_cast<size_t>(last)];
    const std::vector<double>& cost = table.cost[static_cast<int>(PlaceOf(stage))];
    int chosen = -1, chosen_last = 0;
    for (size_t t = 0; t < types_.size() && chosen < 0; ++t) {
      if (types_[t].machine != last || !Has(used, t) || cost[t] == kInfinity) continue;
      if (stage == 1) {
        if (types_[t].used == used && cost[t] == value) chosen = static_cast<int>(t);
        continue;
      }
      const double* before = &table.value[At(first, stage - 1, used - types_[t].used)];
      for (int m = 0; m < machines_ && chosen < 0; ++m) {
        const double hop = limits_->hop_seconds[static_cast<size_t>(m) * types_.size() + t];
        if (before[m] + hop + cost[t] != value) continue;
        chosen = static_cast<int>(t);
        chosen_last = m;
      }
    }
    if (chosen < 0) {
      order->clear();
      return;
    }
    (*order)[static_cast<size_t>(stage - 1)] = chosen;
    used -= types_[static_cast<size_t>(chosen)].used;
    last = chosen_last;
  }
}

// Least seconds of this order; infinite where it does not hold all layers.
double StageSequences::Deal(const std::vector<int>& order, std::vector<LayoutStage>* stages) const {
  const size_t count = order.size();
  double seconds = 0;
  int rest = limits_->layers;
  stages->clear();
  std::vector<size_t> cheapest(count);
  std::iota(cheapest.begin(), cheapest.end(), 0);
  for (size_t i = 0; i < count; ++i) {
    const auto t = static_cast<size_t>(order[i]);
    const auto next = static_cast<size_t>(order[(i + 1) % count]);
    seconds += limits_->fixed_seconds[t] + limits_->layer_seconds[t];
    if (i + 1 == count) seconds += limits_->head_seconds[t];
    const auto machine = static_cast<size_t>(types_[t].machine);
    if (i + 1 < count) {
      seconds += limits_->hop_seconds[machine * types_.size() + next];
    } else if (count > 1) {
      seconds += limits_->back_seconds[machine * static_cast<size_t>(machines_) +
                                       static_cast<size_t>(types_[next].machine)];
    }
    stages->push_back({types_[t].pool, types_[t].width, 1});
    --rest;
  }
  std::stable_sort(cheapest.begin(), cheapest.end(), [&](size_t a, size_t b) {
    return limits_->layer_seconds[static_cast<size_t>(order[a])] <
           limits_->layer_seconds[static_cast<size_t>(order[b])];
  });
  for (const size_t i : cheapest) {
    const auto t = static_cast<size_t>(order[i]);
    const int place = static_cast<int>(PlaceOf(static_cast<int>(i) + 1));
    const int more = std::max(0, std::min(rest, limits_->most[place][t] - 1));
    (*stages)[i].layers += more;
    rest -= more;
    seconds += more * limits_->layer_seconds[t];
  }
  return rest == 0 ? seconds : kInfinity;
}

int StageSequences::LayersAtPrice(const std::vector<int>& order, double price) const {
  int layers = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto t = static_cast<size_t>(order[i]);
    const int place = static_cast<int>(PlaceOf(static_cast<int>(i) + 1));
    layers += limits_->layer_seconds[t] < price ? limits_->most[place][t] : 1;
  }
  return layers;
}

// Raises or lowers the price of a layer until one side decides.
Verdict StageSequences::Bisect(std::vector<LayoutStage>* stages) {
  std::vector<double> prices = limits_->layer_seconds;
  std::sort(prices.begin(), prices.end());
  prices.push_back(prices.back() * 4);
  size_t low = 0, high = prices.size();
  dearest_value_ = -kInfinity;
  std::vector<int> order;
  for (int i = 0; i < kMaxPrices && low < high; ++i) {
    // What decided last mostly does so again.
    const size_t middle = i == 0 && decisive_ < high ? decisive_ : (low + high) / 2;
    decisive_ = middle;
    SetCosts(prices[middle], &priced_);
    Fill(limits_->hop_seconds, &priced_);
    const double least = Least(priced_, true, &order) + priced_.price * limits_->layers;
    if (!(least <= limits_->sum_seconds)) return Verdict::kNone;
    if (!order.empty() && Deal(order, stages) <= limits_->sum_seconds) return Verdict::kFound;
    const bool more = LayersAtPrice(order, priced_.price) < limits_->layers;
    if (least > dearest_value_) {
      dearest_value_ = least;
      std::swap(dearest_, priced_);
    }
    if (more) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return Verdict::kUnknown;
}

double StageSequences::Best(const Table& table, const std::vector<double>& hops, int stage,
                            int used, int first, size_t type) const {
  const double cost = table.cost[static_cast<int>(PlaceOf(stage))][type];
  if (stage == 1)
    return types_[type].machine == first && types_[type].used == used ? cost : kInfinity;
  const double* before = &table.value[At(first, stage - 1, used - types_[type].used)];
  double least = kInfinity;
  for (size_t last = 0; last < static_cast<size_t>(machines_); ++last)
    least = std::min(least, before[last] + hops[last * types_.size() + type]);
  return least + cost;
}

// Orders whose stages behind `stage` stand in order_; suffix: what these cost at the dearest price.
bool StageSequences::Try(int stage, int used, int first, double suffix, double suffix_room) {
  if (stage == 0) return Deal(order_, &found_) <= limits_->sum_seconds;
  const double budget = limits_->sum_seconds - dearest_.price * limits_->layers;
  for (size_t t = 0; t < types_.size(); ++t) {
    if (!Has(used, t)) continue;
    if (++tried_ > kMaxTries) return false;
    double hop = 0;
    const auto machine = static_cast<size_t>(types_[t].machine);
    if (stage < limits_->stages) {
      hop = limits_->hop_seconds[machine * types_.size() +
                                 static_cast<size_t>(order_[static_cast<size_t>(stage)])];
    } else if (limits_->stages > 1) {
      hop =
          limits_
              ->back_seconds[machine * static_cast<size_t>(machines_) + static_cast<size_t>(first)];
    }
    if (hop == kInfinity) continue;
    const double least = Best(dearest_, limits_->hop_seconds, stage, used, first, t);
    if (!(least + hop + suffix <= budget)) continue;
    const double rooms = Best(rooms_, open_hops_, stage, used, first, t);
    if (!(-(rooms + suffix_room) >= limits_->layers)) continue;
    order_[static_cast<size_t>(stage - 1)] = static_cast<int>(t);
    const int place = static_cast<int>(PlaceOf(stage));
    if (Try(stage - 1, used - types_[t].used, first, suffix + hop + dearest_.cost[place][t],
            suffix_room + rooms_.cost[place][t])) {
      return true;
    }
  }
  return false;
}

Verdict StageSequences::Test(const SequenceLimits& limits, std::vector<LayoutStage>* stages) {
  limits_ = &limits;
  open_hops_.clear();
  for (const double hop : limits.hop_seconds) open_hops_.push_back(hop < kInfinity ? 0 : hop);
  SetRooms(&rooms_);
  Fill(open_hops_, &rooms_);
  if (!(-Least(rooms_, false, nullptr) >= limits.layers)) return Verdict::kNone;
  const Verdict verdict = Bisect(stages);
  if (verdict != Verdict::kUnknown) return verdict;
  order_.assign(static_cast<size_t>(limits.stages), -1);
  tried_ = 0;
  for (int first = 0; first < machines_; ++first) {
    for (const int used : reached_[static_cast<size_t>(limits.stages)]) {
      if (!Try(limits.stages, used, first, 0, 0)) continue;
      *stages = found_;
      return Verdict::kFound;
    }
  }
  return tried_ > kMaxTries ? Verdict::kUnknown : Verdict::kNone;
}

}  // namespace tessera::scheduler
