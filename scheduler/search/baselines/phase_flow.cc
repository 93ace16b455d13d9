#include "scheduler/search/baselines/phase_flow.h"

#include <lemon/preflow.h>
#include <lemon/smart_graph.h>

#include <algorithm>
#include <cstdint>

namespace tessera::scheduler {
namespace {

constexpr double kUnit = 1e-6;
constexpr double kMaxUnits = 1e15;

int64_t Units(double rate) { return static_cast<int64_t>(std::min(rate / kUnit, kMaxUnits)); }

}  // namespace

PhaseFlow LargestPhaseFlow(const RateProgram& transport) {
  using Graph = lemon::SmartDigraph;
  Graph graph;
  Graph::ArcMap<int64_t> capacity(graph);
  const Graph::Node source = graph.addNode(), sink = graph.addNode();
  std::vector<Graph::Node> nodes;
  for (size_t i = 0; i < transport.capacity.size(); ++i) nodes.push_back(graph.addNode());
  // A replica's own arc: from the source where it prefills, to the sink where it decodes.
  std::vector<Graph::Arc> own(nodes.size(), lemon::INVALID), arcs;
  const auto connect = [&](int replica, bool prefill) {
    const auto i = static_cast<size_t>(replica);
    if (own[i] != lemon::INVALID) return;
    own[i] = prefill ? graph.addArc(source, nodes[i]) : graph.addArc(nodes[i], sink);
    capacity[own[i]] = Units(transport.capacity[i]);
  };
  for (const RateProgram::Pair& pair : transport.pairs) {
    connect(pair.prefill, true);
    connect(pair.decode, false);
    arcs.push_back(graph.addArc(nodes[static_cast<size_t>(pair.prefill)],
                                nodes[static_cast<size_t>(pair.decode)]));
    capacity[arcs.back()] = Units(pair.link_rate);
  }
  lemon::Preflow<Graph, Graph::ArcMap<int64_t>> preflow(graph, capacity, source, sink);
  preflow.run();
  PhaseFlow flow;
  flow.requests_per_second = static_cast<double>(preflow.flowValue()) * kUnit;
  for (const Graph::Arc arc : own) {
    flow.through.push_back(arc == lemon::INVALID ? 0.0
                                                 : static_cast<double>(preflow.flow(arc)) * kUnit);
  }
  for (const Graph::Arc arc : arcs)
    flow.pairs.push_back(static_cast<double>(preflow.flow(arc)) * kUnit);
  return flow;
}

}  // namespace tessera::scheduler
