#include "tests/kernels/collectives/group_kinds.h"

#include <catch2/catch.hpp>
#include <thread>

#include "kernels/collectives/loopback_group.h"
#include "kernels/collectives/shm_group.h"
#include "kernels/collectives/socket_group.h"
#include "tests/kernels/collectives/cpu_streams.h"
#include "tests/kernels/links/transports.h"

namespace tessera::tests {
namespace {

using kernels::Group;
using kernels::GroupOptions;

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

}  // namespace

const std::vector<GroupKind>& GroupKinds() {
  static const auto& kinds = *new std::vector<GroupKind>{
      {"loopback", CreateLoopback},
      {"unix sockets", [](int n, const auto& o) { return CreateOverSockets(n, o, "pair"); }},
      {"tcp sockets", [](int n, const auto& o) { return CreateOverSockets(n, o, "tcp"); }},
      {"shared memory", CreateShm},
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
