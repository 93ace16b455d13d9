#include "scheduler/planner/shared/shared_bound.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "scheduler/planner/part_search.h"
#include "scheduler/search/best/configuration_program.h"
#include "scheduler/search/math/linear_program.h"

namespace tessera::scheduler {
namespace {

constexpr int kOneSiteAbove = 100;  // devices, whose sites count as one
constexpr int kFirstRounds = 6;     // of columns of each model by itself
constexpr int kFirstBoxes = 800;
constexpr double kGap = 0.02;  // between bound and relaxation, at which it is enough
constexpr int kMaxRounds = 16;
constexpr int kMaxFutile = 3;  // rounds that gain less than kMinGain
constexpr double kMinGain = 1e-3;
constexpr int kBoxes = 20000;          // of a pricing
constexpr int64_t kMaxBoxes = 200000;  // in all
constexpr double kFirstTolerance = 0.05;
constexpr double kLastTolerance = 0.002;
constexpr double kSmoothing = 0.5;  // of the duals, towards those of the best bound
constexpr double kMinPrice = 1e-4;  // of an even share: free devices would make ratios infinite

// Prices of devices by class, and what a request that is prefilled is worth, by model.
struct Duals {
  std::vector<double> devices, prefill;
};

// What one model can be made of, on classes that are alike for all models.
class ModelColumns {
 public:
  ModelColumns(const PlacementProblem& problem, bool merge_sites)
      : problem_(problem),
        classes_(*problem.graph, AllDevices(problem), merge_sites),
        shapes_(*problem.model, MomentsOf(problem.samples), problem.options),
        program_(problem, classes_, &shapes_) {
    program_.Generate({RolesOf(problem), kGap, kFirstRounds, kFirstBoxes, 0, false});
  }

  const DeviceClasses& classes() const { return classes_; }
  const std::vector<ClassReplica>& columns() const { return program_.columns(); }

  // The highest value of rate / price of any legal replica, or more; columns that come near are
  // added. `boxes`: how many were split.
  double Kappa(const std::vector<double>& prices, double prefill, double tolerance,
               int64_t* boxes) {
    double reached = 0;
    for (const ClassReplica& column : columns()) {
      const std::vector<int> devices = DevicesOf(classes_, column);
      double price = 0;
      for (size_t c = 0; c < prices.size(); ++c) price += prices[c] * devices[c];
      reached = std::max(reached, column.rate * WorthOfRole(column.role, prefill) / price);
    }
    ConfigurationOptions options;
    options.roles = RolesOf(problem_);
    options.max_boxes = kBoxes;
    const int64_t before = program_.bound_boxes();
    bool better = false;
    const double kappa = program_.Kappa({prices, 0, prefill}, options, tolerance, reached, &better);
    *boxes += program_.bound_boxes() - before;
    return kappa;
  }

 private:
  const PlacementProblem& problem_;
  const DeviceClasses classes_;
  StageShapes shapes_;
  ConfigurationProgram program_;
};

class Bounder {
 public:
  Bounder(const std::vector<const PlacementProblem*>& problems, const std::vector<double>& weights)
      : first_(*problems.front()), weights_(weights) {
    const bool merge = first_.graph->devices() > kOneSiteAbove;
    for (const PlacementProblem* problem : problems)
      models_.push_back(std::make_unique<ModelColumns>(*problem, merge));
  }

  SharedBound Run() {
    std::optional<Duals> best;
    double tolerance = kFirstTolerance;
    int64_t boxes = 0;
    int futile_rounds = 0;
    for (int round = 0; round < kMaxRounds && futile_rounds < kMaxFutile && boxes < kMaxBoxes;
         ++round) {
      if (first_.watch.Stopped()) break;
      const std::optional<Duals> duals = Relax();
      if (!duals) break;
      const double before = bound_.theta;
      if (before > 0 && before <= value_ * (1 + kGap)) break;
      const Duals at = best ? Between(*duals, *best) : *duals;
      const size_t columns = Columns();
      const double bound = Certify(at, tolerance, &boxes);
      if (bound <= 0) break;
      if (before <= 0 || bound < before) {
        bound_.theta = bound;
        best = at;
      }
      const bool gained = before <= 0 || bound < before * (1 - kMinGain);
      futile_rounds = gained ? 0 : futile_rounds + 1;
      const double wanted = (bound_.theta / value_ - 1) / 4;
      tolerance = Columns() > columns ? std::clamp(wanted, kLastTolerance, kFirstTolerance)
                                      : std::max(kLastTolerance, tolerance / 4);
    }
    if (Relax()) PriceDevices();
    return bound_;
  }

 private:
  const DeviceClasses& classes() const { return models_.front()->classes(); }

  size_t Columns() const {
    size_t columns = 0;
    for (const auto& model : models_) columns += model->columns().size();
    return columns;
  }

  // The program over the columns so far; nullopt: they do not serve all models.
  std::optional<Duals> Relax() {
    LinearProgram program;
    std::vector<int> device_rows, rate_rows, prefill_rows;
    for (const DeviceClass& of : classes().all())
      device_rows.push_back(program.AddRow(-kUnbounded, of.devices()));
    const int theta = program.AddVariable(1, 0, kUnbounded, false);
    for (size_t i = 0; i < models_.size(); ++i) {
      rate_rows.push_back(program.AddRow(0, kUnbounded));
      prefill_rows.push_back(program.AddRow(-kUnbounded, 0));
      const int decode_row = program.AddRow(-kUnbounded, 0);
      const int split = program.AddVariable(0, 0, kUnbounded, false);
      program.AddTerm(rate_rows[i], theta, -weights_[i]);
      for (const int row : {rate_rows[i], prefill_rows[i], decode_row})
        program.AddTerm(row, split, 1);
      for (const ClassReplica& column : models_[i]->columns()) {
        const int y = program.AddVariable(0, 0, kUnbounded, false);
        const std::vector<int> devices = DevicesOf(classes(), column);
        for (size_t c = 0; c < device_rows.size(); ++c) {
          if (devices[c] > 0) program.AddTerm(device_rows[c], y, devices[c]);
        }
        if (column.role == Role::kBoth) program.AddTerm(rate_rows[i], y, column.rate);
        if (column.role == Role::kPrefill) program.AddTerm(prefill_rows[i], y, -column.rate);
        if (column.role == Role::kDecode) program.AddTerm(decode_row, y, -column.rate);
      }
    }
    const absl::StatusOr<LinearProgram::Solution> solution = program.Solve(true);
    if (!solution.ok() || solution->objective <= 0) return std::nullopt;
    value_ = solution->objective;
    const auto dual = [&](int row) { return solution->duals[static_cast<size_t>(row)]; };
    Duals duals;
    for (int c = 0; c < classes().size(); ++c) {
      const double even = value_ / (classes()[c].devices() * classes().size());
      duals.devices.push_back(
          std::max(dual(device_rows[static_cast<size_t>(c)]), kMinPrice * even));
    }
    for (size_t i = 0; i < models_.size(); ++i) {
      const double rate = -dual(rate_rows[i]);  // that more has to be served costs theta
      duals.prefill.push_back(rate > 0 ? std::clamp(dual(prefill_rows[i]) / rate, 0.0, 1.0) : 0.5);
    }
    prices_ = duals.devices;
    return duals;
  }

  double WorthOf(const std::vector<double>& prices) const {
    double worth = 0;
    for (int c = 0; c < classes().size(); ++c)
      worth += prices[static_cast<size_t>(c)] * classes()[c].devices();
    return worth;
  }

  Duals Between(Duals at, const Duals& best) const {
    const double scale = WorthOf(at.devices) / WorthOf(best.devices);
    for (size_t c = 0; c < at.devices.size(); ++c)
      at.devices[c] += kSmoothing * (best.devices[c] * scale - at.devices[c]);
    for (size_t i = 0; i < at.prefill.size(); ++i)
      at.prefill[i] += kSmoothing * (best.prefill[i] - at.prefill[i]);
    return at;
  }

  // The bound at these duals; 0: a model has no replica at all.
  double Certify(const Duals& at, double tolerance, int64_t* boxes) {
    double needed = 0;  // price of devices for a theta of 1
    for (size_t i = 0; i < models_.size(); ++i) {
      const double kappa = models_[i]->Kappa(at.devices, at.prefill[i], tolerance, boxes);
      if (kappa <= 0) return 0;
      needed += weights_[i] / kappa;
    }
    return WorthOf(at.devices) / needed;
  }

  void PriceDevices() {
    bound_.device_prices.assign(first_.graph->pools().size(), 0);
    for (int c = 0; c < classes().size(); ++c) {
      for (const int pool : classes()[c].pools)
        bound_.device_prices[static_cast<size_t>(pool)] = prices_[static_cast<size_t>(c)];
    }
  }

  const PlacementProblem& first_;
  const std::vector<double>& weights_;
  std::vector<std::unique_ptr<ModelColumns>> models_;
  double value_ = 0;            // of the last program
  std::vector<double> prices_;  // by class: its duals
  SharedBound bound_;
};

}  // namespace

SharedBound BoundShared(const std::vector<const PlacementProblem*>& problems,
                        const std::vector<double>& weights) {
  return Bounder(problems, weights).Run();
}

}  // namespace tessera::scheduler
