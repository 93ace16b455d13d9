#include "tests/scheduler/search/placement_enumerator.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "scheduler/cost/hand_over_bytes.h"
#include "scheduler/search/layout/goodput.h"
#include "tests/scheduler/search/every_layout.h"

namespace tessera::tests {
namespace {

using scheduler::LayoutStage;
using scheduler::Role;

constexpr Role kRoles[] = {Role::kBoth, Role::kPrefill, Role::kDecode};
constexpr int kMachineBits = 3;  // of a layer's machine in a layout's map of machines

struct Kept {
  double rate = 0;
  uint64_t machines = 0;  // of every layer, the last layer in the lowest bits
  std::vector<LayoutStage> stages;
};

// Every layout of the cluster's devices in every role, by the devices it uses.
class AllLayouts {
 public:
  explicit AllLayouts(const scheduler::PlacementProblem& problem)
      : problem_(problem), lengths_(scheduler::MomentsOf(problem.samples)), judge_(problem) {
    layout_.model = problem.model;
    layout_.graph = problem.graph;
    for (const auto& pool : problem.graph->pools()) {
      layout_.pools.push_back({pool.spec, pool.machine, pool.count});
      radix_.push_back(states_);
      states_ *= pool.count + 1;
    }
    for (auto& role : kept_) role.resize(static_cast<size_t>(states_));
    ForEveryLayout(layout_, [&](const std::vector<LayoutStage>& stages) { Judge(stages); });
  }

  int states() const { return states_; }
  int radix(size_t pool) const { return radix_[pool]; }
  long looked_at() const { return looked_at_; }

  // Best first.
  std::vector<Kept> Of(Role role, int used) const {
    std::vector<Kept> sorted;
    for (const auto& [machines, kept] :
         kept_[static_cast<size_t>(role)][static_cast<size_t>(used)]) {
      sorted.push_back(kept);
    }
    std::sort(sorted.begin(), sorted.end(), [](const Kept& a, const Kept& b) {
      return std::pair(-a.rate, a.machines) < std::pair(-b.rate, b.machines);
    });
    return sorted;
  }

 private:
  int MachineOf(const LayoutStage& stage) const {
    return problem_.graph->pools()[static_cast<size_t>(stage.pool)].machine;
  }

  // Where it is no more than `known` another figure that is not: goodput is at most the capacity.
  double WorthOf(const scheduler::ReplicaSpec& replica, double known) {
    const double capacity =
        CapacityOf(*problem_.model, replica, lengths_, problem_.options).requests_per_second;
    if (problem_.goal != scheduler::Goal::kGoodput || capacity <= known) return capacity;
    return judge_.RateOf(replica).requests_per_second;
  }

  void Judge(const std::vector<LayoutStage>& stages) {
    ++looked_at_;
    scheduler::ReplicaSpec replica = ReplicaOf(layout_, stages);
    int used = 0;
    uint64_t machines = 0;
    for (const LayoutStage& stage : stages) {
      used += stage.width * radix_[static_cast<size_t>(stage.pool)];
      for (int i = 0; i < stage.layers; ++i)
        machines = (machines << kMachineBits) | static_cast<uint64_t>(MachineOf(stage));
    }
    for (const Role role : kRoles) {
      if (role != Role::kBoth && !problem_.allow_split) break;
      replica.role = role;
      auto& kept = kept_[static_cast<size_t>(role)][static_cast<size_t>(used)];
      // Whoever does both sends its KV nowhere.
      const uint64_t key = role == Role::kBoth ? 0 : machines;
      const auto best = kept.find(key);
      const double known = best == kept.end() ? 0 : best->second.rate;
      const double rate = WorthOf(replica, known);
      if (rate > known) kept[key] = {rate, machines, stages};
    }
  }

  const scheduler::PlacementProblem& problem_;
  const scheduler::LengthMoments lengths_;
  scheduler::ReplicaJudge judge_;
  scheduler::LayoutProblem layout_;
  std::vector<int> radix_;
  int states_ = 1;
  std::vector<std::unordered_map<uint64_t, Kept>> kept_[3];  // by role and devices used
  long looked_at_ = 0;
};

// max sum(x) with rows * x <= limits, x >= 0, limits >= 0: the simplex method, Bland's rule.
double Maximum(std::vector<std::vector<double>> rows, std::vector<double> limits) {
  const size_t n = rows.empty() ? 0 : rows[0].size(), m = rows.size();
  for (size_t r = 0; r < m; ++r) {  // slack variables, then the right side
    rows[r].resize(n + m, 0);
    rows[r][n + r] = 1;
    rows[r].push_back(limits[r]);
  }
  std::vector<double> costs(n + m + 1, 0);
  std::fill(costs.begin(), costs.begin() + static_cast<long>(n), -1);
  std::vector<size_t> basis;
  for (size_t r = 0; r < m; ++r) basis.push_back(n + r);
  while (true) {
    size_t enter = 0;
    while (enter < n + m && costs[enter] > -1e-12) ++enter;
    if (enter == n + m) return costs.back();
    size_t leave = m;
    for (size_t r = 0; r < m; ++r) {
      if (rows[r][enter] <= 1e-12) continue;
      if (leave == m) {
        leave = r;
        continue;
      }
      const double a = rows[r].back() / rows[r][enter];
      const double b = rows[leave].back() / rows[leave][enter];
      if (a < b || (a == b && basis[r] < basis[leave])) leave = r;
    }
    if (leave == m) return std::numeric_limits<double>::infinity();
    const double pivot = rows[leave][enter];
    for (double& value : rows[leave]) value /= pivot;
    const auto clear = [&](std::vector<double>* row) {
      const double factor = (*row)[enter];
      for (size_t i = 0; i < row->size(); ++i) (*row)[i] -= factor * rows[leave][i];
    };
    for (size_t r = 0; r < m; ++r) {
      if (r != leave) clear(&rows[r]);
    }
    clear(&costs);
    basis[leave] = enter;
  }
}

class Enumerator {
 public:
  explicit Enumerator(const scheduler::PlacementProblem& problem)
      : problem_(problem), graph_(*problem.graph), layouts_(problem) {
    const auto lengths = scheduler::MomentsOf(problem.samples);
    kv_ = HandedOver(*problem.model, lengths.prompt_tokens);
    for (const Role role : kRoles) {
      for (int used = 0; used < layouts_.states(); ++used) {
        std::vector<Kept> kept = layouts_.Of(role, used);
        if (kept.empty()) continue;
        (role == Role::kBoth ? whole_ : split_).push_back({role, used, std::move(kept)});
      }
    }
  }

  EnumeratedPlacement Run() {
    FillWhole();
    const int all = layouts_.states() - 1;
    best_.requests_per_second = best_.over_free_links = served_whole_[static_cast<size_t>(all)];
    AppendWhole(all, &best_.replicas);
    GrowSplit(0, all, 0, 0);
    best_.layouts = layouts_.looked_at();
    return std::move(best_);
  }

 private:
  struct Group {
    Role role = Role::kBoth;
    int used = 0;
    std::vector<Kept> layouts;  // best first
    double rate() const { return layouts[0].rate; }
  };

  bool Within(int used, int free) const {
    for (size_t p = 0; p < graph_.pools().size(); ++p) {
      const int base = graph_.pools()[p].count + 1, radix = layouts_.radix(p);
      if (used / radix % base > free / radix % base) return false;
    }
    return true;
  }

  // What replicas that do both serve at most, by the devices they may use.
  void FillWhole() {
    served_whole_.assign(static_cast<size_t>(layouts_.states()), 0);
    first_whole_.assign(static_cast<size_t>(layouts_.states()), nullptr);
    for (int free = 1; free < layouts_.states(); ++free) {
      for (const Group& group : whole_) {
        if (!Within(group.used, free)) continue;
        const double served = group.rate() + served_whole_[static_cast<size_t>(free - group.used)];
        if (served <= served_whole_[static_cast<size_t>(free)]) continue;
        served_whole_[static_cast<size_t>(free)] = served;
        first_whole_[static_cast<size_t>(free)] = &group;
      }
    }
  }

  void AppendWhole(int free, std::vector<EnumeratedReplica>* replicas) const {
    while (const Group* group = first_whole_[static_cast<size_t>(free)]) {
      replicas->push_back({Role::kBoth, group->layouts[0].stages});
      free -= group->used;
    }
  }

  // Adds groups from `first` on to chosen_.
  void GrowSplit(size_t first, int free, double prefill, double decode) {
    for (size_t g = first; g < split_.size(); ++g) {
      const Group& group = split_[g];
      if (!Within(group.used, free)) continue;
      const int rest = free - group.used;
      const bool prefills = group.role == Role::kPrefill;
      const double p = prefill + (prefills ? group.rate() : 0);
      const double d = decode + (prefills ? 0 : group.rate());
      chosen_.push_back(&group);
      const double served = std::min(p, d) + served_whole_[static_cast<size_t>(rest)];
      best_.over_free_links = std::max(best_.over_free_links, served);
      if (served > best_.requests_per_second) {
        layout_of_.assign(chosen_.size(), nullptr);
        ChooseLayouts(0, rest, p, d);
      }
      GrowSplit(g, rest, p, d);
      chosen_.pop_back();
    }
  }

  // Every layout of the chosen groups from `at` on; p and d: what they prefill and decode at most.
  void ChooseLayouts(size_t at, int rest, double p, double d) {
    const double whole = served_whole_[static_cast<size_t>(rest)];
    if (at == chosen_.size()) {
      const double served = Carried() + whole;
      if (served <= best_.requests_per_second) return;
      best_.requests_per_second = served;
      best_.replicas.clear();
      for (size_t i = 0; i < chosen_.size(); ++i)
        best_.replicas.push_back({chosen_[i]->role, layout_of_[i]->stages});
      AppendWhole(rest, &best_.replicas);
      return;
    }
    const Group& group = *chosen_[at];
    for (const Kept& layout : group.layouts) {
      const double less = group.rate() - layout.rate;
      const bool prefills = group.role == Role::kPrefill;
      const double p_now = p - (prefills ? less : 0), d_now = d - (prefills ? 0 : less);
      if (std::min(p_now, d_now) + whole <= best_.requests_per_second) return;
      layout_of_[at] = &layout;
      ChooseLayouts(at + 1, rest, p_now, d_now);
    }
  }

  int MachineOfLayer(const Kept& layout, int layer) const {
    const int shift = (problem_.model->layers - 1 - layer) * kMachineBits;
    return static_cast<int>(layout.machines >> shift) & ((1 << kMachineBits) - 1);
  }

  // What the chosen layouts serve together: prefill, links, decode.
  double Carried() {
    rows_.clear();
    limits_.clear();
    load_row_.clear();
    size_t pairs = 0;
    for (const auto* a : chosen_) {
      for (const auto* b : chosen_)
        pairs += a->role == Role::kPrefill && b->role == Role::kDecode ? 1 : 0;
    }
    if (pairs == 0) return 0;
    const auto add_row = [&](double limit) {
      rows_.emplace_back(pairs, 0);
      limits_.push_back(limit);
      return rows_.size() - 1;
    };
    for (const Kept* layout : layout_of_) add_row(layout->rate);
    size_t pair = 0;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (chosen_[i]->role != Role::kPrefill) continue;
      for (size_t j = 0; j < chosen_.size(); ++j) {
        if (chosen_[j]->role != Role::kDecode) continue;
        rows_[i][pair] = rows_[j][pair] = 1;
        LoadLinks(*layout_of_[i], *layout_of_[j], pair, add_row);
        ++pair;
      }
    }
    if (pairs > 1) return Maximum(rows_, limits_);
    double most = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r][0] > 0) most = std::min(most, limits_[r] / rows_[r][0]);
    }
    return most;
  }

  // KV and states of a request go from the machine of a layer to the machine of that layer. One
  // request after another passes the slower of the first and the last layer's link; links that
  // machines and sites share carry what all pairs send.
  template <typename AddRow>
  void LoadLinks(const Kept& from, const Kept& to, size_t pair, const AddRow& add_row) {
    if (kv_.empty()) return;
    const int layers = problem_.model->layers;
    scheduler::KvTransfer slowest;
    for (const int layer : {0, layers - 1}) {
      const auto& link = graph_.Between(MachineOfLayer(from, layer), MachineOfLayer(to, layer));
      const auto transfer = BestKvTransfer(kv_, link, layers, 0, problem_.codec_rates);
      if (transfer.seconds > slowest.seconds) slowest = transfer;
    }
    rows_[add_row(1 / slowest.seconds)][pair] = 1;
    const double layer_bytes = WireBytes(kv_, slowest.codec) / layers;
    for (int layer = 0; layer < layers; ++layer) {
      const int a = MachineOfLayer(from, layer), b = MachineOfLayer(to, layer);
      if (a == b) continue;
      const auto load = [&](const char* what, const std::string& from_name,
                            const std::string& to_name, const scheduler::LinkSpec& link) {
        const auto [row, fresh] = load_row_.try_emplace({what, from_name, to_name}, 0);
        if (fresh) row->second = add_row(link.bytes_per_second);
        rows_[row->second][pair] += layer_bytes;
      };
      const auto& source = graph_.machines()[static_cast<size_t>(a)];
      const auto& target = graph_.machines()[static_cast<size_t>(b)];
      load("link", source.name, target.name, graph_.Between(a, b));
      if (source.uplink) load("out of machine", source.name, "", *source.uplink);
      if (target.uplink) load("into machine", "", target.name, *target.uplink);
      if (source.site == target.site) continue;
      const auto& sites = graph_.site_uplinks();
      if (const auto out = sites.find(source.site); out != sites.end())
        load("out of site", source.site, "", out->second);
      if (const auto in = sites.find(target.site); in != sites.end())
        load("into site", "", target.site, in->second);
    }
  }

  const scheduler::PlacementProblem& problem_;
  const scheduler::ClusterGraph& graph_;
  const AllLayouts layouts_;
  scheduler::RawKv kv_;  // of a request's prompt
  std::vector<Group> whole_, split_;
  std::vector<double> served_whole_;       // by devices that are free
  std::vector<const Group*> first_whole_;  // a replica of the best, by devices that are free
  std::vector<const Group*> chosen_;
  std::vector<const Kept*> layout_of_;  // of the chosen
  EnumeratedPlacement best_;
  // Of Carried.
  std::vector<std::vector<double>> rows_;
  std::vector<double> limits_;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> load_row_;
};

}  // namespace

EnumeratedPlacement EnumeratePlacements(const scheduler::PlacementProblem& problem) {
  return Enumerator(problem).Run();
}

}  // namespace tessera::tests
