// The solver libraries as wrapped: each solves the smallest problem that needs its library.

#include <lemon/list_graph.h>
#include <lemon/preflow.h>
#include <metis.h>

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

TEST_CASE("METIS cuts a graph where it is thin") {
  // Two triangles, {0, 1, 2} and {3, 4, 5}, joined by the edge 2-3.
  idx_t vertices = 6;
  idx_t constraints = 1;
  idx_t parts = 2;
  idx_t cut = 0;
  std::array<idx_t, 7> offsets = {0, 2, 4, 7, 10, 12, 14};
  std::array<idx_t, 14> neighbours = {1, 2, 0, 2, 0, 1, 3, 2, 4, 5, 3, 5, 3, 4};
  std::array<idx_t, 6> part = {};
  REQUIRE(METIS_PartGraphKway(&vertices, &constraints, offsets.data(), neighbours.data(), nullptr,
                              nullptr, nullptr, &parts, nullptr, nullptr, nullptr, &cut,
                              part.data()) == METIS_OK);
  CHECK(cut == 1);
  CHECK(part[0] == part[2]);
  CHECK(part[3] == part[5]);
  CHECK(part[0] != part[5]);
}

}  // namespace
}  // namespace tessera::tests
