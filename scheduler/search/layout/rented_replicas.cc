#include "scheduler/search/layout/rented_replicas.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "scheduler/search/math/linear_program.h"

namespace tessera::scheduler {
namespace {

// What may be rented of a bunch.
struct Option {
  double rates[3] = {0, 0, 0};  // by role
  double usd_per_hour = 0;
  std::vector<size_t> members;  // places in the bunch

  auto Key() const { return std::tuple(rates[0], rates[1], rates[2], usd_per_hour, members); }
  friend bool operator<(const Option& a, const Option& b) { return a.Key() < b.Key(); }
};

class Renting {
 public:
  Renting(const PlacementProblem& problem, const std::vector<const PlacedReplica*>& replicas)
      : problem_(problem), replicas_(replicas) {}

  std::vector<bool> Run() {
    std::map<std::vector<Option>, std::vector<size_t>> kinds;  // of bunches, with which these are
    const std::vector<std::vector<size_t>> bunches = Bunches();
    for (size_t b = 0; b < bunches.size(); ++b) kinds[OptionsOf(bunches[b])].push_back(b);
    std::vector<bool> chosen(replicas_.size(), false);
    StartProgram();
    std::vector<int> variables;
    for (const auto& [options, alike] : kinds) AddKind(options, alike.size(), &variables);
    const absl::StatusOr<LinearProgram::Solution> solution = program_.Solve(false);
    if (!solution.ok()) return chosen;  // the required rate is out of reach
    size_t v = 0;
    for (const auto& [options, alike] : kinds) {
      size_t next = 0;
      for (const Option& option : options) {
        const auto copies = static_cast<int>(solution->values[static_cast<size_t>(variables[v++])]);
        for (int i = 0; i < copies; ++i) {
          const std::vector<size_t>& bunch = bunches[alike[next++]];
          for (const size_t m : option.members) chosen[bunch[m]] = true;
        }
      }
    }
    return chosen;
  }

 private:
  bool ShareMachine(size_t i, size_t j) const {
    const ClusterGraph& graph = *problem_.graph;
    for (const LayoutStage& a : replicas_[i]->stages) {
      const int machine = graph.pools()[static_cast<size_t>(a.pool)].machine;
      if (graph.machines()[static_cast<size_t>(machine)].price_usd_per_hour <= 0) continue;
      for (const LayoutStage& b : replicas_[j]->stages) {
        if (graph.pools()[static_cast<size_t>(b.pool)].machine == machine) return true;
      }
    }
    return false;
  }

  // Like bunches list like replicas in the same order.
  std::vector<std::vector<size_t>> Bunches() const {
    std::vector<size_t> order;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (replicas_[i]->rate.requests_per_second > 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
      const PlacedReplica &a = *replicas_[i], &b = *replicas_[j];
      return std::pair(b.rate.requests_per_second, a.role) <
             std::pair(a.rate.requests_per_second, b.role);
    });
    std::vector<std::vector<size_t>> bunches;
    for (const size_t i : order) {
      std::vector<size_t> joined;
      std::erase_if(bunches, [&](const std::vector<size_t>& bunch) {
        const bool with =
            std::any_of(bunch.begin(), bunch.end(), [&](size_t j) { return ShareMachine(i, j); });
        if (with) joined.insert(joined.end(), bunch.begin(), bunch.end());
        return with;
      });
      joined.push_back(i);
      bunches.push_back(std::move(joined));
    }
    return bunches;
  }

  std::vector<Option> OptionsOf(const std::vector<size_t>& bunch) const {
    std::vector<Option> options;
    if (bunch.size() <= kMaxOfBunch) {
      for (size_t mask = 1; mask < size_t{1} << bunch.size(); ++mask) {
        std::vector<size_t> members;
        for (size_t m = 0; m < bunch.size(); ++m) {
          if (mask >> m & 1) members.push_back(m);
        }
        options.push_back(OptionOf(bunch, std::move(members)));
      }
    } else {
      for (size_t first = 1; first <= bunch.size(); ++first) {
        std::vector<size_t> members(first);
        std::iota(members.begin(), members.end(), size_t{0});
        options.push_back(OptionOf(bunch, std::move(members)));
      }
    }
    return WorthRenting(std::move(options));
  }

  // Those that no other one beats: who pays for a machine anyway takes all that it holds. For a
  // like price and like rates the one of fewer replicas, and of these the first.
  static std::vector<Option> WorthRenting(std::vector<Option> options) {
    std::stable_sort(options.begin(), options.end(), [](const Option& a, const Option& b) {
      return std::tuple(a.usd_per_hour, -a.rates[0] - a.rates[1] - a.rates[2], a.members.size()) <
             std::tuple(b.usd_per_hour, -b.rates[0] - b.rates[1] - b.rates[2], b.members.size());
    });
    std::vector<Option> kept;
    for (Option& option : options) {
      const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const Option& other) {
        return other.rates[0] >= option.rates[0] && other.rates[1] >= option.rates[1] &&
               other.rates[2] >= option.rates[2];
      });
      if (!beaten) kept.push_back(std::move(option));
    }
    return kept;
  }

  Option OptionOf(const std::vector<size_t>& bunch, std::vector<size_t> members) const {
    Option option;
    std::vector<bool> rented(replicas_.size(), false);
    for (const size_t m : members) {
      const PlacedReplica& replica = *replicas_[bunch[m]];
      rented[bunch[m]] = true;
      option.rates[static_cast<size_t>(replica.role)] += replica.rate.requests_per_second;
    }
    option.usd_per_hour = RentOf(problem_, replicas_, rented);
    option.members = std::move(members);
    return option;
  }

  // served <= both + split, split <= prefill, split <= decode
  void StartProgram() {
    const bool price = problem_.goal == Goal::kPrice;
    const int served = program_.AddVariable(price ? 0 : 1, 0, kUnbounded, false);
    const int split = program_.AddVariable(0, 0, kUnbounded, false);
    for (int& row : role_rows_) row = program_.AddRow(-kUnbounded, 0);
    const int need_row =
        program_.AddRow(price ? problem_.required_requests_per_second : -kUnbounded, kUnbounded);
    cost_row_ = program_.AddRow(
        -kUnbounded, problem_.goal == Goal::kBudget ? problem_.budget_usd_per_hour : kUnbounded);
    program_.AddTerm(role_rows_[static_cast<size_t>(Role::kBoth)], served, 1);
    program_.AddTerm(role_rows_[static_cast<size_t>(Role::kBoth)], split, -1);
    program_.AddTerm(role_rows_[static_cast<size_t>(Role::kPrefill)], split, 1);
    program_.AddTerm(role_rows_[static_cast<size_t>(Role::kDecode)], split, 1);
    program_.AddTerm(need_row, served, 1);
  }

  void AddKind(const std::vector<Option>& options, size_t alike, std::vector<int>* variables) {
    const auto most = static_cast<double>(alike);
    const int row = program_.AddRow(-kUnbounded, most);
    for (const Option& option : options) {
      const int y = program_.AddVariable(problem_.goal == Goal::kPrice ? -option.usd_per_hour : 0,
                                         0, most, true);
      variables->push_back(y);
      program_.AddTerm(row, y, 1);
      program_.AddTerm(cost_row_, y, option.usd_per_hour);
      for (size_t role = 0; role < 3; ++role) {
        if (option.rates[role] > 0) program_.AddTerm(role_rows_[role], y, -option.rates[role]);
      }
    }
  }

  const PlacementProblem& problem_;
  const std::vector<const PlacedReplica*>& replicas_;
  LinearProgram program_;
  int role_rows_[3] = {0, 0, 0};
  int cost_row_ = 0;
};

}  // namespace

std::vector<bool> RentedReplicas(const PlacementProblem& problem,
                                 const std::vector<const PlacedReplica*>& replicas) {
  if (problem.goal == Goal::kPrice || problem.goal == Goal::kBudget)
    return Renting(problem, replicas).Run();
  std::vector<bool> chosen;
  for (const PlacedReplica* replica : replicas)
    chosen.push_back(replica->rate.requests_per_second > 0);
  return chosen;
}

double RentOf(const PlacementProblem& problem, const std::vector<const PlacedReplica*>& replicas,
              const std::vector<bool>& rented) {
  std::vector<int> used(problem.graph->pools().size(), 0);
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (!rented[i]) continue;
    for (const LayoutStage& stage : replicas[i]->stages)
      used[static_cast<size_t>(stage.pool)] += stage.width;
  }
  return problem.graph->RentOf(used);
}

}  // namespace tessera::scheduler
