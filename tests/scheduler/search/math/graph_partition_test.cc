#include "scheduler/search/math/graph_partition.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "scheduler/search/math/seeded_random.h"

namespace tessera::scheduler {
namespace {

GraphWeights RandomGraph(size_t nodes, uint64_t seed) {
  SeededRandom random(seed);
  GraphWeights weights(nodes, std::vector<double>(nodes, 0));
  for (size_t i = 0; i < nodes; ++i) {
    for (size_t j = 0; j < i; ++j) weights[i][j] = weights[j][i] = random.Unit();
  }
  return weights;
}

// Cliques of `size` nodes whose numbers are scattered, weakly joined to each other.
GraphWeights Cliques(int cliques, int size) {
  const auto n = static_cast<size_t>(cliques * size);
  GraphWeights weights(n, std::vector<double>(n, 0));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      weights[i][j] =
          i % static_cast<size_t>(cliques) == j % static_cast<size_t>(cliques) ? 300 : 1;
    }
  }
  return weights;
}

TEST_CASE("eigenvectors: A v = lambda v, in rising order, of length one") {
  const GraphWeights laplacian = LaplacianOf(RandomGraph(9, 3));
  const Eigenvectors eigen = EigenvectorsOf(laplacian);
  CHECK(eigen.values[0] == Approx(0).margin(1e-9));  // a connected graph: once
  CHECK(eigen.values[1] > 1e-3);
  for (size_t k = 0; k < 9; ++k) {
    double length = 0;
    for (size_t i = 0; i < 9; ++i) {
      double product = 0;
      for (size_t j = 0; j < 9; ++j) product += laplacian[i][j] * eigen.vectors[k][j];
      CHECK(product == Approx(eigen.values[k] * eigen.vectors[k][i]).margin(1e-9));
      length += eigen.vectors[k][i] * eigen.vectors[k][i];
    }
    CHECK(length == Approx(1));
    if (k > 0) CHECK(eigen.values[k] >= eigen.values[k - 1]);
  }
}

TEST_CASE("cliques are found again, whatever their number") {
  for (const int cliques : {2, 3, 4, 6}) {
    const GraphWeights weights = Cliques(cliques, 4);
    const std::vector<double> sizes(weights.size(), 1);
    const std::vector<int> part = PartitionGraph(weights, sizes, cliques, 0.01);
    for (size_t i = 0; i < part.size(); ++i) {
      CHECK(part[i] == part[i % static_cast<size_t>(cliques)]);
      CHECK(part[i] >= 0);
      CHECK(part[i] < cliques);
    }
    const double between = 16.0 * cliques * (cliques - 1) / 2;
    CHECK(CutWeight(weights, part) == Approx(between));
  }
}

TEST_CASE("Kernighan-Lin never worsens the cut and keeps sizes within the tolerance") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const GraphWeights weights = RandomGraph(12, seed);
    SeededRandom random(seed + 100);
    std::vector<double> sizes;
    std::vector<int> part;
    double total = 0, before = 0, after = 0;
    for (size_t i = 0; i < 12; ++i) {
      sizes.push_back(1 + random.Unit());
      part.push_back(static_cast<int>(i % 2));
      total += sizes.back();
      if (part.back() == 0) before += sizes.back();
    }
    const double cut = CutWeight(weights, part);
    RefineByKernighanLin(weights, sizes, 0.05, 0, 1, &part);
    for (size_t i = 0; i < 12; ++i) after += part[i] == 0 ? sizes[i] : 0;
    CHECK(CutWeight(weights, part) <= cut);
    CHECK(std::abs(after - before) <= 0.05 * total + 1e-6);
  }
  // From a bad start it finds the cliques.
  const GraphWeights weights = Cliques(2, 4);
  std::vector<int> part = {0, 0, 0, 0, 1, 1, 1, 1};
  RefineByKernighanLin(weights, std::vector<double>(8, 1), 0.01, 0, 1, &part);
  CHECK(CutWeight(weights, part) == Approx(16));
}

TEST_CASE("parts beyond the number of nodes stay away") {
  const std::vector<int> part = PartitionGraph(RandomGraph(3, 1), {1, 1, 1}, 5, 0.1);
  CHECK(part.size() == 3);
  for (const int p : part) CHECK(p < 3);
}

}  // namespace
}  // namespace tessera::scheduler
