#include "scheduler/search/layout/rate_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "scheduler/cost/hand_over_bytes.h"

namespace tessera::scheduler {
namespace {

int MachineOf(const PlacementProblem& problem, const LayoutStage& stage) {
  return problem.graph->pools()[static_cast<size_t>(stage.pool)].machine;
}

// What a request's prompt left behind, between two replicas. Every stage sends its own layers; the
// narrower of the first and the last pair of stages stands for all.
KvTransfer SlowestTransfer(const PlacementProblem& problem, const RawKv& kv,
                           const PlacedReplica& from, const PlacedReplica& to,
                           LinkSpec* slowest_link) {
  KvTransfer slowest;
  for (const bool last : {false, true}) {
    const LayoutStage& sender = last ? from.stages.back() : from.stages.front();
    const LayoutStage& receiver = last ? to.stages.back() : to.stages.front();
    const LinkSpec& link =
        problem.graph->Between(MachineOf(problem, sender), MachineOf(problem, receiver));
    const KvTransfer transfer =
        BestKvTransfer(kv, link, problem.model->layers, 0, problem.codec_rates);
    if (transfer.seconds <= slowest.seconds) continue;
    slowest = transfer;
    *slowest_link = link;
  }
  return slowest;
}

struct MachineFlow {
  int from = 0, to = 0;  // machines
  double part = 0;       // of the layers
};

// From whichever machine holds a layer in one replica to whichever holds it in the other.
std::vector<MachineFlow> FlowsOf(const PlacementProblem& problem, const PlacedReplica& from,
                                 const PlacedReplica& to) {
  std::vector<MachineFlow> flows;
  int from_end = 0;
  for (const LayoutStage& sender : from.stages) {
    const int from_begin = std::exchange(from_end, from_end + sender.layers);
    int to_end = 0;
    for (const LayoutStage& receiver : to.stages) {
      const int to_begin = std::exchange(to_end, to_end + receiver.layers);
      const int layers = std::min(from_end, to_end) - std::max(from_begin, to_begin);
      if (layers <= 0) continue;
      flows.push_back({MachineOf(problem, sender), MachineOf(problem, receiver),
                       static_cast<double>(layers) / problem.model->layers});
    }
  }
  return flows;
}

// Every prefilling replica sends to all that decode by their capacity. Where links carry that, what
// is served is all that the scarcer role can do.
bool LinksCarryProportions(const RateProgram& transport, double prefill, double decode) {
  std::vector<double> rates;
  for (const RateProgram::Pair& pair : transport.pairs) {
    rates.push_back(transport.capacity[static_cast<size_t>(pair.prefill)] *
                    transport.capacity[static_cast<size_t>(pair.decode)] /
                    std::max(prefill, decode));
    if (rates.back() > pair.link_rate) return false;
  }
  return std::all_of(transport.shared.begin(), transport.shared.end(), [&](const LoadedLink& link) {
    double load = 0;
    for (const auto& [pair, factor] : link.uses) load += factor * rates[pair];
    return load <= link.rate;
  });
}

}  // namespace

RateProgram MakeRateProgram(const PlacementProblem& problem, const LengthMoments& lengths,
                            const std::vector<const PlacedReplica*>& replicas) {
  RateProgram transport;
  for (const PlacedReplica* replica : replicas)
    transport.capacity.push_back(replica->rate.requests_per_second);
  const RawKv kv = HandedOver(*problem.model, lengths.prompt_tokens);
  LoadedLinks shared(*problem.graph);
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (replicas[i]->role != Role::kPrefill || replicas[i]->stages.empty()) continue;
    for (size_t j = 0; j < replicas.size(); ++j) {
      if (replicas[j]->role != Role::kDecode || replicas[j]->stages.empty()) continue;
      RateProgram::Pair pair{static_cast<int>(i), static_cast<int>(j)};
      if (!kv.empty()) {
        const KvTransfer transfer =
            SlowestTransfer(problem, kv, *replicas[i], *replicas[j], &pair.link);
        pair.link_rate = 1 / transfer.seconds;
        const double wire_bytes = WireBytes(kv, transfer.codec);
        for (const MachineFlow& flow : FlowsOf(problem, *replicas[i], *replicas[j])) {
          shared.Load(flow.from, flow.to, transport.pairs.size(), flow.part * wire_bytes);
        }
        pair.codec = transfer.codec;
      }
      transport.pairs.push_back(pair);
    }
  }
  transport.shared = shared.Take();
  return transport;
}

absl::StatusOr<std::vector<double>> SolveTransport(const RateProgram& transport) {
  if (transport.pairs.empty()) return std::vector<double>();
  LinearProgram program;
  std::vector<int> rows;
  for (const double capacity : transport.capacity) rows.push_back(program.AddRow(0, capacity));
  std::vector<int> variables;
  for (const RateProgram::Pair& pair : transport.pairs) {
    const int variable = program.AddVariable(1, 0, pair.link_rate, false);
    program.AddTerm(rows[static_cast<size_t>(pair.prefill)], variable, 1);
    program.AddTerm(rows[static_cast<size_t>(pair.decode)], variable, 1);
    variables.push_back(variable);
  }
  for (const LoadedLink& shared : transport.shared) {
    const int row = program.AddRow(0, shared.rate);
    for (const auto& [pair, factor] : shared.uses) program.AddTerm(row, variables[pair], factor);
  }
  absl::StatusOr<LinearProgram::Solution> solution = program.Solve(true);
  if (!solution.ok()) return solution.status();
  for (double& rate : solution->values) rate = std::max(0.0, rate);
  return std::move(solution->values);
}

double ServedBy(const RateProgram& transport) {
  std::map<int, double> prefilling, decoding;  // capacities
  for (const RateProgram::Pair& pair : transport.pairs) {
    prefilling[pair.prefill] = transport.capacity[static_cast<size_t>(pair.prefill)];
    decoding[pair.decode] = transport.capacity[static_cast<size_t>(pair.decode)];
  }
  double prefill = 0, decode = 0;
  for (const auto& [replica, capacity] : prefilling) prefill += capacity;
  for (const auto& [replica, capacity] : decoding) decode += capacity;
  if (std::min(prefill, decode) <= 0) return 0;
  if (LinksCarryProportions(transport, prefill, decode)) return std::min(prefill, decode);
  const absl::StatusOr<std::vector<double>> rates = SolveTransport(transport);
  return rates.ok() ? std::accumulate(rates->begin(), rates->end(), 0.0) : 0;
}

}  // namespace tessera::scheduler
