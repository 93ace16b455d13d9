#include "scheduler/search/math/linear_program.h"

#include <algorithm>
#include <cmath>
#include <coin/CbcEventHandler.hpp>
#include <coin/CbcModel.hpp>
#include <coin/CoinPackedMatrix.hpp>
#include <coin/OsiClpSolverInterface.hpp>

namespace tessera::scheduler {
namespace {

double CoinBound(double bound, double infinity) {
  if (!std::isinf(bound)) return bound;
  return bound > 0 ? infinity : -infinity;
}

// Ends branching where `stop` says so. Cbc keeps clones of it; `stop` outlives them.
class Stopper : public CbcEventHandler {
 public:
  explicit Stopper(const std::function<bool()>& stop) : stop_(&stop) {}
  CbcEventHandler* clone() const override { return new Stopper(*this); }
  CbcAction event(CbcEvent which) override {
    return which == node && (*stop_)() ? CbcEventHandler::stop : noAction;
  }

 private:
  const std::function<bool()>* stop_;  // borrowed
};

}  // namespace

int LinearProgram::AddVariable(double objective, double low, double high, bool integer) {
  objective_.push_back(objective);
  low_.push_back(low);
  high_.push_back(high);
  integer_.push_back(integer);
  return static_cast<int>(objective_.size()) - 1;
}

int LinearProgram::AddRow(double low, double high) {
  row_low_.push_back(low);
  row_high_.push_back(high);
  return static_cast<int>(row_low_.size()) - 1;
}

void LinearProgram::AddTerm(int row, int variable, double coefficient) {
  terms_.push_back({row, variable, coefficient});
}

absl::StatusOr<LinearProgram::Solution> LinearProgram::Solve(
    bool relaxed, double gap, int max_nodes, const std::function<bool()>& stop) const {
  std::vector<int> rows, columns;
  std::vector<double> coefficients;
  for (const Term& term : terms_) {
    rows.push_back(term.row);
    columns.push_back(term.variable);
    coefficients.push_back(term.coefficient);
  }
  CoinPackedMatrix matrix(true, rows.data(), columns.data(), coefficients.data(),
                          static_cast<CoinBigIndex>(terms_.size()));
  matrix.setDimensions(static_cast<int>(row_low_.size()), static_cast<int>(objective_.size()));
  OsiClpSolverInterface solver;
  solver.messageHandler()->setLogLevel(0);
  const double infinity = solver.getInfinity();
  const auto bounds = [&](std::vector<double> values) {
    for (double& value : values) value = CoinBound(value, infinity);
    return values;
  };
  solver.loadProblem(matrix, bounds(low_).data(), bounds(high_).data(), objective_.data(),
                     bounds(row_low_).data(), bounds(row_high_).data());
  solver.setObjSense(-1);
  solver.initialSolve();
  if (!solver.isProvenOptimal()) {
    return absl::FailedPreconditionError(
        "the linear program has no optimum: it is infeasible or unbounded");
  }
  Solution solution;
  solution.duals.assign(solver.getRowPrice(), solver.getRowPrice() + row_low_.size());
  const double relaxation = solver.getObjValue();
  if (relaxed) {
    solution.objective = solution.bound = relaxation;
    solution.values.assign(solver.getColSolution(), solver.getColSolution() + objective_.size());
    return solution;
  }
  for (size_t i = 0; i < integer_.size(); ++i) {
    if (integer_[i]) solver.setInteger(static_cast<int>(i));
  }
  CbcModel model(solver);
  model.setLogLevel(0);
  model.solver()->messageHandler()->setLogLevel(0);
  model.setAllowableFractionGap(gap);
  model.setMaximumNodes(max_nodes);
  Stopper stopper(stop);
  if (stop) model.passInEventHandler(&stopper);
  model.branchAndBound();
  if (model.bestSolution() == nullptr) {
    return absl::FailedPreconditionError("no whole-number solution was found");
  }
  solution.objective = model.getObjValue();
  // Cbc minimises inside: at the end of a whole search its best possible value may lag behind.
  solution.bound =
      model.isProvenOptimal()
          ? std::min(relaxation, solution.objective + gap * std::abs(solution.objective))
          : relaxation;
  solution.values.assign(model.bestSolution(), model.bestSolution() + objective_.size());
  for (size_t i = 0; i < integer_.size(); ++i) {
    if (integer_[i]) solution.values[i] = std::round(solution.values[i]);
  }
  return solution;
}

}  // namespace tessera::scheduler
