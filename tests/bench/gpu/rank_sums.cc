#include "tests/bench/gpu/rank_sums.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/collectives/group_maker.h"
#include "kernels/cuda/sums/peer_meeting.h"
#include "kernels/graph_stream.h"
#include "tests/kernels/links/shared_mappings.h"

namespace tessera::bench {
namespace {

using kernels::TensorView;

constexpr int kSums = 65;    // of a graph, as a step of an 8B model has them
constexpr int kGraphs = 20;  // that are run; the first two are recorded

struct Rank {
  std::unique_ptr<kernels::DeviceSums> sums;
  kernels::Buffer memory;
  std::unique_ptr<kernels::Stream> stream;
  double seconds = 0;  // of one sum, at best

  absl::Status Prepare(kernels::Device& device, int64_t bytes) {
    auto buffer = device.Allocate(bytes);
    if (!buffer.ok()) return buffer.status();
    memory = *std::move(buffer);
    auto own = device.CreateStream();
    if (!own.ok()) return own.status();
    stream = *std::move(own);
    const std::vector<float> zeros(static_cast<size_t>(bytes) / sizeof(float));
    absl::Status status = stream->CopyToDevice(memory.data(), zeros.data(), bytes);
    status.Update(stream->Synchronize());
    return status;
  }

  absl::Status Run(int64_t bytes) {
    const TensorView values(memory.data(), kernels::DType::kF32,
                            {bytes / static_cast<int64_t>(sizeof(float))});
    kernels::GraphStream& repeating = *stream->repeating();
    absl::Status status;
    for (int graph = 0; status.ok() && graph < kGraphs; ++graph) {
      const auto began = std::chrono::steady_clock::now();
      const bool kept = repeating.Replay({1});
      if (!kept) {
        repeating.BeginRecording({1});
        for (int i = 0; status.ok() && i < kSums; ++i) status = sums->AllReduceSum(values, *stream);
        repeating.EndRecording(status.ok());
      }
      status.Update(stream->Synchronize());
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
      if (kept && (seconds == 0 || passed.count() / kSums < seconds)) {
        seconds = passed.count() / kSums;
      }
    }
    return status;
  }
};

}  // namespace

absl::StatusOr<SumsOfBoth> MapSums(kernels::Device& one, kernels::Device& other, bool as_peers) {
  const std::array<kernels::Device*, kTwoRanks> devices = {&one, &other};
  for (kernels::Device* device : devices) {
    if (device->group_maker() == nullptr || device->group_maker()->sums_kind().empty()) {
      return absl::UnimplementedError(device->Describe() + ": it maps no memory for sums");
    }
  }
  const auto shared = tests::MapForRanks(kTwoRanks, one.group_maker()->SumsMemoryBytes(kTwoRanks));
  if (shared.empty()) return absl::ResourceExhaustedError("no memory to share");
  if (!as_peers) kernels::cuda::KeepInHostMemory(shared[0].get(), 0, "both ways are measured");
  SumsOfBoth sums;
  std::array<absl::Status, kTwoRanks> said;
  const auto map = [&](int rank) {
    auto made = devices[rank]->group_maker()->MapSums(rank, kTwoRanks, shared[rank], {});
    said[rank] = made.status();
    if (made.ok()) sums[rank] = *std::move(made);
  };
  std::thread second([&map] { map(1); });
  map(0);
  second.join();
  for (const absl::Status& status : said) {
    if (!status.ok()) return status;
  }
  return sums;
}

absl::StatusOr<RankSum> MeasureRankSum(kernels::Device& one, kernels::Device& other, int64_t bytes,
                                       bool as_peers) {
  auto mapped = MapSums(one, other, as_peers);
  if (!mapped.ok()) return mapped.status();
  const std::array<kernels::Device*, kTwoRanks> devices = {&one, &other};
  std::array<Rank, kTwoRanks> ranks;
  for (int r = 0; r < kTwoRanks; ++r) {
    ranks[r].sums = std::move((*mapped)[r]);
    absl::Status status = ranks[r].Prepare(*devices[r], bytes);
    if (!status.ok()) return status;
  }
  std::array<absl::Status, kTwoRanks> said;
  std::thread second([&] { said[1] = ranks[1].Run(bytes); });
  said[0] = ranks[0].Run(bytes);
  second.join();
  for (const absl::Status& status : said) {
    if (!status.ok()) return status;
  }
  return RankSum{std::max(ranks[0].seconds, ranks[1].seconds), ranks[0].sums->transport()};
}

}  // namespace tessera::bench
