#include "scheduler/simulator/workflow_input.h"

#include <algorithm>
#include <cmath>

#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

// A call of more tokens than any model takes is a slip of the pen.
constexpr int64_t kMaxTokens = 100'000'000;

bool Sane(int64_t tokens) { return tokens >= 1 && tokens <= kMaxTokens; }

absl::Status ReadWorkflow(const v1::AgentWorkflow& described, Workflow* workflow) {
  workflow->arrival_seconds = described.arrival_seconds();
  workflow->deadline_seconds = described.deadline_seconds();
  if (!(workflow->arrival_seconds >= 0) || !std::isfinite(workflow->arrival_seconds))
    return absl::InvalidArgumentError("arrival must not be negative");
  if (!(workflow->deadline_seconds > 0))
    return absl::InvalidArgumentError(
        "deadline must be above 0: the time that the whole workflow may take, such as \"20 s\"");
  if (described.stages().empty())
    return absl::InvalidArgumentError("stages are missing: give it at least one with a call");
  for (const v1::AgentStage& stage : described.stages()) {
    if (stage.calls().empty())
      return absl::InvalidArgumentError("a stage has no calls: leave it out or give it one");
    std::vector<WorkflowCall>& calls = workflow->stages.emplace_back();
    for (const v1::AgentCall& call : stage.calls()) {
      if (!Sane(call.prompt_tokens()) || !Sane(call.output_tokens()))
        return absl::InvalidArgumentError(
            "a call needs prompt_tokens and output_tokens of at least 1");
      calls.push_back({call.prompt_tokens(), call.output_tokens()});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Workflow>> WorkflowsOf(const v1::AgentWorkflows& described,
                                                  std::string_view file) {
  std::vector<Workflow> workflows;
  for (int i = 0; i < described.workflows_size(); ++i) {
    if (absl::Status s = ReadWorkflow(described.workflows(i), &workflows.emplace_back()); !s.ok()) {
      return absl::InvalidArgumentError(
          StrCat(file, ": workflows[", i, "]: ", StdView(s.message())));
    }
  }
  if (workflows.empty())
    return absl::InvalidArgumentError(
        StrCat(file, ": it has no workflows: list some under \"workflows\", or give a generator"));
  std::stable_sort(workflows.begin(), workflows.end(), [](const Workflow& a, const Workflow& b) {
    return a.arrival_seconds < b.arrival_seconds;
  });
  return workflows;
}

absl::StatusOr<WorkflowProcess> ProcessOf(const v1::AgentGenerator& generator,
                                          std::string_view file) {
  WorkflowProcess process;
  const auto error = [&](std::string_view reason) {
    return absl::InvalidArgumentError(StrCat(file, ": generator: ", reason));
  };
  process.workflows_per_second = generator.workflows_per_second();
  const auto take = [](auto given, auto* value) {
    if (given != 0) *value = given;
  };
  take(generator.workflows(), &process.workflows);
  take(generator.fewest_calls(), &process.fewest_calls);
  take(generator.most_calls(), &process.most_calls);
  take(generator.most_parallel(), &process.most_parallel);
  take(generator.mean_prompt_tokens(), &process.mean_prompt_tokens);
  take(generator.mean_output_tokens(), &process.mean_output_tokens);
  take(generator.least_slack(), &process.least_slack);
  take(generator.most_slack(), &process.most_slack);
  if (process.workflows_per_second < 0) return error("workflows_per_second must not be negative");
  if (process.workflows < 1 || process.workflows > 10'000'000)
    return error("workflows must be from 1 to 10000000");
  if (process.fewest_calls < 1 || process.most_calls < process.fewest_calls)
    return error("fewest_calls must be at least 1 and at most most_calls");
  if (process.most_parallel < 1) return error("most_parallel must be at least 1");
  if (!(process.mean_prompt_tokens >= 1) || !(process.mean_output_tokens >= 1))
    return error("mean_prompt_tokens and mean_output_tokens must be at least 1");
  if (!(process.least_slack > 0) || !(process.most_slack >= process.least_slack))
    return error("least_slack must be above 0 and at most most_slack");
  return process;
}

WorkflowCall MeanCall(const std::vector<Workflow>& workflows) {
  double prompt = 0, output = 0, calls = 0;
  for (const Workflow& workflow : workflows) {
    for (const std::vector<WorkflowCall>& stage : workflow.stages) {
      for (const WorkflowCall& call : stage) {
        prompt += static_cast<double>(call.prompt_tokens);
        output += static_cast<double>(call.output_tokens);
        ++calls;
      }
    }
  }
  if (calls == 0) return {};
  return {std::max<int64_t>(1, std::llround(prompt / calls)),
          std::max<int64_t>(1, std::llround(output / calls))};
}

}  // namespace tessera::scheduler
