#include "scheduler/search/baselines/cost_program.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::scheduler {
namespace {

enum class Aim { kLargest, kCheapest, kFeasible };

double PriceOf(const CostProgram& program, const std::vector<int>& copies) {
  double usd = 0;
  for (size_t c = 0; c < copies.size(); ++c)
    usd += copies[c] * program.configurations[c].usd_per_hour;
  for (const CostProgram::Machine& machine : program.machines) {
    bool used = false;
    for (size_t c = 0; c < copies.size(); ++c) {
      for (const int n : machine.types) {
        used = used ||
               (copies[c] > 0 && program.configurations[c].devices[static_cast<size_t>(n)] > 0);
      }
    }
    if (used) usd += machine.usd_per_hour;
  }
  return usd;
}

// The program for a theta, or with theta free (kLargest).
class Builder {
 public:
  Builder(const CostProgram& program, Aim aim, double theta) : program_(program), aim_(aim) {
    theta_ = aim == Aim::kLargest ? lp_.AddVariable(1, 0, kUnbounded, false)
                                  : lp_.AddVariable(0, theta, theta, false);
    for (size_t w = 0; w < program.class_rates.size(); ++w) {
      class_rows_.push_back(lp_.AddRow(0, 0));
      lp_.AddTerm(class_rows_.back(), theta_, -1);
    }
    for (const int available : program.available) type_rows_.push_back(lp_.AddRow(0, available));
    cost_row_ = lp_.AddRow(-kUnbounded, program.budget_usd_per_hour);
    for (const CostProgram::Machine& machine : program.machines) Add(machine);
    for (const CostProgram::Configuration& configuration : program.configurations)
      Add(configuration);
  }

  absl::StatusOr<Rental> Solve(bool relaxed, double gap) const {
    const absl::StatusOr<LinearProgram::Solution> solution =
        lp_.Solve(relaxed, gap, LinearProgram::kMaxNodes, program_.stop);
    if (!solution.ok()) return solution.status();
    Rental rental;
    rental.served = solution->values[static_cast<size_t>(theta_)];
    for (size_t c = 0; c < copies_.size(); ++c) {
      const double copies = solution->values[static_cast<size_t>(copies_[c])];
      rental.copies.push_back(static_cast<int>(std::lround(copies)));
      rental.shares.emplace_back();
      for (size_t w = 0; w < shares_[c].size(); ++w) {
        const int variable = shares_[c][w];
        rental.shares[c].push_back(
            variable < 0 ? 0.0 : solution->values[static_cast<size_t>(variable)] * Slice());
      }
    }
    rental.usd_per_hour = PriceOf(program_, rental.copies);
    return rental;
  }

  // Where copies may be broken.
  absl::StatusOr<std::vector<double>> BrokenCopies() const {
    const absl::StatusOr<LinearProgram::Solution> solution = lp_.Solve(true);
    if (!solution.ok()) return solution.status();
    std::vector<double> copies;
    for (const int y : copies_) copies.push_back(solution->values[static_cast<size_t>(y)]);
    return copies;
  }

 private:
  // The part of a class that one unit of a share variable is.
  double Slice() const { return Sliced() ? 1.0 / program_.slices : 1.0; }
  bool Sliced() const { return aim_ == Aim::kCheapest && program_.slices > 0; }

  // A machine's types exist only once it is rented.
  void Add(const CostProgram::Machine& machine) {
    const int z = lp_.AddVariable(aim_ == Aim::kCheapest ? -machine.usd_per_hour : 0, 0, 1, true);
    lp_.AddTerm(cost_row_, z, machine.usd_per_hour);
    for (const int n : machine.types) {
      int& row = type_rows_[static_cast<size_t>(n)];
      row = lp_.AddRow(-kUnbounded, 0);
      lp_.AddTerm(row, z, -program_.available[static_cast<size_t>(n)]);
    }
  }

  void Add(const CostProgram::Configuration& configuration) {
    double most = kUnbounded;
    for (size_t n = 0; n < configuration.devices.size(); ++n) {
      const int needs = configuration.devices[n];
      if (needs > 0) most = std::min<double>(most, program_.available[n] / needs);
    }
    const int y =
        lp_.AddVariable(aim_ == Aim::kCheapest ? -configuration.usd_per_hour : 0, 0, most, true);
    copies_.push_back(y);
    for (size_t n = 0; n < configuration.devices.size(); ++n) {
      if (configuration.devices[n] > 0) lp_.AddTerm(type_rows_[n], y, configuration.devices[n]);
    }
    if (configuration.usd_per_hour > 0) lp_.AddTerm(cost_row_, y, configuration.usd_per_hour);
    const int work_row = lp_.AddRow(-kUnbounded, 0);
    lp_.AddTerm(work_row, y, -1);
    std::vector<int>& shares = shares_.emplace_back();
    for (size_t w = 0; w < program_.class_rates.size(); ++w) {
      shares.push_back(-1);
      if (configuration.requests_per_second[w] <= 0) continue;
      shares.back() = lp_.AddVariable(0, 0, kUnbounded, Sliced());
      lp_.AddTerm(class_rows_[w], shares.back(), Slice());
      lp_.AddTerm(work_row, shares.back(),
                  Slice() * program_.class_rates[w] / configuration.requests_per_second[w]);
    }
  }

  const CostProgram& program_;
  const Aim aim_;
  LinearProgram lp_;
  int theta_ = 0, cost_row_ = 0;
  std::vector<int> class_rows_, type_rows_, copies_;
  std::vector<std::vector<int>> shares_;  // variables; -1: cannot serve
};

// What exactly these copies serve.
absl::StatusOr<Rental> With(const CostProgram& program, const std::vector<int>& copies) {
  CostProgram fixed = program;
  fixed.available.assign(copies.begin(), copies.end());
  for (size_t c = 0; c < copies.size(); ++c) {
    fixed.configurations[c].devices.assign(copies.size(), 0);
    fixed.configurations[c].devices[c] = 1;
  }
  fixed.budget_usd_per_hour = kUnbounded;  // these copies are within it
  fixed.machines.clear();
  absl::StatusOr<Rental> rental = Builder(fixed, Aim::kLargest, 0).Solve(true, 0);
  if (!rental.ok()) return rental;
  rental->copies = copies;
  rental->usd_per_hour = PriceOf(program, copies);
  return rental;
}

// The whole copies, then those that are broken least, as far as devices and budget go.
std::vector<int> WholeCopies(const CostProgram& program, const std::vector<double>& broken) {
  constexpr double kWhole = 1e-9;
  std::vector<int> copies;
  std::vector<std::pair<double, size_t>> order;  // least broken first
  std::vector<int> left = program.available;
  // As many as there are devices and money for, which a machine that is rented whole may lack.
  const auto take = [&](size_t c, int count) {
    const CostProgram::Configuration& configuration = program.configurations[c];
    for (; count > 0; --count) {
      for (size_t n = 0; n < configuration.devices.size(); ++n) {
        if (configuration.devices[n] > left[n]) return;
      }
      ++copies[c];
      if (PriceOf(program, copies) > program.budget_usd_per_hour) {
        --copies[c];
        return;
      }
      for (size_t n = 0; n < configuration.devices.size(); ++n) left[n] -= configuration.devices[n];
    }
  };
  copies.assign(broken.size(), 0);
  for (size_t c = 0; c < broken.size(); ++c) {
    const double whole = std::floor(broken[c] + kWhole);
    take(c, static_cast<int>(whole));
    if (broken[c] - whole > kWhole) order.push_back({whole - broken[c], c});
  }
  std::stable_sort(order.begin(), order.end());
  for (const auto& [part, c] : order) take(c, 1);
  return copies;
}

constexpr double kExactGap = 1e-6;

absl::Status NothingServes() {
  return absl::FailedPreconditionError(
      "no choice of configurations serves every class within what is available and the budget");
}

bool Stopped(const CostProgram& program) { return program.stop && program.stop(); }

// For who stopped a program before it had anything.
absl::StatusOr<Rental> RoundedRental(const CostProgram& program, Aim aim) {
  if (program.slices > 0) return NothingServes();  // whole slices are not rounded
  const absl::StatusOr<std::vector<double>> broken = Builder(program, aim, 1).BrokenCopies();
  if (!broken.ok()) return NothingServes();
  absl::StatusOr<Rental> rental = With(program, WholeCopies(program, *broken));
  const double asked = aim == Aim::kCheapest ? 1 - kExactGap : 0;
  if (!rental.ok() || rental->served <= 0 || rental->served < asked) return NothingServes();
  return rental;
}

}  // namespace

absl::StatusOr<Rental> LargestRental(const CostProgram& program) {
  absl::StatusOr<Rental> rental = Builder(program, Aim::kLargest, 0).Solve(false, kExactGap);
  if (!rental.ok() && Stopped(program)) rental = RoundedRental(program, Aim::kLargest);
  if (!rental.ok() || rental->served <= 0) return NothingServes();
  rental->programs = 1;
  return rental;
}

absl::StatusOr<Rental> CheapestRental(const CostProgram& program) {
  absl::StatusOr<Rental> rental = Builder(program, Aim::kCheapest, 1).Solve(false, kExactGap);
  if (!rental.ok() && Stopped(program)) rental = RoundedRental(program, Aim::kCheapest);
  if (!rental.ok()) return NothingServes();
  rental->programs = 1;
  return rental;
}

absl::StatusOr<Rental> LargestRentalByBisection(const CostProgram& program,
                                                const BisectionOptions& options) {
  const absl::StatusOr<Rental> relaxed = Builder(program, Aim::kLargest, 0).Solve(true, 0);
  if (!relaxed.ok() || relaxed->served <= 0) return NothingServes();
  double low = 0, high = relaxed->served;
  Rental best;
  int checks = 0;
  while (high - low > options.gap * high && checks < options.most_checks && !Stopped(program)) {
    const double middle = (low + high) / 2;
    ++checks;
    const absl::StatusOr<Rental> feasible =
        Builder(program, Aim::kFeasible, middle).Solve(false, options.gap);
    if (!feasible.ok()) {
      high = middle;  // or somebody stopped it, which ends the bisection
      continue;
    }
    // What was found may serve more than was asked.
    const absl::StatusOr<Rental> served = With(program, feasible->copies);
    if (!served.ok()) return served.status();
    best = *served;
    low = std::max(middle, served->served);
  }
  if (best.served <= 0 && Stopped(program)) return RoundedRental(program, Aim::kLargest);
  if (best.served <= 0) return NothingServes();
  best.programs = checks;
  return best;
}

}  // namespace tessera::scheduler
