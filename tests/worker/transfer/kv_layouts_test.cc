// KV between replicas of unlike layouts: whatever the stages, ranks, block orders and types on the
// two sides, every element arrives at its place, and nothing else is written.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvcache/kv_row_floats.h"
#include "worker/transfer/kv_link_port.h"

namespace tessera::worker {
namespace {

constexpr int kLayers = 5, kHeads = 4;
constexpr int64_t kBlocks = 48, kBlockTokens = 4, kHeadDim = 2;
constexpr KvKey kKey{7, 1};

// What came of a hand-over, for either leader.
class Ear final : public KvMoverListener {
 public:
  void OnKvExpected(const KvKey&, absl::StatusOr<v1::KvTarget> target) override {
    Note([&] { expected = std::move(target); });
  }
  void OnKvArrived(const KvKey&, const absl::Status& status) override {
    Note([&] { arrived = status; });
  }
  void OnKvSent(const KvKey&, const absl::Status& status, const v1::KvTransfer& transfer) override {
    Note([&] {
      sent = status;
      bytes = transfer.bytes();
    });
  }
  template <typename What>
  void WaitFor(const What& what) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(30), what));
  }

  std::optional<absl::StatusOr<v1::KvTarget>> expected;
  std::optional<absl::Status> arrived, sent;
  uint64_t bytes = 0;

 private:
  void Note(const std::function<void()>& what) {
    std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct Worker {
  Worker(const kvcache::KvShare& share, kernels::DType type, uint64_t incarnation)
      : outbox({.cluster_token = "", .incarnation = incarnation}) {
    auto started = KvInbox::Start({{"127.0.0.1:0"}, "", incarnation});
    REQUIRE(started.ok());
    inbox = *std::move(started);
    pool = {nullptr, share, type, kBlocks, kBlockTokens, kHeadDim};
    memory.assign(static_cast<size_t>(pool.bytes()), std::byte{0xee});
    pool.memory = memory.data();
    options = {inbox.get(), &outbox, inbox->addresses(), incarnation};
  }

  std::vector<std::byte> memory;
  kvcache::KvPool pool;
  std::unique_ptr<KvInbox> inbox;
  KvOutbox outbox;
  KvLinkOptions options;
  std::shared_ptr<KvPort> port;
  std::unique_ptr<KvMemberPart> follower;  // null: it leads
};

// The workers of a replica; notes are calls.
class Replica final : public KvNotes {
 public:
  Replica(const std::vector<kvcache::KvShare>& shares, kernels::DType type, uint64_t incarnation) {
    for (size_t i = 0; i < shares.size(); ++i) {
      Worker& worker =
          *workers.emplace_back(std::make_unique<Worker>(shares[i], type, incarnation + i));
      const auto peer = static_cast<int>(i);
      worker.port = OpenKvLinkPorts(worker.options)(worker.pool, peer, nullptr);
      if (i == 0) continue;
      worker.follower = worker.port->Follow([this, peer](const v1::KvNote& note) {
        std::lock_guard lock(mutex_);
        if (listener_) listener_(peer, note);
      });
    }
    mover = workers[0]->port->Lead({shares, this});
    mover->SetListener(&ear);
  }
  ~Replica() override { mover.reset(); }

  void Send(int peer, const v1::KvNote& note) override {
    v1::KvNote copy;
    REQUIRE(copy.ParseFromString(note.SerializeAsString()));
    REQUIRE(workers[static_cast<size_t>(peer)]->follower->Take(copy).ok());
  }
  void SetListener(Listener listener) override {
    std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
  }

  std::vector<std::unique_ptr<Worker>> workers;
  Ear ear;
  std::unique_ptr<KvMover> mover;

 private:
  std::mutex mutex_;
  Listener listener_;
};

class Case {
 public:
  explicit Case(uint32_t seed) : random_(seed) {}

  int From(int low, int high) {  // both included
    return low + static_cast<int>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  // Stages of random layers, each of random width; ranks share heads evenly, or hold copies.
  std::vector<kvcache::KvShare> Shares() {
    std::vector<kvcache::KvShare> shares;
    for (int32_t layer = 0; layer < kLayers;) {
      const int32_t end = From(layer + 1, kLayers);
      const std::vector<int> cuts[] = {{0, 4}, {0, 1, 4}, {0, 2, 3, 4}, {0, 1, 2, 3, 4}};
      const std::vector<int>& heads = cuts[From(0, 3)];
      const int copies = From(0, 3) == 0 ? 2 : 1;
      for (size_t i = 0; i + 1 < heads.size(); ++i) {
        for (int copy = 0; copy < copies; ++copy) {
          shares.push_back({{layer, end}, {heads[i], heads[i + 1]}});
        }
      }
      layer = end;
    }
    return shares;
  }
  std::vector<int32_t> Blocks() {
    std::vector<int32_t> all(kBlocks);
    for (int32_t i = 0; i < kBlocks; ++i) all[i] = i;
    std::shuffle(all.begin(), all.end(), random_);
    return all;
  }
  kernels::DType Type() {
    constexpr kernels::DType kTypes[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                         kernels::DType::kI8, kernels::DType::kF8};
    return kTypes[From(0, 3)];
  }

 private:
  std::mt19937 random_;
};

// Of a layer, plane, head, token and element: exact in bfloat16 too.
float ValueOf(int32_t layer, int plane, int32_t head, int64_t token, int64_t element) {
  uint64_t hash = 1;
  for (const int64_t part : {int64_t{layer}, int64_t{plane}, int64_t{head}, token, element}) {
    hash = (hash ^ static_cast<uint64_t>(part + 1)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return static_cast<float>(hash % 251);
}

// How far an element of 0 to 250 is off that a pool of this type keeps.
double ErrorOf(kernels::DType type) {
  if (type == kernels::DType::kI8) return 1.1;
  return type == kernels::DType::kF8 ? 9.0 : 0.0;
}

// Calls visit(row, token, values): with each row's place, the token that it belongs to (-1: none)
// and, for one, what its elements are.
template <typename Visit>
void ForEach(const kvcache::KvPool& pool, const std::vector<int32_t>& table, int64_t tokens,
             const Visit& visit) {
  std::map<int64_t, int64_t> token_at;
  for (int64_t t = 0; t < tokens; ++t) {
    token_at[table[static_cast<size_t>(t / kBlockTokens)] * kBlockTokens + t % kBlockTokens] = t;
  }
  for (int32_t layer = pool.share.layers.begin; layer < pool.share.layers.end; ++layer) {
    for (const int plane : {0, 1}) {
      for (int32_t head = pool.share.kv_heads.begin; head < pool.share.kv_heads.end; ++head) {
        for (int64_t slot = 0; slot < kBlocks * kBlockTokens; ++slot) {
          const auto token = token_at.find(slot);
          const int64_t t = token == token_at.end() ? -1 : token->second;
          std::vector<float> values(kHeadDim);
          for (int64_t e = 0; e < kHeadDim; ++e) {
            values[static_cast<size_t>(e)] = ValueOf(layer, plane, head, t, e);
          }
          visit(pool.At(layer, plane, head, slot), t, values);
        }
      }
    }
  }
}

// One step's push of tokens [first, end), by every worker of the replica, layer by layer.
void Push(Replica& from, const v1::KvTarget& target, const std::vector<int32_t>& blocks,
          int64_t first, int64_t end, int64_t tokens) {
  StepLimits limits;
  limits.max_blocks_per_sequence = kBlocks;
  StepArrays arrays(limits);
  kvcache::BlockPool pool(kBlocks, kBlockTokens);
  kvcache::BlockTable all(&pool), table(&pool);
  REQUIRE(all.Grow(kBlocks * kBlockTokens));
  for (const int32_t block : blocks) {
    pool.AddReference(block);
    table.Adopt(block);
  }
  std::vector<int32_t> ids(static_cast<size_t>(end), 1);
  arrays.Begin();
  arrays.AddSequence({ids, tokens, first, end - first, &table});
  arrays.Seal();
  const KvPush push{kKey.first, kKey.second, 0, first, end, tokens, &target};
  for (const auto& worker : from.workers) worker->port->sender()->Begin({&push, 1}, arrays);
  for (const auto& worker : from.workers) {
    for (int32_t i = 0; i < worker->pool.share.layers.size(); ++i) {
      worker->port->sender()->OnLayerWritten(i);
    }
  }
}

TEST_CASE("KV moves between replicas of any layouts, in chunks, layer by layer") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    Case random(seed);
    Replica from(random.Shares(), random.Type(), 100), to(random.Shares(), random.Type(), 200);
    const int64_t first = random.From(0, 9) * int64_t{2};
    const int64_t tokens = first + random.From(1, 150);
    const std::vector<int32_t> from_blocks = random.Blocks(), to_blocks = random.Blocks();
    for (const auto& worker : from.workers) {
      ForEach(worker->pool, from_blocks, tokens,
              [&](std::byte* row, int64_t t, const std::vector<float>& values) {
                if (t < 0) return;
                kvcache::WithKvType(worker->pool.type, [&](auto type) {
                  kvcache::StoreRow<decltype(type)::value>(values.data(), kHeadDim, row);
                });
              });
    }
    std::vector<kvcache::KvShare> senders;
    for (const auto& worker : from.workers) senders.push_back(worker->pool.share);
    const v1::KvCodec codec = static_cast<v1::KvCodec>(random.From(0, 3));
    // Of values in 0 to 250: half a step, and what float16 and bfloat16 round.
    const double error = (codec == v1::KV_CODEC_INT8   ? 2.5
                          : codec == v1::KV_CODEC_INT4 ? 11.0
                                                       : 0.0) +
                         ErrorOf(from.workers[0]->pool.type) + ErrorOf(to.workers[0]->pool.type);
    to.mover->Expect({kKey, to_blocks, first, tokens, codec}, senders, 30);
    to.ear.WaitFor([&] { return to.ear.expected.has_value(); });
    REQUIRE(to.ear.expected->ok());
    const v1::KvTarget target = **to.ear.expected;
    from.mover->Send(kKey, target);
    for (int64_t begin = first; begin < tokens;) {
      const int64_t end = std::min<int64_t>(tokens, begin + random.From(1, 90));
      CHECK_FALSE(from.ear.sent.has_value());
      Push(from, target, from_blocks, begin, end, tokens);
      begin = end;
    }
    to.ear.WaitFor([&] { return to.ear.arrived.has_value(); });
    from.ear.WaitFor([&] { return from.ear.sent.has_value(); });
    CHECK(to.ear.arrived->ok());
    CHECK(from.ear.sent->ok());
    for (const auto& worker : to.workers) {
      bool right = true;
      ForEach(worker->pool, to_blocks, tokens,
              [&](std::byte* row, int64_t t, const std::vector<float>& values) {
                if (t < first) {
                  right &= std::all_of(row, row + worker->pool.row_bytes(),
                                       [](std::byte b) { return b == std::byte{0xee}; });
                  return;
                }
                std::vector<float> got(kHeadDim);
                kvcache::WithKvType(worker->pool.type, [&](auto type) {
                  kvcache::LoadRow<decltype(type)::value>(row, kHeadDim, got.data());
                });
                for (size_t e = 0; e < got.size(); ++e)
                  right &= std::abs(got[e] - values[e]) <= error;
              });
      CHECK(right);
      CHECK(worker->inbox->refused() == 0);
    }
  }
}

TEST_CASE("layouts that do not cover each other are refused with what is missing") {
  Replica to({{{0, 5}, {0, 4}}}, kernels::DType::kF32, 200);
  to.mover->Expect({kKey, {0, 1}, 0, 8, v1::KV_CODEC_RAW}, {{{0, 3}, {0, 4}}}, 30);
  to.ear.WaitFor([&] { return to.ear.expected.has_value(); });
  REQUIRE_FALSE(to.ear.expected->ok());
  CHECK_THAT(std::string(to.ear.expected->status().message()),
             Catch::Contains("kv head 0 of layer 3"));
}

TEST_CASE("one sender of several that drops its prompt ends the room, which can be opened again") {
  Replica from({{{0, 2}, {0, 4}}, {{2, 5}, {0, 4}}}, kernels::DType::kF32, 100);
  Replica to({{{0, 5}, {0, 1}}, {{0, 5}, {1, 4}}}, kernels::DType::kF32, 200);
  const std::vector<kvcache::KvShare> senders = {from.workers[0]->pool.share,
                                                 from.workers[1]->pool.share};
  for (const bool drops : {true, false}) {
    to.ear.expected.reset();
    to.ear.arrived.reset();
    to.mover->Expect({kKey, {0, 1, 2, 3}, 0, 16, v1::KV_CODEC_RAW}, senders, drops ? 1 : 30);
    to.ear.WaitFor([&] { return to.ear.expected.has_value(); });
    REQUIRE(to.ear.expected->ok());
    const v1::KvTarget target = **to.ear.expected;
    CHECK(target.routes_size() == 4);
    from.mover->Send(kKey, target);
    Push(from, target, {0, 1, 2, 3}, 0, 8, 16);
    if (drops) {
      from.mover->Drop(kKey);
      to.ear.WaitFor([&] { return to.ear.arrived.has_value(); });
      CHECK_FALSE(to.ear.arrived->ok());
      to.mover->Forget(kKey);
      CHECK_FALSE(from.ear.sent.has_value());
    } else {
      Push(from, target, {0, 1, 2, 3}, 8, 16, 16);
      to.ear.WaitFor([&] { return to.ear.arrived.has_value(); });
      CHECK(to.ear.arrived->ok());
    }
  }
}

}  // namespace
}  // namespace tessera::worker
