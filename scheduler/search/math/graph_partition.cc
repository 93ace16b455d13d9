#include "scheduler/search/math/graph_partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::scheduler {
namespace {

constexpr int kMaxSweeps = 30;          // of Jacobi's method; it converges in fewer than ten
constexpr double kOffDiagonal = 1e-12;  // of the diagonal: eigenvectors are settled
constexpr double kMinGain = 1e-9;       // of the cut: below that a series of swaps is rounding

// Rotates rows and columns p and q so that matrix[p][q] vanishes.
void Rotate(size_t p, size_t q, GraphWeights* matrix, GraphWeights* vectors) {
  GraphWeights& m = *matrix;
  const double theta = (m[q][q] - m[p][p]) / (2 * m[p][q]);
  const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  for (size_t k = 0; k < m.size(); ++k) {
    const double kp = m[k][p], kq = m[k][q];
    m[k][p] = c * kp - s * kq;
    m[k][q] = s * kp + c * kq;
  }
  for (size_t k = 0; k < m.size(); ++k) {
    const double pk = m[p][k], qk = m[q][k];
    m[p][k] = c * pk - s * qk;
    m[q][k] = s * pk + c * qk;
    const double vp = (*vectors)[p][k], vq = (*vectors)[q][k];
    (*vectors)[p][k] = c * vp - s * vq;
    (*vectors)[q][k] = s * vp + c * vq;
  }
}

// Kernighan and Lin's gain of moving one node to the other side.
std::vector<double> MoveGains(const GraphWeights& weights, int a, int b,
                              const std::vector<int>& part) {
  std::vector<double> gains(part.size(), 0);
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] != a && part[i] != b) continue;
    for (size_t j = 0; j < part.size(); ++j) {
      if (i == j || (part[j] != a && part[j] != b)) continue;
      gains[i] += part[i] == part[j] ? -weights[i][j] : weights[i][j];
    }
  }
  return gains;
}

void Bisect(const GraphWeights& weights, const std::vector<double>& sizes,
            const std::vector<size_t>& nodes, int first, int parts, double tolerance,
            std::vector<int>* part) {
  if (parts <= 1 || nodes.size() < 2) {
    for (const size_t node : nodes) (*part)[node] = first;
    return;
  }
  GraphWeights sub(nodes.size(), std::vector<double>(nodes.size(), 0));
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = 0; j < nodes.size(); ++j) sub[i][j] = weights[nodes[i]][nodes[j]];
  }
  const std::vector<double> order_by = EigenvectorsOf(LaplacianOf(sub)).vectors[1];
  std::vector<size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return order_by[a] < order_by[b] - 1e-9; });
  double total = 0, taken = 0;
  for (const size_t node : nodes) total += sizes[node];
  const int left_parts = parts / 2;
  const double want = total * left_parts / parts;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t node = nodes[order[i]];
    const bool left = i == 0 || (i + 1 < order.size() && taken + sizes[node] / 2 <= want);
    (*part)[node] = left ? first : first + left_parts;
    if (left) taken += sizes[node];
  }
  RefineByKernighanLin(weights, sizes, tolerance, first, first + left_parts, part);
  std::vector<size_t> left, right;
  for (const size_t node : nodes) ((*part)[node] == first ? left : right).push_back(node);
  Bisect(weights, sizes, left, first, left_parts, tolerance, part);
  Bisect(weights, sizes, right, first + left_parts, parts - left_parts, tolerance, part);
}

}  // namespace

Eigenvectors EigenvectorsOf(GraphWeights matrix) {
  const size_t n = matrix.size();
  GraphWeights vectors(n, std::vector<double>(n, 0));
  double scale = 0;
  for (size_t i = 0; i < n; ++i) {
    vectors[i][i] = 1;
    for (const double value : matrix[i]) scale = std::max(scale, std::abs(value));
  }
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool settled = true;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        if (std::abs(matrix[p][q]) <= kOffDiagonal * scale) continue;
        settled = false;
        Rotate(p, q, &matrix, &vectors);
      }
    }
    if (settled) break;
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return matrix[a][a] < matrix[b][b]; });
  Eigenvectors result;
  for (const size_t k : order) {
    result.values.push_back(matrix[k][k]);
    result.vectors.push_back(vectors[k]);
  }
  return result;
}

GraphWeights LaplacianOf(const GraphWeights& weights) {
  GraphWeights laplacian(weights.size(), std::vector<double>(weights.size(), 0));
  for (size_t i = 0; i < weights.size(); ++i) {
    for (size_t j = 0; j < weights.size(); ++j) {
      if (i == j) continue;
      laplacian[i][j] = -weights[i][j];
      laplacian[i][i] += weights[i][j];
    }
  }
  return laplacian;
}

double CutWeight(const GraphWeights& weights, const std::vector<int>& part) {
  double cut = 0;
  for (size_t i = 0; i < part.size(); ++i) {
    for (size_t j = i + 1; j < part.size(); ++j) cut += part[i] == part[j] ? 0 : weights[i][j];
  }
  return cut;
}

void RefineByKernighanLin(const GraphWeights& weights, const std::vector<double>& sizes,
                          double tolerance, int a, int b, std::vector<int>* part) {
  double total = 0, start_a = 0;
  for (size_t i = 0; i < part->size(); ++i) {
    if ((*part)[i] == a) start_a += sizes[i];
    if ((*part)[i] == a || (*part)[i] == b) total += sizes[i];
  }
  const double slack = tolerance * total + 1e-9 * total;
  while (true) {
    std::vector<int> trial = *part;
    std::vector<bool> locked(part->size(), false);
    std::vector<int> best = *part;
    double gain = 0, best_gain = kMinGain * CutWeight(weights, *part), size_a = 0;
    for (size_t i = 0; i < trial.size(); ++i) size_a += trial[i] == a ? sizes[i] : 0;
    while (true) {
      const std::vector<double> gains = MoveGains(weights, a, b, trial);
      double most = -1e300;
      size_t from = trial.size(), to = trial.size();
      for (size_t i = 0; i < trial.size(); ++i) {
        if (trial[i] != a || locked[i]) continue;
        for (size_t j = 0; j < trial.size(); ++j) {
          if (trial[j] != b || locked[j]) continue;
          const double value = gains[i] + gains[j] - 2 * weights[i][j];
          if (value <= most || std::abs(size_a + sizes[j] - sizes[i] - start_a) > slack) continue;
          most = value;
          from = i;
          to = j;
        }
      }
      if (from == trial.size()) break;
      std::swap(trial[from], trial[to]);
      locked[from] = locked[to] = true;
      size_a += sizes[to] - sizes[from];
      gain += most;
      if (gain <= best_gain) continue;
      best_gain = gain;
      best = trial;
    }
    if (best == *part) return;
    *part = best;
  }
}

std::vector<int> PartitionGraph(const GraphWeights& weights, const std::vector<double>& sizes,
                                int parts, double tolerance) {
  std::vector<int> part(weights.size(), 0);
  std::vector<size_t> nodes(weights.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  Bisect(weights, sizes, nodes, 0, std::min(parts, static_cast<int>(nodes.size())), tolerance,
         &part);
  return part;
}

}  // namespace tessera::scheduler
