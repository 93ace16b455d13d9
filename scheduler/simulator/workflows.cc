#include "scheduler/simulator/workflows.h"

#include <algorithm>
#include <cmath>

#include "scheduler/simulator/arrivals.h"

namespace tessera::scheduler {
namespace {

// How uneven lengths are: gamma shapes of prompts and outputs.
constexpr double kPromptShape = 4, kOutputShape = 2;

double StepSeconds(const CostTable& cost, const StepWork& work) {
  std::vector<StageTime> times(static_cast<size_t>(cost.stages()));
  cost.Step(work, times);
  double slowest = 0;
  for (const StageTime& t : times) slowest = std::max({slowest, t.stage_seconds, t.hop_seconds});
  return slowest;
}

double PassSeconds(const CostTable& cost, const StepWork& work) {
  std::vector<StageTime> times(static_cast<size_t>(cost.stages()));
  cost.Step(work, times);
  double sum = 0;
  for (const StageTime& t : times) sum += t.stage_seconds + t.hop_seconds;
  return sum;
}

WorkflowCall DrawCall(const WorkflowProcess& process, Random& random) {
  const double prompt = random.Gamma(kPromptShape) / kPromptShape * process.mean_prompt_tokens;
  const double output = random.Gamma(kOutputShape) / kOutputShape * process.mean_output_tokens;
  return {std::max<int64_t>(1, std::llround(prompt)), std::max<int64_t>(1, std::llround(output))};
}

}  // namespace

ReplicaSpeed SpeedOf(const ReplicaSetup& replica, double context_tokens) {
  const BatchLimits& limits = replica.limits;
  const auto budget = static_cast<double>(limits.max_batched_tokens);
  const auto kv_tokens = static_cast<double>(limits.total_blocks * limits.block_tokens);
  const double rows = std::clamp(kv_tokens / context_tokens / replica.micro_batches, 1.0,
                                 static_cast<double>(limits.max_sequences) / replica.micro_batches);
  ReplicaSpeed speed;
  speed.prefill_tokens_per_second =
      budget / StepSeconds(*replica.cost, PrefillWork(budget, context_tokens / 2));
  speed.alone_seconds_per_token = PassSeconds(*replica.cost, DecodeWork(1, context_tokens));
  const double step = std::max(
      StepSeconds(*replica.cost, DecodeWork(rows, context_tokens)),
      PassSeconds(*replica.cost, DecodeWork(rows, context_tokens)) / replica.micro_batches);
  speed.crowded_tokens_per_second = rows / step;
  return speed;
}

std::vector<Workflow> GenerateWorkflows(const WorkflowProcess& process,
                                        const std::vector<ReplicaSpeed>& speeds) {
  Random random(process.seed);
  std::vector<Workflow> workflows;
  double now = 0;
  for (int64_t i = 0; i < process.workflows; ++i) {
    Workflow workflow;
    now += random.Exponential() / process.workflows_per_second;
    workflow.arrival_seconds = now;
    int64_t left = random.Integer(process.fewest_calls, process.most_calls);
    double alone = 0;
    while (left > 0) {
      const int64_t width = random.Integer(1, std::min(left, process.most_parallel));
      std::vector<WorkflowCall>& stage = workflow.stages.emplace_back();
      double longest = 0;
      for (int64_t c = 0; c < width; ++c) {
        stage.push_back(DrawCall(process, random));
        double fastest = speeds.front().AloneSeconds(stage.back());
        for (const ReplicaSpeed& s : speeds)
          fastest = std::min(fastest, s.AloneSeconds(stage.back()));
        longest = std::max(longest, fastest);
      }
      alone += longest;
      left -= width;
    }
    const double slack =
        process.least_slack + (process.most_slack - process.least_slack) * random.Uniform();
    workflow.deadline_seconds = slack * alone;
    workflows.push_back(std::move(workflow));
  }
  return workflows;
}

}  // namespace tessera::scheduler
