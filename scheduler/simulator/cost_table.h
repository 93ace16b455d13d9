// What a step of a replica costs, behind an interface: the cost model, or latencies that somebody
// fitted.
//
// A step passes the stages in order. Each stage, and each hop behind a stage, serves one step at a
// time; so steps of different micro-batches overlap, and the slowest stage or hop sets the pace.
// Thread rule: immutable; any thread. Units: seconds; the work's as in cost_model.h.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/cost/replica_cost.h"

namespace tessera::scheduler {

struct StageTime {
  double stage_seconds = 0;
  double hop_seconds = 0;  // to the next stage; behind the last, of token ids back to the first
};

class CostTable {
 public:
  virtual ~CostTable() = default;
  virtual int stages() const = 0;
  // `times` has stages() entries; a replica of one stage has no hop.
  virtual void Step(const StepWork& work, std::span<StageTime> times) const = 0;
  // For steps that only decode: a given number of rows costs a + b * decode_context_tokens.
  virtual bool linear_in_context() const = 0;
  // Drafts for each sequence of such a step, as many as do best; with so many micro-batches.
  virtual int BestDrafts(const StepWork&, int /*micro_batches*/) const { return 0; }
  virtual double draft_acceptance() const { return 0; }  // Drafts::acceptance; 0: none are tried
  // Whether drafts that stood are computed once more in the next step.
  virtual bool repeats_drafts() const { return false; }
};

// Planning's cost model. Copies model and replica; borrows the devices behind the stages.
std::unique_ptr<CostTable> MakeModelCostTable(ModelShape model, ReplicaSpec replica);

// One stage whose latencies were fitted: prefill a + b*sum(len) + c*sum(len^2), decode a +
// b*sum(context) + c*batch, with other figures from `large_batch` rows on. A step that does both
// takes the sum of both.
struct FittedLatencies {
  struct Prefill {
    double base_seconds = 0;                // a
    double seconds_per_token = 0;           // b
    double seconds_per_squared_length = 0;  // c
  };
  struct Decode {
    double base_seconds = 0;               // a
    double seconds_per_context_token = 0;  // b
    double seconds_per_row = 0;            // c
  };
  Prefill prefill;
  Decode decode;
  Decode large_decode;
  double large_batch = 95;  // rows
};
std::unique_ptr<CostTable> MakeFittedCostTable(const FittedLatencies& fit);

// The fits that DistServe's authors published for OPT on A100-80: "13B-TP1", "13B-TP2", "66B-TP4",
// "66B-TP8". NotFound lists the names.
absl::StatusOr<FittedLatencies> DistServeLatencies(std::string_view name);

}  // namespace tessera::scheduler
