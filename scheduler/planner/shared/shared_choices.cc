#include "scheduler/planner/shared/shared_choices.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "scheduler/search/math/linear_program.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr int kMaxDevices = 128;  // searches of half of more take long
constexpr int kMaxSearches = 60;  // of parts, by model
constexpr int64_t kMaxSearchedDevices = 1500;
constexpr int kEveryWayUpTo = 12;  // devices whose groups are dealt in every way
constexpr size_t kMaxWays = 64;
constexpr int kMaxRounds = 4;  // of the program that deals groups
constexpr double kGroupGap = 1e-3;
constexpr int kGroupNodes = 500;
constexpr double kSumWeight = 1e-4;  // of all models' parts beside theta

const ClusterGraph& GraphOf(const SharingQuestion& question) {
  return *question.problems.front()->graph;
}

using Ways = std::vector<size_t>;  // the model that has the group, by group

// Deals groups of devices, each to one model.
class GroupDealer {
 public:
  GroupDealer(const SharingQuestion& question, std::vector<DeviceCounts> groups)
      : question_(question), groups_(std::move(groups)) {}

  OtherDeal Run(v1::ChoiceKind choice) {
    found_.choice = choice;
    if (groups_.size() < models()) {
      found_.why.set_too_few(true);
      return std::move(found_);
    }
    size_t ways = 1;
    for (size_t g = 0; g < groups_.size() && ways <= kMaxWays; ++g) ways *= models();
    if (ways <= kMaxWays && GraphOf(question_).devices() <= kEveryWayUpTo) {
      EveryWay();
    } else {
      ByProgram();
    }
    return std::move(found_);
  }

 private:
  size_t models() const { return question_.problems.size(); }

  Dealer::Parts PartsOf(const Ways& ways) const {
    Dealer::Parts parts(models(), DeviceCounts(groups_.front().size(), 0));
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t p = 0; p < groups_[g].size(); ++p) parts[ways[g]][p] += groups_[g][p];
    }
    return parts;
  }

  void Keep(Deal deal) {
    if (!deal.placements.empty() &&
        (found_.deal.placements.empty() || question_.dealer.Better(deal, found_.deal)))
      found_.deal = std::move(deal);
  }

  // The model whose part does not serve it.
  std::optional<size_t> Unserved(const Dealer::Parts& parts) {
    for (size_t i = 0; i < models(); ++i) {
      if (question_.dealer.RateOn(i, parts[i]) > 0) continue;
      found_.why.set_model(question_.problems[i]->model->name);
      return i;
    }
    return std::nullopt;
  }

  void EveryWay() {
    Ways ways(groups_.size(), 0);
    bool more = true;
    while (more) {
      const Dealer::Parts parts = PartsOf(ways);
      if (!Unserved(parts)) Keep(question_.dealer.OnParts(parts));
      more = false;
      for (size_t g = 0; g < ways.size() && !more; ++g) {
        more = ++ways[g] < models();
        if (!more) ways[g] = 0;
      }
    }
  }

  // What a group is worth to a model that has all: the prices of its search, else by FLOP/s.
  std::vector<double> Worths(size_t model) const {
    const Placement& alone = question_.alone[model];
    const std::vector<DevicePool>& pools = GraphOf(question_).pools();
    const bool priced = alone.shadow_prices.size() == pools.size();
    std::vector<double> worths;
    double all = 0;
    for (const DeviceCounts& group : groups_) {
      double worth = 0;
      for (size_t p = 0; p < pools.size(); ++p)
        worth += group[p] * (priced ? alone.shadow_prices[p] : pools[p].spec->flops_per_second);
      worths.push_back(worth);
      all += worth;
    }
    if (all <= 0) return std::vector<double>(groups_.size(), 1);
    for (double& worth : worths) worth *= alone.requests_per_second / all;
    return worths;
  }

  struct Cut {
    size_t model = 0;
    Ways ways;  // on whose groups the model does not fit
  };

  std::optional<Ways> Solve(const std::vector<std::vector<double>>& worths,
                            const std::vector<Cut>& cuts) const {
    LinearProgram program;
    const int theta = program.AddVariable(1, 0, kUnbounded, false);
    std::vector<int> rows;
    for (size_t i = 0; i < models(); ++i) {
      rows.push_back(program.AddRow(0, kUnbounded));
      program.AddTerm(rows.back(), theta, -question_.weights[i]);
    }
    std::vector<std::vector<int>> takes(models());
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int once = program.AddRow(1, 1);
      for (size_t i = 0; i < models(); ++i) {
        const double worth = worths[i][g];
        takes[i].push_back(
            program.AddVariable(kSumWeight * worth / question_.weights[i], 0, 1, true));
        program.AddTerm(once, takes[i].back(), 1);
        program.AddTerm(rows[i], takes[i].back(), worth);
      }
    }
    for (const Cut& cut : cuts) {
      const int more = program.AddRow(1, kUnbounded);
      for (size_t g = 0; g < groups_.size(); ++g) {
        if (cut.ways[g] != cut.model) program.AddTerm(more, takes[cut.model][g], 1);
      }
    }
    const absl::StatusOr<LinearProgram::Solution> solution =
        program.Solve(false, kGroupGap, kGroupNodes);
    if (!solution.ok()) return std::nullopt;
    Ways ways(groups_.size(), 0);
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t i = 0; i < models(); ++i) {
        if (solution->values[static_cast<size_t>(takes[i][g])] > 0.5) ways[g] = i;
      }
    }
    return ways;
  }

  void ByProgram() {
    std::vector<std::vector<double>> worths;
    for (size_t i = 0; i < models(); ++i) worths.push_back(Worths(i));
    std::vector<Cut> cuts;
    std::set<Ways> tried;
    for (int round = 0; round < kMaxRounds; ++round) {
      const std::optional<Ways> ways = Solve(worths, cuts);
      if (!ways || !tried.insert(*ways).second) return;
      const Dealer::Parts parts = PartsOf(*ways);
      if (const std::optional<size_t> unserved = Unserved(parts)) {
        cuts.push_back({*unserved, *ways});
        continue;
      }
      Deal deal = question_.dealer.OnParts(parts);
      for (size_t i = 0; i < models(); ++i) {
        double estimate = 0;
        for (size_t g = 0; g < groups_.size(); ++g) {
          if ((*ways)[g] == i) estimate += worths[i][g];
        }
        if (estimate <= 0) continue;
        for (double& worth : worths[i]) worth *= deal.placements[i].requests_per_second / estimate;
      }
      Keep(std::move(deal));
    }
  }

  const SharingQuestion& question_;
  const std::vector<DeviceCounts> groups_;
  OtherDeal found_;
};

// --- The choices ---

// A group for each value of `key` (of a pool).
template <typename Key>
std::vector<DeviceCounts> GroupsBy(const ClusterGraph& graph, Key key) {
  std::map<decltype(key(graph.pools().front())), DeviceCounts> groups;
  for (size_t p = 0; p < graph.pools().size(); ++p) {
    const DevicePool& pool = graph.pools()[p];
    groups.try_emplace(key(pool), graph.pools().size(), 0).first->second[p] = pool.count;
  }
  std::vector<DeviceCounts> all;
  for (auto& [name, group] : groups) all.push_back(std::move(group));
  return all;
}

// Whether a group has devices of two models.
bool Shares(const Dealer::Parts& parts, const std::vector<DeviceCounts>& groups) {
  for (const DeviceCounts& group : groups) {
    int users = 0;
    for (const DeviceCounts& part : parts) {
      bool uses = false;
      for (size_t p = 0; p < part.size(); ++p) uses = uses || (group[p] > 0 && part[p] > 0);
      if (uses) ++users;
    }
    if (users > 1) return true;
  }
  return false;
}

// Machines of a shape are dealt in turn, and the devices of those that are left over.
Dealer::Parts EvenParts(const ClusterGraph& graph, size_t models) {
  std::map<int, std::vector<size_t>> pools_of;  // by machine
  for (size_t p = 0; p < graph.pools().size(); ++p) pools_of[graph.pools()[p].machine].push_back(p);
  std::map<std::string, std::vector<int>> machines_of;  // by shape
  for (const auto& [machine, pools] : pools_of) {
    std::string shape = StrCat(graph.machines()[static_cast<size_t>(machine)].group);
    for (const size_t p : pools)
      shape += StrCat("|", graph.pools()[p].spec->kind, ",", graph.pools()[p].count);
    machines_of[shape].push_back(machine);
  }
  Dealer::Parts parts(models, DeviceCounts(graph.pools().size(), 0));
  size_t turn = 0;
  for (const auto& [shape, machines] : machines_of) {
    const size_t whole = machines.size() / models * models;
    for (size_t m = 0; m < machines.size(); ++m) {
      for (const size_t p : pools_of[machines[m]]) {
        const int count = graph.pools()[p].count;
        if (m < whole) {
          parts[m % models][p] = count;
          continue;
        }
        for (size_t i = 0; i < models; ++i) parts[i][p] = count / static_cast<int>(models);
        for (int rest = count % static_cast<int>(models); rest > 0; --rest)
          ++parts[turn++ % models][p];
      }
    }
  }
  return parts;
}

OtherDeal EvenDeal(const SharingQuestion& question) {
  OtherDeal even;
  even.choice = v1::CHOICE_KIND_EVEN;
  const ClusterGraph& graph = GraphOf(question);
  const Dealer::Parts parts = EvenParts(graph, question.problems.size());
  even.deal = question.dealer.OnParts(parts);
  if (!even.deal.placements.empty()) return even;
  for (size_t i = 0; i < parts.size() && even.why.model().empty(); ++i) {
    if (question.dealer.RateOn(i, parts[i]) > 0) continue;
    even.why.set_model(question.problems[i]->model->name);
    *even.why.mutable_kinds() = KindsOf(graph, parts[i]);
  }
  return even;
}

void SetAgainst(const SharingQuestion& question, double theta, const Deal& deal,
                v1::FoundChoice* found) {
  found->set_value(theta);
  found->set_unit(ThetaUnit(question.of_asked));
  found->set_ratio(theta / deal.theta);
}

v1::OtherChoice InTurn(const SharingQuestion& question, const Deal& deal) {
  double seconds = 0;  // of the whole cluster, for the weights' requests of a second
  for (size_t i = 0; i < question.weights.size(); ++i)
    seconds += question.weights[i] / question.alone[i].requests_per_second;
  v1::OtherChoice choice;
  choice.set_choice(v1::CHOICE_KIND_IN_TURN);
  for (size_t i = 0; i < question.weights.size(); ++i) {
    v1::ModelShare& turn = *choice.add_turns();
    turn.set_model(question.problems[i]->model->name);
    turn.set_share(question.weights[i] / question.alone[i].requests_per_second / seconds);
  }
  SetAgainst(question, 1 / seconds, deal, choice.mutable_found());
  return choice;
}

v1::OtherChoice ChoiceOf(const SharingQuestion& question, const Deal& deal,
                         const OtherDeal& other) {
  v1::OtherChoice choice;
  choice.set_choice(other.choice);
  if (other.deal.placements.empty()) {
    *choice.mutable_missing() = other.why;
    return choice;
  }
  const auto part = [&](size_t i) {
    return other.deal.placements[i].requests_per_second / question.weights[i];
  };
  size_t least = 0;
  for (size_t i = 1; i < question.weights.size(); ++i) {
    if (part(i) < part(least)) least = i;
  }
  const DeviceCounts used =
      DevicesOf(*question.problems[least], other.deal.placements[least].replicas);
  v1::FoundChoice& found = *choice.mutable_found();
  SetAgainst(question, other.deal.theta, deal, &found);
  found.set_limiting_model(question.problems[least]->model->name);
  *found.mutable_kinds() = KindsOf(GraphOf(question), used);
  return choice;
}

}  // namespace

std::vector<OtherDeal> OtherDeals(const SharingQuestion& question, const Deal& deal) {
  const ClusterGraph& graph = GraphOf(question);
  if (graph.devices() > kMaxDevices) return {};
  question.dealer.AllowMore(kMaxSearches, kMaxSearchedDevices);
  DeviceCounts idle;
  const Dealer::Parts parts = question.dealer.PartsOf(deal, &idle);
  std::vector<OtherDeal> others;
  const std::vector<DeviceCounts> machines =
      GroupsBy(graph, [](const DevicePool& pool) { return pool.machine; });
  const std::vector<DeviceCounts> kinds =
      GroupsBy(graph, [](const DevicePool& pool) { return pool.spec->kind; });
  const auto stopped = [&] { return question.problems.front()->watch.Stopped(); };
  if (!stopped() && Shares(parts, machines)) {
    others.push_back(GroupDealer(question, machines).Run(v1::CHOICE_KIND_MACHINE_EACH));
  }
  if (!stopped()) others.push_back(EvenDeal(question));
  if (!stopped() && Shares(parts, kinds)) {
    others.push_back(GroupDealer(question, kinds).Run(v1::CHOICE_KIND_KIND_EACH));
  }
  // What a stop left of the last one says nothing.
  if (stopped() && !others.empty()) others.pop_back();
  return others;
}

std::vector<v1::OtherChoice> OtherChoices(const SharingQuestion& question, const Deal& deal,
                                          const std::vector<OtherDeal>& others) {
  std::vector<v1::OtherChoice> choices;
  for (const OtherDeal& other : others) choices.push_back(ChoiceOf(question, deal, other));
  if (question.problems.front()->watch.Stopped()) {
    choices.emplace_back();  // interrupted
  } else if (GraphOf(question).devices() > kMaxDevices) {
    choices.emplace_back().set_choice(v1::CHOICE_KIND_OTHER_DEALS);
    choices.back().set_above_devices(kMaxDevices);
  }
  choices.push_back(InTurn(question, deal));
  return choices;
}

google::protobuf::RepeatedPtrField<v1::KindCount> KindsOf(const ClusterGraph& graph,
                                                          const DeviceCounts& devices) {
  std::map<std::string, int> counts;
  for (size_t p = 0; p < devices.size(); ++p) counts[graph.pools()[p].spec->kind] += devices[p];
  google::protobuf::RepeatedPtrField<v1::KindCount> kinds;
  for (const auto& [kind, count] : counts) {
    if (count == 0) continue;
    v1::KindCount& one = *kinds.Add();
    one.set_kind(kind);
    one.set_devices(count);
  }
  return kinds;
}

}  // namespace tessera::scheduler
