#include "tests/bench/rank_steps.h"

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/device_sums_group.h"
#include "kernels/collectives/loopback_group.h"
#include "kernels/collectives/staged_group.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "scheduler/shares.h"
#include "tests/bench/gpu/rank_sums.h"
#include "tests/bench/model_steps.h"

namespace tessera::bench {
namespace {

constexpr int kWarmUp = 3;  // the first steps are captured as graphs

// Members are destroyed in reverse order: the model's stream before what it sums with.
struct Rank {
  std::unique_ptr<kernels::Group> host;
  std::unique_ptr<kernels::StagedGroup> staged;
  std::unique_ptr<kernels::DeviceSums> sums;
  std::unique_ptr<kernels::DeviceSumsGroup> group;
  std::unique_ptr<ModelSteps> model;
  absl::Status joined;
  std::vector<double> seconds;

  absl::Status Prepare(kernels::Device& device, const ModelStepsOptions& options) {
    auto loaded = ModelSteps::Load(options, device);
    if (!loaded.ok()) return loaded.status();
    model = *std::move(loaded);
    auto made =
        kernels::StagedGroup::Create(host.get(), device, model->model().group_staging_bytes());
    if (!made.ok()) return made.status();
    staged = *std::move(made);
    group = std::make_unique<kernels::DeviceSumsGroup>(staged.get(), sums.get());
    return absl::OkStatus();
  }

  // Both ranks at once: they meet.
  void Run(int64_t context, int steps) {
    joined = model->Join(group.get(), sums->max_bytes());
    if (!joined.ok()) return;
    for (int i = 0; i < kWarmUp; ++i) model->Decode(1, context);
    for (int i = 0; i < steps; ++i) seconds.push_back(model->Decode(1, context));
  }
};

}  // namespace

absl::StatusOr<RankSteps> MeasureRankSteps(kernels::Device& one, kernels::Device& other,
                                           const std::string& folder, int64_t context, int steps) {
  const auto model = ReadModelFolder(folder);
  if (!model.ok()) return model.status();
  const std::vector<v1::WorkerShare> shares =
      scheduler::StageShares(*model, 0, LayerCount(*model), kTwoRanks, v1::DATA_TYPE_UNSPECIFIED);
  const std::array<kernels::Device*, kTwoRanks> devices = {&one, &other};
  auto sums = MapSums(one, other, /*as_peers=*/true);
  if (!sums.ok()) return sums.status();
  auto hosts = kernels::CreateLoopbackGroups(kTwoRanks);
  if (!hosts.ok()) return hosts.status();
  std::array<Rank, kTwoRanks> ranks;
  for (int r = 0; r < kTwoRanks; ++r) {
    ranks[r].host = std::move((*hosts)[r]);
    ranks[r].sums = std::move((*sums)[r]);
    const absl::Status ready = ranks[r].Prepare(*devices[r], {.folder = folder,
                                                              .context_tokens = context,
                                                              .max_batch = 1,
                                                              .max_chunk = 1,
                                                              .share = shares[r]});
    if (!ready.ok()) return ready;
  }
  std::thread second([&] { ranks[1].Run(context, steps); });
  ranks[0].Run(context, steps);
  second.join();
  for (const Rank& rank : ranks) {
    if (!rank.joined.ok()) return rank.joined;
  }
  std::vector<double>& seconds = ranks[0].seconds;
  std::nth_element(seconds.begin(), seconds.begin() + steps / 2, seconds.end());
  return RankSteps{.seconds = seconds[steps / 2],
                   .graphs = std::min(ranks[0].model->graphs(), ranks[1].model->graphs()),
                   .transport = ranks[0].sums->transport()};
}

}  // namespace tessera::bench
