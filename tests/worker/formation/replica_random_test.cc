// Random plans, each held against one worker: any stages, widths, kernels and chunks give its
// tokens. Every plan has a seed of its own; TESSERA_RANDOM_PLANS says how many there are.
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/random_plans.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"

namespace tessera::worker {
namespace {

// Of the span of a position's logits, in float32, from the order of sums alone.
constexpr double kTolerance = 1e-4;

struct RandomPlan {
  MadeModel model = MadeModel::kDense;
  ReplicaOptions options;
  bool exact = false;  // no sums over ranks, and one worker's kernels everywhere
  std::vector<v1::Submit> requests;
};

RandomPlan MakePlan(int seed) {
  Numbers numbers(static_cast<uint64_t>(seed) * 7919 + 1);
  RandomPlan plan;
  plan.model = MadeModels()[seed % MadeModels().size()];
  plan.exact = seed % 5 == 3;
  plan.options.stages = RandomStages(plan.exact ? 1 : 4, &numbers);
  plan.options.isas = {numbers.OneIsa()};
  if (!plan.exact) plan.options.isas = RandomIsas(plan.options, &numbers);
  plan.options.max_batched_tokens = numbers.From(8, 64);
  plan.requests = RandomRequests(&numbers);
  return plan;
}

Answers Run(const std::string& folder, const ReplicaOptions& options,
            const std::vector<v1::Submit>& requests) {
  PlannedReplica replica(folder, options);
  for (const v1::Submit& request : requests) replica.Submit(request);
  return replica.WaitAll();
}

TEST_CASE("random plans give one worker's tokens, and the same bits however prompts are cut") {
  std::map<MadeModel, std::unique_ptr<tests::TemporaryFolder>> folders;
  for (const MadeModel model : MadeModels()) {
    folders[model] = std::make_unique<tests::TemporaryFolder>();
    WriteMadeCheckpoint(folders[model]->path(), model);
  }
  int64_t asked = 0, compared = 0;
  for (int seed = 0; seed < RandomPlanCount(); ++seed) {
    RandomPlan plan = MakePlan(seed);
    INFO("seed " << seed << ", " << Name(plan.model) << ": " << Describe(plan.options));
    const std::string folder = folders[plan.model]->path().string();
    ReplicaOptions one_worker;
    one_worker.isas = {plan.options.isas[0]};
    const Answers alone = Run(folder, one_worker, plan.requests);
    const Answers planned = Run(folder, plan.options, plan.requests);
    for (const v1::Submit& request : plan.requests) {
      asked += request.max_tokens();
      REQUIRE(alone.at({request.submission_id(), 0}).finish == v1::FINISH_REASON_LENGTH);
    }
    compared += CheckWithin(kTolerance, planned, alone);
    if (plan.exact) CheckSameBits(planned, alone);
    plan.options.max_batched_tokens = plan.options.max_batched_tokens < 36 ? 61 : 9;
    CheckSameBits(Run(folder, plan.options, plan.requests), planned);
  }
  CHECK(compared > asked * 9 / 10);
}

}  // namespace
}  // namespace tessera::worker
