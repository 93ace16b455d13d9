#include "tests/kernels/collectives/group_kinds.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <utility>

#include "kernels/collectives/device_sums_group.h"
#include "kernels/collectives/group_arguments.h"
#include "kernels/collectives/group_maker.h"
#include "kernels/collectives/loopback_group.h"
#include "kernels/collectives/shm_group.h"
#include "kernels/collectives/socket_group.h"
#include "kernels/collectives/staged_group.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cuda/device/cuda_device.h"
#include "tests/fakes/far_device.h"
#include "tests/kernels/collectives/cpu_streams.h"
#include "tests/kernels/cuda/driver/fake_nccl.h"
#include "tests/kernels/links/shared_mappings.h"
#include "tests/kernels/links/transports.h"

namespace tessera::tests {
namespace {

using kernels::Group;
using kernels::GroupOptions;
using kernels::Stream;
using kernels::TensorView;

// Smaller slots than the default, so that tensors of moderate size take several steps.
constexpr int64_t kSlotBytes = 64 << 10;

Groups CreateLoopback(int size, const GroupOptions& options) {
  auto groups = kernels::CreateLoopbackGroups(size, {.group = options, .slot_bytes = kSlotBytes});
  REQUIRE(groups.ok());
  return *std::move(groups);
}

Groups CreateOverSockets(int size, const GroupOptions& options, const std::string& transport) {
  auto mesh = ConnectMesh(size, transport);
  Groups groups;
  for (int rank = 0; rank < size; ++rank) {
    auto group = kernels::CreateSocketGroup(rank, std::move(mesh[rank]), options);
    REQUIRE(group.ok());
    groups.push_back(*std::move(group));
  }
  return groups;
}

// Rank 0 comes first and waits for nobody.
Groups CreateShm(int size, const GroupOptions& options) {
  auto mesh = ConnectMesh(size, "pair");
  Groups groups;
  for (int rank = 0; rank < size; ++rank) {
    auto group = kernels::CreateShmGroup(rank, std::move(mesh[rank]),
                                         {.group = options, .slot_bytes = kSlotBytes});
    REQUIRE(group.ok());
    groups.push_back(*std::move(group));
  }
  return groups;
}

// A rank whose tensors lie on a device: the test's host memory stands for it, at addresses that the
// host cannot read.
class FarRank final : public Group {
 public:
  explicit FarRank(std::unique_ptr<Group> host) : host_(std::move(host)) {
    auto device = kernels::CreateCpuDevice({.memory_bytes = 1, .cores_shared = true});
    REQUIRE(device.ok());
    auto staged = kernels::StagedGroup::Create(host_.get(), **device, kStagingBytes);
    REQUIRE(staged.ok());
    staged_ = *std::move(staged);
  }

  int rank() const override { return staged_->rank(); }
  int size() const override { return staged_->size(); }
  std::string transport() const override { return staged_->transport(); }
  absl::Status AllReduceSum(const TensorView& values, Stream& stream) override {
    FarStream far(&stream);
    return staged_->AllReduceSum(Far(values), far);
  }
  absl::Status Broadcast(const TensorView& values, int root, Stream& stream) override {
    FarStream far(&stream);
    return staged_->Broadcast(Far(values), root, far);
  }
  absl::Status AllGather(const TensorView& in, const TensorView& out, Stream& stream) override {
    FarStream far(&stream);
    return staged_->AllGather(Far(in), Far(out), far);
  }
  absl::Status Gather(const TensorView& in, const TensorView& out, int root,
                      Stream& stream) override {
    FarStream far(&stream);
    return staged_->Gather(Far(in), Far(out), root, far);
  }
  void Abort(const absl::Status& reason) override { staged_->Abort(reason); }
  absl::Status status() const override { return staged_->status(); }
  std::chrono::nanoseconds call_time() const override { return staged_->call_time(); }

 private:
  static constexpr int64_t kStagingBytes = 32 << 20;

  static TensorView Far(TensorView view) {
    view.data = ToFar(view.data);
    return view;
  }

  const std::unique_ptr<Group> host_;
  std::unique_ptr<Group> staged_;
};

// Ranks 1, 3, ... have devices of their own; the others are CPUs, as in `groups`.
Groups StageOddRanks(Groups groups) {
  for (size_t rank = 1; rank < groups.size(); rank += 2) {
    groups[rank] = std::make_unique<FarRank>(std::move(groups[rank]));
  }
  return groups;
}

// The emulated GPU plays all ranks.
Groups CreateByNccl(int size, const GroupOptions& options) {
  static auto& fake = *new FakeNccl;
  static const auto& table = *new kernels::cuda::NcclTable(TableOf(&fake));
  static auto& device = *new auto(kernels::cuda::emulated::CreateCudaDevice(
      {.memory_bytes = 1 << 20, .nccl = &table, .nccl_version = "2.28.9", .uuid = "GPU-0"}));
  REQUIRE(device.ok());
  kernels::GroupMaker& maker = *(*device)->group_maker();
  const auto id = maker.NewId();
  REQUIRE(id.ok());
  Groups groups(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      auto group = maker.Join(rank, size, *id, options, 20, [] { return false; });
      if (group.ok()) groups[rank] = *std::move(group);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const auto& group : groups) REQUIRE(group != nullptr);
  return groups;
}

// A rank on the emulated GPU, which reads the test's memory: its device's sums on a stream of its
// own, for which the test's stream waits.
class SummingRank final : public Group {
 public:
  SummingRank(std::unique_ptr<Group> base, std::shared_ptr<std::byte> memory,
              const GroupOptions& options)
      : base_(std::move(base)) {
    auto device = kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = 1 << 20});
    REQUIRE(device.ok());
    device_ = *std::move(device);
    auto sums =
        device_->group_maker()->MapSums(base_->rank(), base_->size(), std::move(memory), options);
    REQUIRE(sums.status().message() == "");
    sums_ = *std::move(sums);
    group_ = std::make_unique<kernels::DeviceSumsGroup>(base_.get(), sums_.get());
    stream_ = *device_->CreateStream();
  }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string transport() const override { return group_->transport(); }
  absl::Status AllReduceSum(const TensorView& values, Stream& stream) override {
    if (absl::Status status = kernels::CheckSum(values); !status.ok()) return status;
    if (!IsByDevices(values)) return group_->AllReduceSum(values, stream);
    return Enqueue({this, values, kSum}, stream);
  }
  absl::Status Broadcast(const TensorView& values, int root, Stream& stream) override {
    if (absl::Status status = kernels::CheckBroadcast(values, root, size()); !status.ok()) {
      return status;
    }
    if (!IsByDevices(values)) return group_->Broadcast(values, root, stream);
    return Enqueue({this, values, root}, stream);
  }
  absl::Status AllGather(const TensorView& in, const TensorView& out, Stream& stream) override {
    return group_->AllGather(in, out, stream);
  }
  absl::Status Gather(const TensorView& in, const TensorView& out, int root,
                      Stream& stream) override {
    return group_->Gather(in, out, root, stream);
  }
  void Abort(const absl::Status& reason) override { group_->Abort(reason); }
  absl::Status status() const override { return group_->status(); }
  std::chrono::nanoseconds call_time() const override { return group_->call_time(); }

 private:
  static constexpr int kSum = -1;
  struct Call {
    SummingRank* rank;
    TensorView values;
    int root;  // or kSum
  };

  bool IsByDevices(const TensorView& values) const {
    const int64_t bytes = kernels::DenseBytes(values);
    return bytes <= sums_->max_bytes() && bytes % 4 == 0;
  }
  static absl::Status Enqueue(const Call& call, Stream& stream) {
    const auto run = [](const Call& enqueued) {
      Group& group = *enqueued.rank->group_;
      Stream& own = *enqueued.rank->stream_;
      absl::Status status = enqueued.root == kSum
                                ? group.AllReduceSum(enqueued.values, own)
                                : group.Broadcast(enqueued.values, enqueued.root, own);
      return status.ok() ? own.Synchronize() : status;
    };
    return kernels::EnqueueHost<Call>(stream, run, call);
  }

  const std::unique_ptr<Group> base_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::DeviceSums> sums_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_;  // ends before what it runs
};

// Of one rank there is nothing to sum.
Groups CreateSumming(int size, const GroupOptions& options) {
  Groups groups = CreateShm(size, options);
  if (size == 1) return groups;
  const auto maker = kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = 1 << 20});
  REQUIRE(maker.ok());
  const auto memory = MapForRanks(size, (*maker)->group_maker()->SumsMemoryBytes(size));
  REQUIRE(memory.size() == groups.size());
  // All at once: they wait for each other.
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < groups.size(); ++r) {
    ranks.emplace_back([&, r] {
      groups[r] = std::make_unique<SummingRank>(std::move(groups[r]), memory[r], options);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return groups;
}

}  // namespace

const std::vector<GroupKind>& GroupKinds() {
  static const auto& kinds = *new std::vector<GroupKind>{
      {"loopback", CreateLoopback},
      {"unix sockets", [](int n, const auto& o) { return CreateOverSockets(n, o, "pair"); }},
      {"tcp sockets", [](int n, const auto& o) { return CreateOverSockets(n, o, "tcp"); }},
      {"shared memory", CreateShm},
      {"staged, shared memory",
       [](int n, const auto& o) { return StageOddRanks(CreateShm(n, o)); }},
      {"staged, sockets",
       [](int n, const auto& o) { return StageOddRanks(CreateOverSockets(n, o, "pair")); }},
      {"nccl", CreateByNccl, true},
      {"sums by devices", CreateSumming, false, true},
  };
  return kinds;
}

std::vector<std::vector<std::shared_ptr<kernels::Link>>> ConnectMesh(int size,
                                                                     const std::string& transport) {
  std::vector<std::vector<std::shared_ptr<kernels::Link>>> mesh(size);
  for (auto& links : mesh) links.resize(size);
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      LinkedEnds ends = Connect(transport);
      ends.first->set_peer("rank " + std::to_string(b));
      ends.second->set_peer("rank " + std::to_string(a));
      mesh[a][b] = std::move(ends.first);
      mesh[b][a] = std::move(ends.second);
    }
  }
  return mesh;
}

std::vector<absl::Status> PlayRanks(const Groups& groups, const Play& play) {
  const CpuStreams streams(static_cast<int>(groups.size()));
  std::vector<absl::Status> results(groups.size());
  std::vector<Expectations> expectations(groups.size());
  std::vector<std::thread> ranks;
  for (size_t i = 0; i < groups.size(); ++i) {
    ranks.emplace_back([&, i] {
      play(*groups[i], streams[i], expectations[i]);
      results[i] = streams[i].Synchronize();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const std::string& failure : expectations[i].failures()) {
      FAIL_CHECK("rank " << i << ": " << failure);
    }
  }
  return results;
}

}  // namespace tessera::tests
