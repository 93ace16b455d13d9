// The solver libraries as wrapped: each solves the smallest problem that needs its library.

#include <lemon/list_graph.h>
#include <lemon/preflow.h>

#include <array>
#include <catch2/catch.hpp>
#include <coin/CbcModel.hpp>
#include <coin/OsiClpSolverInterface.hpp>

namespace tessera::tests {
namespace {

TEST_CASE("Cbc solves an integer program") {
  // max 5x + 4y with 6x + 4y <= 24, x + 2y <= 6, integers: (4, 0) gives 20; the relaxation
  // gives 21.
  OsiClpSolverInterface solver;
  solver.messageHandler()->setLogLevel(0);
  const std::array<int, 2> columns = {0, 1};
  const std::array<double, 2> first = {6, 4};
  const std::array<double, 2> second = {1, 2};
  solver.addCol(0, nullptr, nullptr, 0, 100, -5);
  solver.addCol(0, nullptr, nullptr, 0, 100, -4);
  solver.addRow(2, columns.data(), first.data(), -solver.getInfinity(), 24);
  solver.addRow(2, columns.data(), second.data(), -solver.getInfinity(), 6);
  solver.setInteger(0);
  solver.setInteger(1);
  CbcModel model(solver);
  model.setLogLevel(0);
  model.branchAndBound();
  REQUIRE(model.isProvenOptimal());
  CHECK(model.getObjValue() == Approx(-20));
}

TEST_CASE("LEMON finds a maximum flow") {
  lemon::ListDigraph graph;
  const auto source = graph.addNode();
  const auto middle = graph.addNode();
  const auto sink = graph.addNode();
  lemon::ListDigraph::ArcMap<int> capacity(graph);
  capacity[graph.addArc(source, middle)] = 7;
  capacity[graph.addArc(middle, sink)] = 4;
  capacity[graph.addArc(source, sink)] = 2;
  lemon::Preflow<lemon::ListDigraph> flow(graph, capacity, source, sink);
  flow.run();
  CHECK(flow.flowValue() == 6);
}

}  // namespace
}  // namespace tessera::tests
