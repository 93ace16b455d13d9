// Cutting a weighted graph into parts of like size with little weight between them: spectral
// bisection, refined by Kernighan and Lin.
//
// Idea: the second eigenvector of the graph's Laplacian orders the nodes so that strongly joined
// ones stand together (Fiedler, 1973); the order is cut at the wanted size; then pairs are swapped
// as long as a series of swaps lessens the cut (Kernighan and Lin, 1970). More than two parts come
// from repeated bisection. Complexity: O(n^3) per bisection (Jacobi's eigenvectors; at most
// kMaxSweeps sweeps). Thread rule: pure functions; deterministic. Requires: weights square,
// symmetric, not negative; sizes above 0, one per node.
#pragma once

#include <vector>

namespace tessera::scheduler {

using GraphWeights = std::vector<std::vector<double>>;

struct Eigenvectors {
  std::vector<double> values;  // ascending
  GraphWeights vectors;        // vectors[k] belongs to values[k], of length 1
};
// Eigenvectors of a symmetric matrix.
Eigenvectors EigenvectorsOf(GraphWeights matrix);
// Degrees on the diagonal, minus the weights elsewhere; the weights' own diagonal counts nothing.
GraphWeights LaplacianOf(const GraphWeights& weights);

// Weight between nodes of unlike part.
double CutWeight(const GraphWeights& weights, const std::vector<int>& part);

// Swaps nodes between parts a and b while the cut lessens. Sizes of the parts may not drift further
// from what they are than `tolerance` of the two together.
void RefineByKernighanLin(const GraphWeights& weights, const std::vector<double>& sizes,
                          double tolerance, int a, int b, std::vector<int>* part);

// Part of each node, 0 .. parts - 1, by size even. Fewer parts where there are fewer nodes.
std::vector<int> PartitionGraph(const GraphWeights& weights, const std::vector<double>& sizes,
                                int parts, double tolerance);

}  // namespace tessera::scheduler
