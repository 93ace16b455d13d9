// Linear and mixed-integer programs, solved by COIN-OR (Clp, Cbc).
//
// Thread rule: Solve is a pure function of its input and deterministic while nobody stops it: no
// time limit, one thread, fixed seed. Errors: FailedPrecondition for an infeasible or unbounded
// program, or where no whole-number solution was found until the nodes ran out or somebody stopped
// it.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::scheduler {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// maximise objective * x, row_low <= A x <= row_high, low <= x <= high
class LinearProgram {
 public:
  // Index of the new variable.
  int AddVariable(double objective, double low, double high, bool integer);
  // Index of the new row.
  int AddRow(double low, double high);
  void AddTerm(int row, int variable, double coefficient);

  struct Solution {
    double objective = 0;
    double bound =
        0;  // no whole-number solution is better (of the relaxation where that was asked for)
    std::vector<double> values;
    std::vector<double>
        duals;  // of the rows: what one more unit of the bound brings; the relaxation's
  };
  // relaxed: whole numbers may be broken.
  // gap: of the optimum, at which branching may stop. max_nodes: of the tree, at most; the best
  // solution until then is the answer. stop: asked at every node (empty: never); true ends it too.
  static constexpr int kMaxNodes = 20000;
  absl::StatusOr<Solution> Solve(bool relaxed, double gap = 1e-6, int max_nodes = kMaxNodes,
                                 const std::function<bool()>& stop = {}) const;

 private:
  struct Term {
    int row, variable;
    double coefficient;
  };
  std::vector<double> objective_, low_, high_, row_low_, row_high_;
  std::vector<bool> integer_;
  std::vector<Term> terms_;
};

}  // namespace tessera::scheduler
