#include "scheduler/search/best/configuration_program.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "scheduler/search/best/rental_sets.h"

namespace tessera::scheduler {
namespace {

// A class that the relaxation has to spare still costs this part of an even share of everything:
// free devices would make any column worth infinitely more than it costs.
constexpr double kMinPrice = 1e-4;
constexpr double kSmoothing = 0.5;    // of the duals, towards those of the best bound
constexpr double kSmoothBelow = 0.2;  // gap
constexpr int kGuessBoxes = 300;
constexpr double kFirstTolerance = 0.05;  // of pricing; falls with the gap
constexpr double kLastTolerance = 0.002;
constexpr int kQuickBoxes = 800;      // of a pricing in rounds that only look for columns
constexpr double kQuickGain = 1.002;  // of the program, that makes another such round worth it
constexpr double kMinGain = 1e-3;     // of the bound, below which a round was futile
constexpr int kMaxFutile = 3;
constexpr size_t kMaxWhole = 250;  // columns of a whole-number program
constexpr double kWorthAdding = 1 + 1e-6;
constexpr int kRentalNodes = 20000;
constexpr size_t kMaxEstimating = 250;  // columns of an estimate

bool Wanted(Role role, RolesWanted roles) {
  if (roles == RolesWanted::kAll) return true;
  return (role == Role::kBoth) == (roles == RolesWanted::kWhole);
}

void KeepLast(size_t most, std::vector<ClassReplica>* columns) {
  if (most > 0 && columns->size() > most)
    columns->erase(columns->begin(), columns->end() - static_cast<long>(most));
}

}  // namespace

double WorthOfRole(Role role, double prefill) {
  switch (role) {
    case Role::kBoth: return 1;
    case Role::kPrefill: return prefill;
    case Role::kDecode: return 1 - prefill;
  }
  return 0;
}

RolesWanted RolesOf(const PlacementProblem& problem) {
  return problem.allow_split ? RolesWanted::kAll : RolesWanted::kWhole;
}

ConfigurationProgram::ConfigurationProgram(const PlacementProblem& problem,
                                           const DeviceClasses& classes, StageShapes* shapes)
    : problem_(problem),
      classes_(classes),
      shapes_(*shapes),
      pricing_(classes, shapes),
      bound_(kUnbounded) {
  std::map<std::tuple<const DeviceSpec*, int, LinkSpec, double>, std::vector<int>> classes_of;
  for (const DeviceClass& of : classes.all()) {
    const int c = static_cast<int>(like_.size());
    std::vector<int>& by_group =
        classes_of
            .try_emplace({of.spec, of.per_machine, of.inside, of.price_usd_per_hour},
                         static_cast<size_t>(classes.groups()), -1)
            .first->second;
    by_group[static_cast<size_t>(of.group)] = c;
    like_.emplace_back();
  }
  for (int c = 0; c < classes.size(); ++c) {
    const DeviceClass& of = classes[c];
    like_[static_cast<size_t>(c)] =
        classes_of[{of.spec, of.per_machine, of.inside, of.price_usd_per_hour}];
  }
}

// And its like in every other group that has such devices: groups differ in numbers, less in kinds.
void ConfigurationProgram::AddEverywhere(ClassReplica replica) {
  const int home = classes_[replica.stages.front().device_class].group;
  const bool in_one_group = std::all_of(
      replica.stages.begin(), replica.stages.end(),
      [&](const ClassStage& stage) { return classes_[stage.device_class].group == home; });
  for (int group = 0; in_one_group && group < classes_.groups(); ++group) {
    if (group == home) continue;
    ClassReplica other = replica;
    bool there = true;
    for (ClassStage& stage : other.stages) {
      stage.device_class =
          like_[static_cast<size_t>(stage.device_class)][static_cast<size_t>(group)];
      there = there && stage.device_class >= 0;
      if (!there) break;
    }
    if (!there) continue;
    other.rate =
        CapacityOf(shapes_.model(), SpecOf(classes_, other), shapes_.lengths(), shapes_.options())
            .requests_per_second;
    if (other.rate > 0) Add(std::move(other));
  }
  Add(std::move(replica));
}

void ConfigurationProgram::Add(ClassReplica replica) {
  Column column = ColumnOf(replica);
  const auto [at, fresh] =
      column_of_.emplace(std::pair(column.role, column.devices), columns_.size());
  if (fresh) {
    columns_.push_back(std::move(replica));
    counted_.push_back(std::move(column));
  } else if (replica.rate > columns_[at->second].rate) {
    columns_[at->second] = std::move(replica);
    counted_[at->second] = std::move(column);
  }
}

void ConfigurationProgram::AddLike(const ConfigurationProgram& other, size_t most) {
  for (const size_t i : other.Promising(RolesWanted::kWhole, most)) {
    ClassReplica replica = other.columns_[i];
    bool there = true;
    for (ClassStage& stage : replica.stages) {
      const DeviceClass& of = other.classes_[stage.device_class];
      int best = -1;
      for (int c = 0; c < classes_.size(); ++c) {
        const DeviceClass& ours = classes_[c];
        if (ours.spec != of.spec || ours.per_machine < stage.width || ours.inside != of.inside) {
          continue;
        }
        // Machines of the same size, else the class of most devices.
        const auto rank = [&](const DeviceClass& a) {
          return std::pair(a.per_machine == of.per_machine, a.devices());
        };
        if (best < 0 || rank(ours) > rank(classes_[best])) best = c;
      }
      there = there && best >= 0;
      stage.device_class = best;
    }
    if (!there) continue;
    replica.rate =
        CapacityOf(shapes_.model(), SpecOf(classes_, replica), shapes_.lengths(), shapes_.options())
            .requests_per_second;
    if (replica.rate > 0) Add(std::move(replica));
  }
}

bool ConfigurationProgram::Prices(Role role, const ConfigurationOptions& options) const {
  return role == Role::kBoth || (Wanted(role, options.roles) && shapes_.lengths().decode_steps > 0);
}

// A device is worth its part of the best replica of its like alone; these are the first columns.
ConfigurationProgram::Duals ConfigurationProgram::FirstGuess(const ConfigurationOptions& options) {
  Duals duals;
  for (int c = 0; c < classes_.size(); ++c) {
    const DeviceClass& of = classes_[c];
    int like = 0;  // first class with such machines: the groups differ
    while (classes_[like].spec != of.spec || classes_[like].per_machine != of.per_machine ||
           classes_[like].inside != of.inside) {
      ++like;
    }
    if (like < c) duals.devices.push_back(duals.devices[static_cast<size_t>(like)]);
    for (const Role role : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
      if (like < c || !Prices(role, options)) continue;
      PricingQuery query;
      query.role = role;
      query.prices.assign(static_cast<size_t>(classes_.size()), 1);
      query.group = of.group;
      query.only_class = c;
      query.tolerance = kFirstTolerance;
      query.max_boxes = std::min(options.max_boxes, kGuessBoxes);
      query.certify = false;
      PricingAnswer answer = pricing_.Run(query);
      KeepLast(options.per_pricing, &answer.found);
      if (role == Role::kBoth) duals.devices.push_back(answer.bound);
      for (ClassReplica& replica : answer.found) AddEverywhere(std::move(replica));
    }
  }
  return duals;
}

double ConfigurationProgram::WorthOf(const Duals& duals) const {
  double worth = 0;
  for (int c = 0; c < classes_.size(); ++c)
    worth += duals.devices[static_cast<size_t>(c)] * classes_[c].devices();
  if (budgeted()) worth += duals.budget * problem_.budget_usd_per_hour;
  return worth;
}

double ConfigurationProgram::BoundOn(const Duals& duals) const {
  const double worth = WorthOf(duals);
  if (!budgeted()) return worth;
  const std::vector<double> prices = PricesOf(duals);
  std::vector<RentalItem> machines(static_cast<size_t>(classes_.shapes())), items;
  for (int c = 0; c < classes_.size(); ++c) {
    const DeviceClass& of = classes_[c];
    const double each = prices[static_cast<size_t>(c)];
    if (of.machine_price_usd_per_hour <= 0) {
      items.push_back({each, of.price_usd_per_hour, of.devices()});
      continue;
    }
    RentalItem& machine = machines[static_cast<size_t>(of.shape)];
    machine.available = classes_.Machines(c);
    machine.worth += each * of.devices() / machine.available;
    machine.usd_per_hour = of.machine_price_usd_per_hour;
  }
  items.insert(items.end(), machines.begin(), machines.end());
  return std::min(worth, MostWorth(items, problem_.budget_usd_per_hour, 1, kRentalNodes).bound);
}

std::vector<double> ConfigurationProgram::PricesOf(const Duals& duals) const {
  std::vector<double> prices = duals.devices;
  for (size_t c = 0; c < prices.size(); ++c) {
    const DeviceClass& of = classes_[static_cast<int>(c)];
    prices[c] += duals.budget * of.price_usd_per_hour;
  }
  return prices;
}

Column ConfigurationProgram::ColumnOf(const ClassReplica& replica) const {
  Column column = {replica.role, replica.rate, DevicesOf(classes_, replica)};
  for (int c = 0; c < classes_.size(); ++c)
    column.usd_per_hour += column.devices[static_cast<size_t>(c)] * classes_[c].price_usd_per_hour;
  return column;
}

ColumnTerms ConfigurationProgram::Terms() const {
  ColumnTerms terms;
  for (const DeviceClass& of : classes_.all()) terms.available.push_back(of.devices());
  if (budgeted()) terms.budget_usd_per_hour = problem_.budget_usd_per_hour;
  return terms;
}

double ConfigurationProgram::Relax(RolesWanted roles) {
  if (columns_.empty()) return 0;
  ColumnProgram program(Terms());
  for (const Column& column : counted_)
    program.Add(column, Wanted(column.role, roles) ? kUnbounded : 0);
  absl::StatusOr<ColumnProgram::Answer> answer = program.Solve();
  if (!answer.ok() || answer->objective <= 0) return 0;
  value_ = answer->objective;
  shares_ = std::move(answer->copies);
  duals_.devices = std::move(answer->device_prices);
  duals_.budget = budgeted() ? answer->budget_price : 0;
  duals_.prefill = std::min(answer->prefill_prices.front(), 1.0);
  for (int c = 0; c < classes_.size(); ++c) {
    double& price = duals_.devices[static_cast<size_t>(c)];
    price = std::max(price, kMinPrice * value_ / (classes_[c].devices() * classes_.size()));
  }
  return value_;
}

double ConfigurationProgram::PriceOf(const Column& column) const {
  double price = duals_.budget * column.usd_per_hour;
  for (size_t c = 0; c < column.devices.size(); ++c) price += column.devices[c] * duals_.devices[c];
  return price;
}

double ConfigurationProgram::Kappa(const Duals& at, const ConfigurationOptions& options,
                                   double tolerance, double target, bool* better) {
  double kappa = 0;
  for (const Role role : {Role::kBoth, Role::kPrefill, Role::kDecode}) {
    if (!Wanted(role, options.roles) || !Prices(role, options)) continue;
    const double value = WorthOfRole(role, at.prefill);
    if (value <= 0) continue;
    PricingQuery query;
    query.role = role;
    query.prices = PricesOf(at);
    query.tolerance = tolerance;
    query.max_boxes = options.max_boxes;
    query.certify = options.certify;
    query.target = target / value;
    for (int group = classes_.groups() > 1 ? -1 : 0; group < classes_.groups(); ++group) {
      query.group = group;
      query.known_bound = kappa / value;
      PricingAnswer answer = pricing_.Run(query);
      if (options.certify) bound_boxes_ += answer.boxes;
      KeepLast(options.per_pricing, &answer.found);
      kappa = std::max(kappa, answer.bound * value);
      for (const ClassReplica& replica : answer.found) {
        const double price = PriceOf(ColumnOf(replica));
        const double gain = replica.rate * WorthOfRole(role, duals_.prefill);
        *better = *better || value_ <= 0 || gain > price * kWorthAdding;
        AddEverywhere(replica);
      }
    }
  }
  return kappa;
}

// Prices all roles and groups at these duals; true: a column was found that improves the program.
bool ConfigurationProgram::PriceRound(const Duals& at, const ConfigurationOptions& options,
                                      double tolerance) {
  const size_t before = columns_.size();
  bool better = false;
  // In ratios of the program's worth: what it reaches already is of no interest.
  const double kappa = Kappa(at, options, tolerance, value_ / WorthOf(at), &better);
  if (options.certify) bound_ = std::min(bound_, kappa * BoundOn(at));
  return better || columns_.size() > before;
}

ConfigurationProgram::Duals ConfigurationProgram::Smoothed(const Duals& best) const {
  Duals at = duals_;
  // Both have equal worth, or the mean would lean to the larger.
  const double scale = WorthOf(duals_) / WorthOf(best);
  for (size_t c = 0; c < at.devices.size(); ++c)
    at.devices[c] += kSmoothing * (best.devices[c] * scale - at.devices[c]);
  at.budget += kSmoothing * (best.budget * scale - at.budget);
  at.prefill += kSmoothing * (best.prefill - at.prefill);
  return at;
}

// Columns without bounds, as long as they bring much. False: stopped, or nothing can be served.
bool ConfigurationProgram::GenerateQuickly(const ConfigurationOptions& options) {
  ConfigurationOptions quick = options;
  quick.certify = false;
  quick.max_boxes = std::min(options.max_boxes, kQuickBoxes);
  for (; rounds_ < options.max_rounds; ++rounds_) {
    if (problem_.watch.Stopped()) return false;
    const double before = value_;
    const bool better = PriceRound(duals_, quick, kFirstTolerance);
    if (Relax(options.roles) <= 0) return false;
    if (!better || value_ <= before * kQuickGain) return true;
  }
  return true;
}

void ConfigurationProgram::Generate(const ConfigurationOptions& options) {
  const std::optional<Duals> best = GenerateWhole(options);
  if (!best || options.last_boxes == 0 || bound_ <= value_ * (1 + options.gap)) return;
  ConfigurationOptions last = options;
  last.max_boxes = options.last_boxes;
  PriceRound(*best, last, kLastTolerance);
  Relax(options.roles);
}

// The duals of the best bound, where it can be sharpened.
std::optional<ConfigurationProgram::Duals> ConfigurationProgram::GenerateWhole(
    const ConfigurationOptions& options) {
  if (columns_.empty() || Relax(options.roles) <= 0) duals_ = FirstGuess(options);
  Duals best = duals_;
  if (options.certify && !GenerateQuickly(options)) return std::nullopt;
  double tolerance = kFirstTolerance;
  bool smooth = false;
  int futile_rounds = 0;
  for (; rounds_ < options.max_rounds && futile_rounds < kMaxFutile; ++rounds_) {
    if (problem_.watch.Stopped()) return std::nullopt;
    const Duals at = smooth ? Smoothed(best) : duals_;
    const double before = bound_;
    const bool better = PriceRound(at, options, tolerance);
    if (bound_ < before) best = at;
    if (Relax(options.roles) <= 0) return std::nullopt;
    if (bound_ <= value_ * (1 + options.gap)) return std::nullopt;
    if (!options.certify && !better) return std::nullopt;
    if (options.boxes_before > 0 && bound_boxes_ >= options.boxes_before) return best;
    const double gap = bound_ / value_ - 1;
    if (!better && !smooth && tolerance <= kLastTolerance) return std::nullopt;
    futile_rounds = options.certify && bound_ > before * (1 - kMinGain) ? futile_rounds + 1 : 0;
    smooth = better && gap < kSmoothBelow;
    tolerance = better ? std::clamp(gap / 4, kLastTolerance, kFirstTolerance)
                       : std::max(kLastTolerance, tolerance / 4);
  }
  return options.certify ? std::optional<Duals>(best) : std::nullopt;
}

std::vector<size_t> ConfigurationProgram::Promising(RolesWanted roles, size_t most) const {
  std::vector<std::pair<double, size_t>> ranked;
  for (size_t i = 0; i < counted_.size(); ++i) {
    const Column& column = counted_[i];
    if (!Wanted(column.role, roles)) continue;
    bool legal = true;
    for (int c = 0; c < classes_.size(); ++c)
      legal = legal && column.devices[static_cast<size_t>(c)] <= classes_[c].devices();
    if (!legal) continue;
    const double worth = column.rate * WorthOfRole(column.role, duals_.prefill);
    ranked.emplace_back(-worth / PriceOf(column), i);
  }
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > most) ranked.resize(most);
  std::vector<size_t> chosen;
  for (const auto& [rank, i] : ranked) chosen.push_back(i);
  return chosen;
}

double ConfigurationProgram::ServedBy(const std::vector<int>& devices, RolesWanted roles) const {
  ColumnTerms terms;
  terms.available.assign(devices.begin(), devices.end());
  ColumnProgram program(terms);
  for (const size_t i : Promising(roles, kMaxEstimating)) program.Add(counted_[i]);
  const absl::StatusOr<ColumnProgram::Answer> answer = program.Solve();
  return answer.ok() ? answer->objective : 0;
}

std::vector<int> ConfigurationProgram::Whole(RolesWanted roles, double gap, int max_nodes) const {
  const std::vector<size_t> chosen = Promising(roles, kMaxWhole);
  if (chosen.empty()) return {};
  ColumnTerms terms = Terms();
  terms.whole = true;
  if (problem_.goal == Goal::kPrice) terms.required = problem_.required_requests_per_second;
  ColumnProgram program(terms);
  for (const size_t i : chosen) program.Add(counted_[i]);
  const absl::StatusOr<ColumnProgram::Answer> answer = program.Solve(gap, max_nodes);
  if (!answer.ok()) return {};
  std::vector<int> counts(columns_.size(), 0);
  for (size_t i = 0; i < chosen.size(); ++i)
    counts[chosen[i]] = static_cast<int>(answer->copies[i]);
  return counts;
}

void ConfigurationProgram::GenerateByCost() {
  PricingQuery query;
  for (const DeviceClass& of : classes_.all()) {
    if (of.price_usd_per_hour <= 0) return;
    query.prices.push_back(of.price_usd_per_hour);
  }
  query.tolerance = kFirstTolerance;
  for (int group = classes_.groups() > 1 ? -1 : 0; group < classes_.groups(); ++group) {
    query.group = group;
    PricingAnswer answer = pricing_.Run(query);
    for (ClassReplica& replica : answer.found) Add(std::move(replica));
  }
}

}  // namespace tessera::scheduler
