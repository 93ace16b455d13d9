#include "scheduler/search/math/cover_program.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace tessera::scheduler {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// Keeps, of items that cost the same whatever their layers, those that hold more than any cheaper
// one: the others change no solution.
void Frontier(const std::vector<CoverItem>& items, int layers,
              std::vector<const CoverItem*>* by_layers, std::vector<CoverItem>* frontier) {
  std::vector<const CoverItem*>& cheapest = *by_layers;
  cheapest.assign(static_cast<size_t>(layers) + 1, nullptr);
  for (const CoverItem& item : items) {
    const CoverItem*& known = cheapest[static_cast<size_t>(std::min(item.layers, layers))];
    if (known == nullptr || std::tuple(item.price, item.fixed, item.layer) <
                                std::tuple(known->price, known->fixed, known->layer))
      known = &item;
  }
  frontier->clear();
  for (auto item = cheapest.rbegin(); item != cheapest.rend(); ++item) {
    if (*item != nullptr && (frontier->empty() || (*item)->price < frontier->back().price))
      frontier->push_back(**item);
  }
}

// The two loops that planning waits for, in lanes as wide as the CPU has; sums and minima of single
// lanes are the same everywhere. Not under sanitizers: the clone is chosen before they are ready.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TESSERA_WIDE_LANES __attribute__((target_clones("avx2", "default")))
#else
#define TESSERA_WIDE_LANES
#endif

TESSERA_WIDE_LANES void LowerTo(double cost, const double* from, int count, double* to) {
  for (int x = 0; x < count; ++x) to[x] = std::min(to[x], from[x] + cost);
}

TESSERA_WIDE_LANES void LowerToLine(double fixed, double slope, int count, double* to) {
  for (int l = 1; l <= count; ++l) to[l - 1] = std::min(to[l - 1], fixed + slope * l);
}

}  // namespace

CoverProgram::Row CoverProgram::CostOf(const std::vector<CoverItem>& items,
                                       double multiplier) const {
  int most = 0;
  for (const CoverItem& item : items) most = std::max(most, item.layers);
  Row cost(static_cast<size_t>(std::min(most, layers_)), kImpossible);
  const int end = static_cast<int>(cost.size());
  if (multiplier == 0) {  // then a stage may as well be as long as it can
    for (const CoverItem& item : items) {
      double& least = cost[static_cast<size_t>(std::min(item.layers, end) - 1)];
      least = std::min(least, item.price);
    }
    for (int l = end - 1; l > 0; --l) {
      double& shorter = cost[static_cast<size_t>(l - 1)];
      shorter = std::min(shorter, cost[static_cast<size_t>(l)]);
    }
    return cost;
  }
  for (const CoverItem& item : items) {
    const double fixed = item.price + multiplier * item.fixed, slope = multiplier * item.layer;
    LowerToLine(fixed, slope, std::min(item.layers, end), cost.data());
  }
  return cost;
}

// after[x]: the least cost of one stage more that makes x layers.
void CoverProgram::AddStage(const Row& stage, const Row& before, int low_before, int high_before,
                            int low, int high, Row* after) const {
  after->assign(static_cast<size_t>(layers_) + 1, kImpossible);
  for (int l = 1; l <= static_cast<int>(stage.size()); ++l) {
    const double cost = stage[static_cast<size_t>(l - 1)];
    const int begin = std::max(low_before, low - l), end = std::min(high_before, high - l);
    LowerTo(cost, before.data() + begin, end - begin + 1, after->data() + l + begin);
  }
}

// The same where the seconds have no price: a stage may then hold fewer layers than it pays for, so
// only those before its price rises count.
void CoverProgram::AddLongStage(const Row& stage, const Row& before, int low_before, int low,
                                int high, Row* after) const {
  after->assign(static_cast<size_t>(layers_) + 1, kImpossible);
  const int most = static_cast<int>(stage.size());
  int reached = low - 1;  // by shorter stages after the fewest layers: longer ones cost more
  for (int l = 1; l <= most; ++l) {
    const double cost = stage[static_cast<size_t>(l - 1)];
    if (l < most && stage[static_cast<size_t>(l)] == cost) continue;
    const double shortest = before[static_cast<size_t>(low_before)] + cost;
    const int within = std::min(high, low_before + l);
    double* to = after->data();
    for (; reached < within; ++reached) to[reached + 1] = std::min(to[reached + 1], shortest);
    const int begin = std::max(low, within + 1);
    LowerTo(cost, before.data() + begin - l, high - begin + 1, to + begin);
  }
}

// The stage that led from `before` to `value`; *covered shrinks by its layers.
CoverProgram::Stage CoverProgram::Undo(const std::vector<CoverItem>& items, double multiplier,
                                       const Row& stage, const Row& before, double value,
                                       int* covered) const {
  Stage best;
  double closest = kImpossible;
  for (int l = 1; l <= std::min<int>(*covered, static_cast<int>(stage.size())); ++l) {
    const double reached =
        before[static_cast<size_t>(*covered - l)] + stage[static_cast<size_t>(l - 1)];
    const double off = std::abs(reached - value);
    if (!(off < closest)) continue;
    closest = off;
    best.layers = l;
    if (off == 0) break;  // as a rule: it is the sum that was kept
  }
  // Ranks equal items in a way that does not depend on their order.
  const auto rank = [](const CoverItem& item) {
    return std::tuple(-item.layers, item.price, item.fixed, item.layer);
  };
  const CoverItem* cheapest = nullptr;
  double least = kImpossible;
  for (const CoverItem& item : items) {
    if (item.layers < best.layers) continue;
    const double cost = item.price + multiplier * (item.fixed + item.layer * best.layers);
    if (cheapest != nullptr && (cost > least || (cost == least && rank(item) >= rank(*cheapest))))
      continue;
    cheapest = &item;
    least = cost;
  }
  best.item = *cheapest;
  *covered -= best.layers;
  return best;
}

CoverProgram::Solution CoverProgram::Cheapest(const std::vector<CoverItem>& first,
                                              const std::vector<CoverItem>& inner,
                                              const std::vector<CoverItem>& last, int stages,
                                              double multiplier, double limit, double worth) {
  const size_t depth = static_cast<size_t>(stages);
  if (rows_.size() < depth + 1) rows_.resize(depth + 1);
  rows_[0].assign(static_cast<size_t>(layers_) + 1, kImpossible);
  rows_[0][0] = 0;
  const std::vector<CoverItem>* items[] = {&first, &inner, &last};
  for (size_t i = 0; multiplier == 0 && i < 3; ++i) {
    Frontier(*items[i], layers_, &by_layers_, &frontiers_[i]);
    items[i] = &frontiers_[i];
  }
  const Row costs[] = {CostOf(*items[0], multiplier), CostOf(*items[1], multiplier),
                       CostOf(*items[2], multiplier)};
  const auto place = [&](size_t s) { return s == 1 ? 0 : s == depth ? 2 : 1; };
  // A stage has between one layer and the most that any item holds.
  const int most = static_cast<int>(std::max({costs[0].size(), costs[1].size(), costs[2].size()}));
  const auto low = [&](int s) { return std::max(s, layers_ - (stages - s) * most); };
  const auto high = [&](int s) { return std::min(s * most, layers_ - (stages - s)); };
  for (size_t s = 1; s <= depth; ++s) {
    const int at = static_cast<int>(s);
    const int low_before = s == 1 ? 0 : low(at - 1), high_before = s == 1 ? 0 : high(at - 1);
    if (multiplier == 0) {
      AddLongStage(costs[place(s)], rows_[s - 1], low_before, low(at), high(at), &rows_[s]);
    } else {
      AddStage(costs[place(s)], rows_[s - 1], low_before, high_before, low(at), high(at),
               &rows_[s]);
    }
  }
  Solution solution;
  solution.price = rows_[depth].back();
  if (solution.price == kImpossible || (multiplier == 0 && solution.price > worth)) return solution;
  int covered = layers_;
  double value = solution.price;
  for (size_t s = depth; s >= 1; --s) {
    solution.stages.push_back(
        Undo(*items[place(s)], multiplier, costs[place(s)], rows_[s - 1], value, &covered));
    value = rows_[s - 1][static_cast<size_t>(covered)];
  }
  std::reverse(solution.stages.begin(), solution.stages.end());
  Finish(multiplier, limit, &solution);
  return solution;
}

CoverProgram::Solution CoverProgram::CheapestOfAny(const std::vector<CoverItem>& items,
                                                   double multiplier, double limit) {
  if (rows_.empty()) rows_.resize(1);
  Row& least = rows_[0];
  least.assign(static_cast<size_t>(layers_) + 1, kImpossible);
  least[0] = 0;
  const Row stage = CostOf(items, multiplier);
  for (size_t x = 1; x < least.size(); ++x) {
    for (size_t l = 1; l <= std::min(x, stage.size()); ++l)
      least[x] = std::min(least[x], least[x - l] + stage[l - 1]);
  }
  Solution solution;
  solution.price = least.back();
  if (solution.price == kImpossible) return solution;
  int covered = layers_;
  while (covered > 0) {
    const double value = least[static_cast<size_t>(covered)];
    solution.stages.push_back(Undo(items, multiplier, stage, least, value, &covered));
  }
  Finish(multiplier, limit, &solution);
  return solution;
}

void CoverProgram::Finish(double multiplier, double limit, Solution* solution) const {
  for (const Stage& stage : solution->stages) {
    solution->seconds += stage.item.fixed + stage.item.layer * stage.layers;
  }
  solution->price -= multiplier * limit;
}

}  // namespace tessera::scheduler
