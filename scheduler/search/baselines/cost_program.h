// Which configurations to rent, how many of each, and which requests they serve.
//
// A configuration c is a replica that can be rented: devices d_n(c), price o_c, and h_{c,w}
// requests per second of class w if it served nothing else. y_c copies (whole), z_{c,w} requests of
// class w per asked request of that class: sum_w z_{c,w} * f_w / h_{c,w} <= y_c, devices within
// what is available, price within the budget. Asked is the largest theta with sum_c z_{c,w} = theta
// for all classes, so that theta * f_w requests per second are served; or, with theta = 1, the
// least price. Source: Demystifying Cost-Efficiency (ICML 2025), T = 1 / theta and x = z * T;
// published as a bisection on T with a feasibility check, which is the plain program once T is 1 /
// theta. With slices (theta = 1) every class is cut into equal ones that one configuration serves
// whole: then it is Melange's program. Device types that come together, as a machine with a price,
// are paid for once any configuration takes some of them: not in the papers, whose types are whole
// machines. Who stops a program gets the best until then, else the
// relaxed one rounded. Thread rule: pure functions; deterministic while nobody stops them. Errors:
// FailedPrecondition where nothing can serve every class.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/search/math/linear_program.h"

namespace tessera::scheduler {

struct CostProgram {
  struct Configuration {
    std::vector<int> devices;                 // by device type; empty: none that are scarce
    double usd_per_hour = 0;                  // beside machines
    std::vector<double> requests_per_second;  // h, by class; 0: cannot serve it
  };
  std::vector<Configuration> configurations;
  std::vector<double> class_rates;  // f, requests per second
  std::vector<int> available;       // devices, by type
  struct Machine {
    std::vector<int> types;  // of its devices, which no other has
    double usd_per_hour = 0;
  };
  std::vector<Machine> machines;  // that are rented whole
  double budget_usd_per_hour = kUnbounded;
  int slices = 0;              // per class, for CheapestRental; 0: any share
  std::function<bool()> stop;  // asked at every node of a program; empty: nobody stops it
};

struct Rental {
  std::vector<int> copies;                  // y, by configuration
  std::vector<std::vector<double>> shares;  // z, by configuration and class
  double served = 0;                        // theta: of every class's rate
  double usd_per_hour = 0;
  int programs = 0;  // integer programs solved on the way
};

// The plain program.
absl::StatusOr<Rental> LargestRental(const CostProgram& program);
// Serves every class's rate.
absl::StatusOr<Rental> CheapestRental(const CostProgram& program);

struct BisectionOptions {
  double gap = 0.001;    // of theta, at which it ends. The paper reports less than 1 % of loss
  int most_checks = 40;  // ours
};
absl::StatusOr<Rental> LargestRentalByBisection(const CostProgram& program,
                                                const BisectionOptions& options = {});

}  // namespace tessera::scheduler
