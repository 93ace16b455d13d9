// The cost model's time of a step as a worker is given it: the same figures as the planner and the
// simulator have for it.
//
// Thread rule: immutable; any thread. Units: seconds.
#pragma once

#include <memory>
#include <utility>

#include "scheduler/simulator/cost_table.h"
#include "worker/step/step_arrays.h"

namespace tessera::worker {

// What the rows of a step are to the cost model. A sequence with one row decodes.
scheduler::StepWork WorkOf(const StepArrays& arrays);

class StepCost {
 public:
  struct Seconds {
    double stage = 0;
    double hop = 0;  // to the next stage; behind the last, of token ids back to the first
  };

  // `owner` keeps what the table borrows.
  StepCost(std::shared_ptr<const scheduler::CostTable> table, std::shared_ptr<const void> owner)
      : owner_(std::move(owner)), table_(std::move(table)) {}

  int stages() const { return table_->stages(); }
  Seconds Of(const StepArrays& arrays, int stage) const;

 private:
  const std::shared_ptr<const void> owner_;
  const std::shared_ptr<const scheduler::CostTable> table_;
};

}  // namespace tessera::worker
