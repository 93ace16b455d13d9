// Cost tables and replicas that the tests of the simulator share.
#pragma once

#include <memory>
#include <string>

#include "scheduler/simulator/simulator.h"

namespace tessera::tests {

// Every stage takes base + per_prefill_token * q + per_row * b + per_context_token * context.
struct PlainFigures {
  double base = 0;
  double per_prefill_token = 0;
  double per_row = 0;
  double per_context_token = 0;
  double hop = 0;
  int stages = 1;
  bool linear = true;  // what the table says of itself; false: no lines are cached
};

class PlainTable : public scheduler::CostTable {
 public:
  explicit PlainTable(const PlainFigures& figures) : f_(figures) {}
  int stages() const override { return f_.stages; }
  bool linear_in_context() const override { return f_.linear; }
  void Step(const scheduler::StepWork& work, std::span<scheduler::StageTime> times) const override {
    for (size_t j = 0; j < times.size(); ++j) {
      const double uneven = 1 + 0.3 * static_cast<double>(j);
      times[j].stage_seconds = uneven * (f_.base + f_.per_prefill_token * work.prefill_tokens +
                                         f_.per_row * work.decode_rows +
                                         f_.per_context_token * work.decode_context_tokens);
      times[j].hop_seconds = times.size() > 1 ? f_.hop : 0;
    }
  }

 private:
  const PlainFigures f_;
};

inline scheduler::ReplicaSetup PlainReplica(const std::string& name, const PlainFigures& figures) {
  scheduler::ReplicaSetup setup;
  setup.name = name;
  setup.cost = std::make_shared<PlainTable>(figures);
  setup.limits.total_blocks = 1 << 20;
  return setup;
}

}  // namespace tessera::tests
