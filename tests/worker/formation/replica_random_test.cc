// Random plans, each held against one worker: any stages, widths, kernels and chunks give its
// tokens. Every plan has a seed of its own; TESSERA_RANDOM_PLANS says how many there are.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"

namespace tessera::worker {
namespace {

using kernels::Isa;

// Of the span of a position's logits, in float32, from the order of sums alone.
constexpr double kTolerance = 1e-4;

int PlanCount() {
  const char* text = std::getenv("TESSERA_RANDOM_PLANS");
  return text == nullptr ? 12 : std::atoi(text);
}

struct RandomPlan {
  MadeModel model = MadeModel::kDense;
  ReplicaOptions options;
  bool exact = false;  // no sums over ranks, and one worker's kernels everywhere
  std::vector<v1::Submit> requests;
};

// Numbers of one seed, the same with every standard library.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : random_(seed) {}
  int From(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 random_;
};

std::vector<StageLayout> RandomStages(int max_width, Numbers* numbers) {
  const int count = numbers->From(1, 4);
  std::vector<StageLayout> stages(count, {1, 1});
  for (int layer = count; layer < kMadeLayers; ++layer) {
    ++stages[numbers->From(0, count - 1)].layers;
  }
  for (StageLayout& stage : stages) stage.width = numbers->From(1, max_width);
  return stages;
}

std::vector<v1::Submit> RandomRequests(Numbers* numbers) {
  std::vector<v1::Submit> requests;
  for (int i = 0; i < 4; ++i) {
    v1::Submit submit = MakeSubmit(i, Prompt(numbers->From(1, 50), numbers->From(0, 1 << 20), 97),
                                   numbers->From(1, 12));
    submit.set_ignore_eos(true);
    submit.set_top_logprobs(kMadeVocabulary);
    if (i == 3) submit.set_prompt_logprobs(kMadeVocabulary);
    requests.push_back(std::move(submit));
  }
  return requests;
}

RandomPlan MakePlan(int seed) {
  Numbers numbers(static_cast<uint64_t>(seed) * 7919 + 1);
  const std::vector<Isa> isas = kernels::SupportedIsas(kernels::DetectCpuFeatures());
  const auto isa = [&] { return isas[numbers.From(0, static_cast<int>(isas.size()) - 1)]; };
  RandomPlan plan;
  plan.model = MadeModels()[seed % MadeModels().size()];
  plan.exact = seed % 4 == 0;
  plan.options.stages = RandomStages(plan.exact ? 1 : 4, &numbers);
  plan.options.isas = {isa()};
  int members = 0;
  for (const StageLayout& stage : plan.options.stages) members += stage.width;
  while (!plan.exact && static_cast<int>(plan.options.isas.size()) < members) {
    plan.options.isas.push_back(isa());
  }
  plan.options.max_batched_tokens = numbers.From(8, 64);
  plan.requests = RandomRequests(&numbers);
  return plan;
}

std::string Describe(int seed, const RandomPlan& plan) {
  std::string text = "seed " + std::to_string(seed) + ", " + std::string(Name(plan.model)) + ":";
  for (const StageLayout& stage : plan.options.stages) {
    text += " " + std::to_string(stage.layers) + "x" + std::to_string(stage.width);
  }
  for (const Isa isa : plan.options.isas) text += " " + std::string(kernels::Name(isa));
  return text + ", rows " + std::to_string(plan.options.max_batched_tokens);
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
  for (int seed = 0; seed < PlanCount(); ++seed) {
    RandomPlan plan = MakePlan(seed);
    INFO(Describe(seed, plan));
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
