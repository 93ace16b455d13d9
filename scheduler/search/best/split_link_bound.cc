#include "scheduler/search/best/split_link_bound.h"

#include <algorithm>
#include <set>
#include <utility>

#include "scheduler/cost/hand_over_bytes.h"
#include "scheduler/search/layout/loaded_links.h"
#include "scheduler/search/math/linear_program.h"

namespace tessera::scheduler {

SplitLinkBound::SplitLinkBound(const PlacementProblem& problem)
    : problem_(problem),
      pools_(problem.graph->pools()),
      kv_(HandedOver(*problem.model, MomentsOf(problem.samples).prompt_tokens)) {}

std::vector<SplitLinkBound::Machine> SplitLinkBound::MachinesOf(
    const std::vector<int>& counts) const {
  std::vector<Machine> machines;
  for (size_t p = 0; p < counts.size(); ++p) {
    if (counts[p] == 0) continue;
    const auto known = std::find_if(machines.begin(), machines.end(), [&](const Machine& m) {
      return m.machine == pools_[p].machine;
    });
    if (known == machines.end()) {
      machines.push_back({pools_[p].machine, counts[p]});
    } else {
      known->devices += counts[p];
    }
  }
  return machines;
}

double SplitLinkBound::RateOf(Role role, const std::vector<int>& counts) const {
  const double bytes = WireBytes(kv_, KvCodec::kInt4);
  if (bytes <= 0) return kUnbounded;
  const std::vector<Machine> own = MachinesOf(counts);
  std::set<int> others;
  for (size_t p = 0; p < pools_.size(); ++p) {
    const bool is_own = std::any_of(
        own.begin(), own.end(), [&](const Machine& m) { return m.machine == pools_[p].machine; });
    if (!is_own) {
      others.insert(pools_[p].machine);
    } else if (counts[p] < pools_[p].count) {
      return kUnbounded;
    }
  }
  double rate = 0;
  for (const Machine& machine : own) {
    for (const int other : others) {
      const bool out = role == Role::kPrefill;
      const LinkSpec& link =
          problem_.graph->Between(out ? machine.machine : other, out ? other : machine.machine);
      rate += link.bytes_per_second / bytes;
    }
  }
  return rate;
}

SplitLinkBound::Ways SplitLinkBound::WaysBetween(const std::vector<Machine>& from,
                                                 const std::vector<Machine>& to) const {
  Ways ways;
  ways.bytes = WireBytes(kv_, KvCodec::kRaw);
  std::vector<double> seconds;  // by machine of `from`, machine of `to`
  for (const Machine& a : from) {
    for (const Machine& b : to) {
      const KvTransfer transfer = BestKvTransfer(kv_, problem_.graph->Between(a.machine, b.machine),
                                                 problem_.model->layers, 0, problem_.codec_rates);
      seconds.push_back(transfer.seconds);
      ways.bytes = std::min(ways.bytes, WireBytes(kv_, transfer.codec));
    }
  }
  // First and last stage in one machine: of one machine alone, or on two of its devices.
  const auto both_in = [](const std::vector<Machine>& machines, size_t m) {
    return machines.size() == 1 || machines[m].devices > 1;
  };
  for (size_t first = 0; first < seconds.size(); ++first) {
    for (size_t last = 0; last < seconds.size(); ++last) {
      const size_t a = first / to.size(), b = first % to.size();
      if (a == last / to.size() && !both_in(from, a)) continue;
      if (b == last % to.size() && !both_in(to, b)) continue;
      ways.rate = std::max(ways.rate, 1 / std::max(seconds[first], seconds[last]));
    }
  }
  return ways;
}

double SplitLinkBound::RateOf(const std::vector<Set>& sets) const {
  double whole = 0, prefill = 0, decode = 0;
  LinearProgram program;
  std::vector<int> rows;
  for (const Set& set : sets) {
    if (set.role == Role::kBoth) whole += set.rate;
    if (set.role == Role::kPrefill) prefill += set.rate;
    if (set.role == Role::kDecode) decode += set.rate;
    rows.push_back(program.AddRow(0, set.rate));
  }
  const double free = whole + std::min(prefill, decode);
  if (kv_.empty() || std::min(prefill, decode) <= 0) return free;
  LoadedLinks links(*problem_.graph);
  size_t flows = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].role != Role::kPrefill) continue;
    const std::vector<Machine> from = MachinesOf(sets[i].counts);
    for (size_t j = 0; j < sets.size(); ++j) {
      if (sets[j].role != Role::kDecode) continue;
      const std::vector<Machine> to = MachinesOf(sets[j].counts);
      const Ways ways = WaysBetween(from, to);
      const int pair_row = program.AddRow(0, ways.rate);
      for (const Machine& a : from) {
        for (const Machine& b : to) {
          const int flow = program.AddVariable(1, 0, kUnbounded, false);
          for (const int row : {rows[i], rows[j], pair_row}) program.AddTerm(row, flow, 1);
          links.Load(a.machine, b.machine, flows++, ways.bytes);
        }
      }
    }
  }
  for (const LoadedLink& link : links.Take()) {
    const int row = program.AddRow(0, link.rate);
    for (const auto& [flow, bytes] : link.uses) program.AddTerm(row, static_cast<int>(flow), bytes);
  }
  const absl::StatusOr<LinearProgram::Solution> solution = program.Solve(true);
  if (!solution.ok()) return free;
  double carried = whole;
  for (size_t flow = 0; flow < flows; ++flow) carried += std::max(0.0, solution->values[flow]);
  return std::min(carried, free);
}

}  // namespace tessera::scheduler
