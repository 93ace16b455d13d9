#include "scheduler/planner/survival.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_format.h"
#include "scheduler/planner/part_search.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/math/linear_program.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kLess = 1e-9;  // relative: not worth another choice
constexpr double kFullRateWeight =
    1e-4;  // of the rate while all machines stand, beside what survives
constexpr double kProgramGap = 1e-4;
constexpr int kProgramNodes = 2000;

std::string NameOf(const PlacementProblem& problem, int machine) {
  return problem.graph->machines()[static_cast<size_t>(machine)].name;
}

struct Judged {
  Placement placement;
  MachineLoss worst;
};

class Survivor {
 public:
  Survivor(const PlacementProblem& problem, const Search& search, const SurvivalOptions& options)
      : problem_(problem),
        search_(search),
        options_(options),
        judge_(problem),
        parts_(problem, search, options.most_searches, options.most_searched_devices) {
    for (const DevicePool& pool : problem.graph->pools()) {
      if (machines_.empty() || machines_.back() != pool.machine) machines_.push_back(pool.machine);
    }
  }

  absl::StatusOr<Placement> Run() {
    const absl::StatusOr<Placement> found = search_(problem_);
    if (!found.ok()) return found.status();
    if (machines_.size() < 2) {
      return absl::ResourceExhaustedError(
          StrCat("no plan survives the loss of machine ", NameOf(problem_, machines_.front()),
                 ": it is the only one; add a machine, or plan without --survive-machine-loss"));
    }
    bound_ = found->upper_bound;
    without_ = Judge(*found);
    Offer(*found);
    WithoutMachine(without_.worst.machine);
    if (!needed_.empty()) return NothingSurvives();
    Collect();
    Combine();
    Improve();
    if (!best_ || best_->worst.requests_per_second <= 0) return NothingSurvives();
    if (problem_.goal == Goal::kPrice && !Serves(*best_)) return TooLittleSurvives();
    return Answer();
  }

 private:
  static int64_t Sets(const PlacementProblem& problem) {
    int64_t sets = 1;
    for (const DevicePool& pool : problem.graph->pools())
      sets = std::min<int64_t>(sets * (pool.count + 1), 1 << 20);
    return sets;
  }

  Judged Judge(Placement placement) const {
    const std::vector<MachineLoss> losses = LossesOf(problem_, placement);
    Judged judged = {std::move(placement), {}};
    if (!losses.empty()) judged.worst = losses.front();
    return judged;
  }

  bool Serves(const Judged& judged) const {
    return judged.worst.requests_per_second >= problem_.required_requests_per_second * (1 - 1e-6);
  }

  bool Allowed(const Judged& judged) const {
    return problem_.goal != Goal::kBudget ||
           judged.placement.usd_per_hour <= problem_.budget_usd_per_hour * (1 + 1e-9);
  }

  bool Better(const Judged& a, const Judged& b) const {
    const double x = a.worst.requests_per_second, y = b.worst.requests_per_second;
    if (problem_.goal == Goal::kPrice) {
      if (Serves(a) != Serves(b)) return Serves(a);
      if (Serves(a)) return a.placement.usd_per_hour < b.placement.usd_per_hour * (1 - kLess);
    }
    if (x != y) return x > y * (1 + kLess);
    return a.placement.requests_per_second > b.placement.requests_per_second * (1 + kLess);
  }

  // As a candidate, and its replicas as columns. True: it is the best so far.
  bool Offer(const Placement& placement) {
    for (const PlacedReplica& replica : placement.replicas) AddColumn(replica);
    absl::StatusOr<Placement> whole = Assemble(problem_, placement.replicas, &judge_);
    if (!whole.ok()) return false;
    Judged judged = Judge(*std::move(whole));
    if (!Allowed(judged) || (best_ && !Better(judged, *best_))) return false;
    best_ = std::move(judged);
    return true;
  }

  void AddColumn(const PlacedReplica& replica) {
    std::string key = StrCat(static_cast<int>(replica.role));
    for (const LayoutStage& stage : replica.stages)
      key += StrCat("|", stage.pool, ",", stage.width, ",", stage.layers);
    if (replica.rate.requests_per_second > 0 && keys_.insert(key).second)
      columns_.push_back(replica);
  }

  absl::Status OfferPart(const DeviceCounts& part, double* bound = nullptr) {
    const absl::StatusOr<Placement> found = parts_.On(part);
    if (!found.ok()) return found.status();
    if (bound != nullptr) *bound = found->upper_bound;
    Offer(*found);
    return absl::OkStatus();
  }

  // --- Parts worth a search ---

  void Collect() {
    const DeviceCounts all = AllDevices(problem_);
    if (Sets(problem_) <= options_.all_sets_up_to) {
      DeviceCounts part(all.size(), 0);
      AllSets(all, &part, 0);
    }
    std::vector<int> alone;  // machines that hold no replica by themselves
    std::vector<PlacedReplica> together;
    for (const int machine : machines_) {
      const absl::StatusOr<Placement> found = parts_.On(OfMachine(problem_, all, machine));
      if (found.ok()) {
        together.insert(together.end(), found->replicas.begin(), found->replicas.end());
      } else {
        alone.push_back(machine);
      }
    }
    Placement singles;
    singles.replicas = together;
    if (!together.empty()) Offer(singles);
    ByGroup(all);
    Pairs(all, alone);
    // Without one of several like machines it is as without another.
    std::set<std::string> shapes;
    for (const int machine : machines_) {
      if (shapes.insert(ShapeOf(machine)).second) WithoutMachine(machine);
    }
    Halves(all);
    Pairs(all, machines_);
  }

  void AllSets(const DeviceCounts& all, DeviceCounts* part, size_t pool) {
    if (pool == all.size()) {
      if (std::any_of(part->begin(), part->end(), [](int n) { return n > 0; }))
        OfferPart(*part).IgnoreError();
      return;
    }
    for ((*part)[pool] = 0; (*part)[pool] <= all[pool]; ++(*part)[pool])
      AllSets(all, part, pool + 1);
    (*part)[pool] = 0;
  }

  std::string ShapeOf(int machine) const {
    const MachineNode& node = problem_.graph->machines()[static_cast<size_t>(machine)];
    std::string shape = StrCat(node.place);
    for (const DevicePool& pool : problem_.graph->pools()) {
      if (pool.machine == machine) shape += StrCat("|", pool.spec->kind, ",", pool.count);
    }
    return shape;
  }

  void WithoutMachine(int machine) {
    if (machine < 0 || !tried_without_.insert(machine).second) return;
    DeviceCounts rest = AllDevices(problem_);
    const DeviceCounts lost = OfMachine(problem_, rest, machine);
    for (size_t p = 0; p < rest.size(); ++p) rest[p] -= lost[p];
    double bound = 0;
    const absl::Status found = OfferPart(rest, &bound);
    if (found.ok() && bound > 0) bound_ = bound_ > 0 ? std::min(bound_, bound) : bound;
    if (!found.ok() && !parts_.spent() && needed_.empty()) {
      needed_ = NameOf(problem_, machine);
      why_needed_ = std::string(found.message());
    }
  }

  void ByGroup(const DeviceCounts& all) {
    std::map<int, DeviceCounts> groups;
    for (size_t p = 0; p < all.size(); ++p) {
      const auto& machine =
          problem_.graph->machines()[static_cast<size_t>(problem_.graph->pools()[p].machine)];
      groups.try_emplace(machine.group, all.size(), 0).first->second[p] = all[p];
    }
    if (groups.size() < 2) return;
    Placement together;
    for (const auto& [group, part] : groups) {
      const absl::StatusOr<Placement> found = parts_.On(part);
      if (found.ok())
        together.replicas.insert(together.replicas.end(), found->replicas.begin(),
                                 found->replicas.end());
    }
    if (!together.replicas.empty()) Offer(together);
  }

  // Half of a machine leaves the other half to a replica with others.
  void Halves(const DeviceCounts& all) {
    for (const int machine : machines_) {
      DeviceCounts half = OfMachine(problem_, all, machine);
      for (int& count : half) count /= 2;
      OfferPart(half).IgnoreError();
    }
  }

  // Machines that hold nothing alone may hold a replica with one other.
  void Pairs(const DeviceCounts& all, const std::vector<int>& alone) {
    const std::set<int> small(alone.begin(), alone.end());
    for (const int a : alone) {
      for (const int b : machines_) {
        if (a == b || (small.contains(b) && b < a)) continue;
        DeviceCounts pair = OfMachine(problem_, all, a);
        const DeviceCounts other = OfMachine(problem_, all, b);
        for (size_t p = 0; p < pair.size(); ++p) pair[p] += other[p];
        OfferPart(pair).IgnoreError();
        if (parts_.spent() || problem_.watch.Stopped()) return;
      }
    }
  }

  // --- The program ---

  bool SmallEnough() const {
    return !columns_.empty() &&
           static_cast<double>(columns_.size()) * static_cast<double>(machines_.size()) <=
               options_.most_program_cells;
  }

  bool Combine() {
    if (!SmallEnough()) return false;
    const SurvivalProgram made = ProgramOn(AllDevices(problem_));
    const absl::StatusOr<LinearProgram::Solution> solution =
        made.program.Solve(false, kProgramGap, kProgramNodes);
    if (!solution.ok()) return false;
    Placement chosen;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const double copies = solution->values[static_cast<size_t>(made.columns[c])];
      chosen.replicas.insert(chosen.replicas.end(), static_cast<size_t>(copies + 0.5), columns_[c]);
    }
    return !chosen.replicas.empty() && Offer(chosen);
  }

  struct SurvivalProgram {
    LinearProgram program;
    int survives = 0;          // the variable of what is left
    std::vector<int> columns;  // their variables
  };

  // On so many devices of each pool.
  SurvivalProgram ProgramOn(const DeviceCounts& devices) const {
    LinearProgram program;
    const bool price = problem_.goal == Goal::kPrice;
    std::vector<int> pool_rows;
    for (const int count : devices) pool_rows.push_back(program.AddRow(-kUnbounded, count));
    const int cost_row = program.AddRow(
        -kUnbounded, problem_.goal == Goal::kBudget ? problem_.budget_usd_per_hour : kUnbounded);
    const int survives = program.AddVariable(
        price ? 0 : 1, price ? problem_.required_requests_per_second : 0, kUnbounded, false);
    const int full = program.AddVariable(price ? 0 : kFullRateWeight, 0, kUnbounded, false);
    std::vector<int> variables;
    const std::vector<int> machine_rows = AddMachines(devices, cost_row, &program);
    for (const PlacedReplica& column : columns_) {
      const double usd = PriceBesideMachines(column);
      const int y = program.AddVariable(price ? -usd : 0, 0, kUnbounded, true);
      variables.push_back(y);
      for (const LayoutStage& stage : column.stages) {
        program.AddTerm(pool_rows[static_cast<size_t>(stage.pool)], y, stage.width);
        const int machine = problem_.graph->pools()[static_cast<size_t>(stage.pool)].machine;
        const int row = machine_rows[static_cast<size_t>(machine)];
        if (row >= 0) program.AddTerm(row, y, stage.width);
      }
      program.AddTerm(cost_row, y, usd);
    }
    AddServed(-1, full, variables, &program);
    for (const int machine : machines_) AddServed(machine, survives, variables, &program);
    return {std::move(program), survives, std::move(variables)};
  }

  // What the program, cut, gains by one more device in a pool. A dual would not do: a device more
  // in the machine that is the worst to lose brings nothing, one less there costs.
  std::vector<double> ShadowPrices() const {
    if (!SmallEnough() || problem_.goal == Goal::kPrice) return {};
    const auto value = [&](const DeviceCounts& devices) {
      const SurvivalProgram made = ProgramOn(devices);
      const auto solution = made.program.Solve(true);
      return solution.ok() ? solution->values[static_cast<size_t>(made.survives)] : 0;
    };
    const DeviceCounts all = AllDevices(problem_);
    const double now = value(all);
    std::map<std::string, double> known;  // by kind and machine
    std::vector<double> prices;
    for (size_t p = 0; p < all.size(); ++p) {
      const DevicePool& pool = problem_.graph->pools()[p];
      const auto [price, fresh] =
          known.try_emplace(StrCat(pool.spec->kind, "|", ShapeOf(pool.machine)), 0);
      if (fresh && !problem_.watch.Stopped()) {
        DeviceCounts more = all;
        ++more[p];
        price->second = std::max(0.0, value(more) - now);
      }
      prices.push_back(price->second);
    }
    return prices;
  }

  bool IsRentedWhole(int machine) const {
    return (problem_.goal == Goal::kPrice || problem_.goal == Goal::kBudget) &&
           problem_.graph->machines()[static_cast<size_t>(machine)].price_usd_per_hour > 0;
  }

  // Columns may use devices of a machine with a price where it is rented: rows by machine, -1:
  // none.
  std::vector<int> AddMachines(const DeviceCounts& devices, int cost_row,
                               LinearProgram* program) const {
    std::vector<int> rows(problem_.graph->machines().size(), -1);
    for (size_t m = 0; m < rows.size(); ++m) {
      if (!IsRentedWhole(static_cast<int>(m))) continue;
      const double usd = problem_.graph->machines()[m].price_usd_per_hour;
      rows[m] = program->AddRow(-kUnbounded, 0);
      const int rented = program->AddVariable(problem_.goal == Goal::kPrice ? -usd : 0, 0, 1, true);
      for (size_t p = 0; p < devices.size(); ++p) {
        if (problem_.graph->pools()[p].machine == static_cast<int>(m))
          program->AddTerm(rows[m], rented, -devices[p]);
      }
      program->AddTerm(cost_row, rented, usd);
    }
    return rows;
  }

  double PriceBesideMachines(const PlacedReplica& replica) const {
    double usd = 0;
    for (const LayoutStage& stage : replica.stages) {
      const DevicePool& pool = problem_.graph->pools()[static_cast<size_t>(stage.pool)];
      if (!IsRentedWhole(pool.machine)) usd += stage.width * pool.price_usd_per_hour;
    }
    return usd;
  }

  // served <= what columns that do not use the machine serve.
  void AddServed(int machine, int served, const std::vector<int>& variables,
                 LinearProgram* program) const {
    const int row = program->AddRow(-kUnbounded, 0);
    program->AddTerm(row, served, 1);
    const int split = program->AddVariable(0, 0, kUnbounded, false);
    program->AddTerm(row, split, -1);
    const int prefill = program->AddRow(-kUnbounded, 0), decode = program->AddRow(-kUnbounded, 0);
    program->AddTerm(prefill, split, 1);
    program->AddTerm(decode, split, 1);
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::vector<int> used = MachinesOf(problem_, columns_[c]);
      if (std::find(used.begin(), used.end(), machine) != used.end()) continue;
      const Role role = columns_[c].role;
      program->AddTerm(role == Role::kBoth      ? row
                       : role == Role::kPrefill ? prefill
                                                : decode,
                       variables[c], -columns_[c].rate.requests_per_second);
    }
  }

  // Plans what the worst machine takes down again: once without it, then on it alone.
  void Improve() {
    for (int round = 0; round < options_.most_rounds && best_; ++round) {
      if (parts_.spent() || problem_.watch.Stopped()) return;
      problem_.watch.Report(absl::StrFormat("%.3f requests/s survive the worst machine",
                                            best_->worst.requests_per_second));
      const int worst = best_->worst.machine;
      std::vector<PlacedReplica> kept;
      for (const PlacedReplica& replica : best_->placement.replicas) {
        const std::vector<int> used = MachinesOf(problem_, replica);
        if (std::find(used.begin(), used.end(), worst) == used.end()) kept.push_back(replica);
      }
      DeviceCounts free = AllDevices(problem_);
      const DeviceCounts taken = DevicesOf(problem_, kept);
      for (size_t p = 0; p < free.size(); ++p) free[p] -= taken[p];
      const DeviceCounts on_worst = OfMachine(problem_, free, worst);
      for (size_t p = 0; p < free.size(); ++p) free[p] -= on_worst[p];
      Placement again;
      again.replicas = kept;
      for (const DeviceCounts& part : {free, on_worst}) {
        const absl::StatusOr<Placement> found = parts_.On(part);
        if (found.ok())
          again.replicas.insert(again.replicas.end(), found->replicas.begin(),
                                found->replicas.end());
      }
      const bool gained = Offer(again);
      if (!Combine() && !gained) return;
    }
  }

  // --- Answers ---

  absl::StatusOr<Placement> Answer() const {
    Placement placement = best_->placement;
    placement.proved = false;  // it was, to serve most while nothing is lost
    placement.alternatives.clear();
    placement.shadow_prices = ShadowPrices();
    placement.interrupted = problem_.watch.Stopped();
    placement.evaluations = parts_.searches() + 1;
    if (problem_.goal != Goal::kPrice) placement.upper_bound = bound_;
    placement.notes.emplace_back().set_survival_searches(static_cast<int>(parts_.searches()));
    if (without_.worst.requests_per_second < best_->worst.requests_per_second * (1 - 1e-6)) {
      v1::CarelessPlan& careless = *placement.notes.emplace_back().mutable_careless();
      careless.set_requests_per_second(without_.placement.requests_per_second);
      careless.set_left_requests_per_second(without_.worst.requests_per_second);
      careless.set_machine(NameOf(problem_, without_.worst.machine));
    }
    return placement;
  }

  absl::Status NothingSurvives() const {
    if (!needed_.empty()) {
      return absl::ResourceExhaustedError(StrCat("no plan survives the loss of machine ", needed_,
                                                 ": everything depends on it; without it, ",
                                                 why_needed_));
    }
    return absl::ResourceExhaustedError(StrCat(
        "no plan was found that survives the loss of any machine: every replica that fits spans "
        "machines, and all of the best plan's depend on ",
        NameOf(problem_, without_.worst.machine),
        "; add a machine, or plan without --survive-machine-loss"));
  }

  absl::Status TooLittleSurvives() const {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "no plan was found that still serves %.3f requests/s after the loss of any machine: the "
        "best keeps %.3f, without %s",
        problem_.required_requests_per_second, best_->worst.requests_per_second,
        NameOf(problem_, best_->worst.machine)));
  }

  const PlacementProblem& problem_;
  const Search& search_;
  const SurvivalOptions& options_;
  ReplicaJudge judge_;
  PartSearch parts_;
  std::vector<int> machines_;  // with devices
  std::vector<PlacedReplica> columns_;
  std::set<std::string> keys_;
  std::set<int> tried_without_;
  std::optional<Judged> best_;
  Judged without_;  // what the search answers when nothing must survive
  double bound_ = 0;
  std::string needed_, why_needed_;
};

}  // namespace

Search SurvivingSearch(Search search, const SurvivalOptions& options) {
  return [search = std::move(search), options](const PlacementProblem& problem) {
    return Survivor(problem, search, options).Run();
  };
}

}  // namespace tessera::scheduler
