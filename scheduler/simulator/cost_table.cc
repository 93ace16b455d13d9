#include "scheduler/simulator/cost_table.h"

#include <algorithm>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

class ModelCostTable : public CostTable {
 public:
  ModelCostTable(ModelShape model, ReplicaSpec replica)
      : model_(std::move(model)), replica_(std::move(replica)) {
    // The slowest of unlike ranks is not one line in the context but the highest of several.
    for (const StageSpec& stage : replica_.stages) {
      linear_ &= stage.shares.empty();
      for (const DeviceSpec* device : stage.ranks) linear_ &= device == stage.ranks.front();
    }
    for (size_t j = 0; j < replica_.hops.size(); ++j) {
      like_before_.push_back(
          j > 0 && j + 1 < replica_.hops.size() && replica_.hops[j] == replica_.hops[j - 1] &&
          replica_.stages[j + 1].communicator == replica_.stages[j].communicator);
    }
  }

  int stages() const override { return static_cast<int>(replica_.stages.size()); }
  bool linear_in_context() const override { return linear_; }
  double draft_acceptance() const override {
    return model_.drafts.any() ? model_.drafts.acceptance : 0;
  }
  bool repeats_drafts() const override { return model_.keeps_states(); }
  int BestDrafts(const StepWork& work, int micro_batches) const override {
    return DraftedStepOf(model_, replica_, work, micro_batches).drafts;
  }

  void Step(const StepWork& work, std::span<StageTime> times) const override {
    const size_t stages = replica_.stages.size();
    StepTimer timer(model_, work);
    for (size_t j = 0; j < stages; ++j) {
      times[j].stage_seconds = timer.StageSeconds(replica_.stages[j]);
      times[j].hop_seconds = 0;
      if (stages == 1) continue;
      if (j + 1 == stages) {
        times[j].hop_seconds = TransferSeconds(replica_.hops[j], kTokenIdBytes * work.sampled_rows);
      } else if (like_before_[j]) {
        times[j].hop_seconds = times[j - 1].hop_seconds;
      } else {
        times[j].hop_seconds =
            HopSeconds(model_, replica_.hops[j], replica_.stages[j + 1].communicator, work.rows());
      }
    }
  }

 private:
  const ModelShape model_;
  const ReplicaSpec replica_;
  bool linear_ = true;
  std::vector<bool> like_before_;  // by hop: as long as the one before it
};

class FittedCostTable : public CostTable {
 public:
  explicit FittedCostTable(const FittedLatencies& fit) : fit_(fit) {}
  int stages() const override { return 1; }
  bool linear_in_context() const override { return true; }

  void Step(const StepWork& work, std::span<StageTime> times) const override {
    double seconds = 0;
    if (work.prefill_tokens > 0) {
      const FittedLatencies::Prefill& p = fit_.prefill;
      seconds += p.base_seconds + p.seconds_per_token * work.prefill_tokens +
                 p.seconds_per_squared_length * 2 * work.prefill_attention_pairs;
    }
    if (work.decode_rows > 0) {
      const FittedLatencies::Decode& d =
          work.decode_rows < fit_.large_batch ? fit_.decode : fit_.large_decode;
      seconds += d.base_seconds + d.seconds_per_context_token * work.decode_context_tokens +
                 d.seconds_per_row * work.decode_rows;
    }
    times[0] = {seconds, 0};
  }

 private:
  const FittedLatencies fit_;
};

struct NamedFit {
  std::string_view name;
  FittedLatencies milliseconds;
};

constexpr NamedFit kDistServe[] = {
    {"13B-TP1", {{18.10, .10191, 7.12e-6}, {19.93, 6.27e-4, .03851}, {7.17, 5.80e-4, .15831}, 95}},
    {"13B-TP2", {{14.74, .06858, 2.45e-6}, {13.29, 3.41e-4, .06296}, {10.64, 3.12e-4, .08563}, 95}},
    {"66B-TP4", {{29.44, .15135, 8.32e-6}, {30.76, 4.52e-4, .06328}, {27.47, 4.05e-4, .12481}, 95}},
    {"66B-TP8", {{25.49, .10659, 3.39e-6}, {23.16, 2.27e-4, .04801}, {21.72, 3.76e-4, .08979}, 95}},
};

}  // namespace

std::unique_ptr<CostTable> MakeModelCostTable(ModelShape model, ReplicaSpec replica) {
  return std::make_unique<ModelCostTable>(std::move(model), std::move(replica));
}

std::unique_ptr<CostTable> MakeFittedCostTable(const FittedLatencies& fit) {
  return std::make_unique<FittedCostTable>(fit);
}

absl::StatusOr<FittedLatencies> DistServeLatencies(std::string_view name) {
  std::string names;
  for (const NamedFit& fit : kDistServe) {
    names += StrCat(names.empty() ? "" : ", ", fit.name);
    if (fit.name != name) continue;
    FittedLatencies seconds = fit.milliseconds;
    for (double* value :
         {&seconds.prefill.base_seconds, &seconds.prefill.seconds_per_token,
          &seconds.prefill.seconds_per_squared_length, &seconds.decode.base_seconds,
          &seconds.decode.seconds_per_context_token, &seconds.decode.seconds_per_row,
          &seconds.large_decode.base_seconds, &seconds.large_decode.seconds_per_context_token,
          &seconds.large_decode.seconds_per_row}) {
      *value *= 1e-3;
    }
    return seconds;
  }
  return absl::NotFoundError(StrCat("there is no fit called \"", name, "\"; there are ", names));
}

}  // namespace tessera::scheduler
