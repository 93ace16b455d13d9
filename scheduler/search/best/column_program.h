// The master program of "best": how many copies of which columns serve most together, and what
// that makes devices, money and roles worth.
//
// A column c is a replica that serves r_c requests per second alone; of it there are y_c:
//   max  sum over role both r_c y_c + sum over places p, q of s_pq
//   sum over c of devices_c y_c <= available, of each kind
//   sum over c of usd_c y_c <= budget
//   sum over q of s_pq <= sum over prefilling c of part_cp r_c y_c, for all p
//   sum over p of s_pq <= sum over decoding c of part_cq r_c y_c, for all q
//   0 <= s_pq <= what the links between the two places carry
// Where a rate is required, the least money that serves it instead. Without links to count there
// is one place. Deterministic. Thread rule: one thread per object; plain values. Units: requests
// per second, USD per hour.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/cost/replica_cost.h"
#include "scheduler/search/math/linear_program.h"

namespace tessera::scheduler {

struct Column {
  Role role = Role::kBoth;
  double rate = 0;           // r_c; 0: not to be used
  std::vector<int> devices;  // of each kind that the program counts
  double usd_per_hour = 0;
  // Place, and the part of the layers there; empty: all are at the first place.
  std::vector<std::pair<size_t, double>> parts = {};
};

struct ColumnTerms {
  std::vector<double> available;  // devices of each kind
  double budget_usd_per_hour = kUnbounded;
  std::optional<double> required;                             // none: serve as much as can be
  std::vector<std::vector<double>> carried = {{kUnbounded}};  // between places; 0: no s_pq
  bool whole = false;                                         // copies are whole numbers
};

class ColumnProgram {
 public:
  explicit ColumnProgram(const ColumnTerms& terms);

  // At most `most` copies.
  void Add(const Column& column, double most = kUnbounded);

  struct Answer {
    double objective = 0;
    std::vector<double> copies;  // in the order of Add
    // The price of one more, 0 or above, in the relaxation.
    std::vector<double> device_prices;  // by kind
    double budget_price = 0;
    std::vector<double> prefill_prices, decode_prices;  // of a request per second, by place
  };
  // Errors and the limits of a program with whole numbers: those of LinearProgram.
  absl::StatusOr<Answer> Solve(double gap = 1e-6, int max_nodes = LinearProgram::kMaxNodes,
                               const std::function<bool()>& stop = {}) const;

 private:
  const bool whole_, cheapest_;
  LinearProgram program_;
  std::vector<int> device_rows_, prefill_rows_, decode_rows_, copies_;
  int budget_row_ = 0, rate_row_ = 0;
};

}  // namespace tessera::scheduler
