#include "tests/worker/formation/random_plans.h"

#include <cstdlib>

#include "tests/worker/engine/engine_harness.h"

namespace tessera::worker {

int RandomPlanCount() {
  const char* text = std::getenv("TESSERA_RANDOM_PLANS");
  return text == nullptr ? 12 : std::atoi(text);
}

kernels::Isa Numbers::OneIsa() {
  const std::vector<kernels::Isa> isas = kernels::SupportedIsas(kernels::DetectCpuFeatures());
  return isas[static_cast<size_t>(From(0, static_cast<int>(isas.size()) - 1))];
}

std::vector<StageLayout> RandomStages(int max_width, Numbers* numbers) {
  const int count = numbers->From(1, 4);
  std::vector<StageLayout> stages(count, {1, 1});
  for (int layer = count; layer < kMadeLayers; ++layer) {
    ++stages[numbers->From(0, count - 1)].layers;
  }
  for (StageLayout& stage : stages) {
    stage.width = numbers->From(1, max_width);
    if (numbers->From(0, 1) == 0) continue;
    for (int rank = 0; rank < stage.width; ++rank) stage.fractions.push_back(numbers->From(1, 7));
  }
  return stages;
}

std::vector<kernels::Isa> RandomIsas(const ReplicaOptions& options, Numbers* numbers) {
  std::vector<kernels::Isa> isas;
  for (const StageLayout& stage : options.stages) {
    for (int rank = 0; rank < stage.width; ++rank) isas.push_back(numbers->OneIsa());
  }
  return isas;
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

std::string Describe(const ReplicaOptions& options) {
  std::string text;
  for (const StageLayout& stage : options.stages) {
    text += std::to_string(stage.layers) + "x" + std::to_string(stage.width) + " ";
    for (const double fraction : stage.fractions) text += ":" + std::to_string(fraction) + " ";
  }
  for (const kernels::Isa isa : options.isas) text += std::string(kernels::Name(isa)) + " ";
  return text + "rows " + std::to_string(options.max_batched_tokens);
}

}  // namespace tessera::worker
