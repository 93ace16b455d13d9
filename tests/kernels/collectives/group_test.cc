// What every kind of group must do (kernels/collectives/group.h).
#include "kernels/collectives/group.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/collectives/group_kinds.h"

namespace tessera::kernels {
namespace {

using tests::Expectations;
using tests::GroupKind;
using tests::GroupKinds;
using tests::Groups;
using tests::Play;
using tests::PlayRanks;

constexpr int kMaxWidth = 8;
constexpr int64_t kCount = 501;

// Host work between the calls of a group.
absl::Status Change(float* const& data) {
  for (int64_t i = 0; i < kCount; ++i) data[i] = data[i] / 16 + static_cast<float>(i);
  return absl::OkStatus();
}

TensorView View(std::vector<float>& values) {
  return TensorView(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
}

TensorView View(std::string& bytes) {
  return TensorView(bytes.data(), DType::kI8, {static_cast<int64_t>(bytes.size())});
}

// Values of very unlike sizes, so that another order of additions gives other bits.
std::vector<float> Contribution(int rank, int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(rank * 7919 + count));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random() % 2'000'001) - 1e6F,
                       static_cast<int>(random() % 20) - 30);
  }
  return values;
}

std::vector<float> SumInOrder(const std::vector<int>& order, int64_t count) {
  std::vector<float> sums = Contribution(order[0], count);
  for (size_t k = 1; k < order.size(); ++k) {
    const std::vector<float> values = Contribution(order[k], count);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] + values[i];
  }
  return sums;
}

std::vector<int> RankOrder(int size) {
  std::vector<int> order(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) order[r] = r;
  return order;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::string Text(int rank, size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('A' + (rank * 31 + i) % 53);
  return text;
}

bool AllOk(const std::vector<absl::Status>& statuses) {
  bool all = true;
  for (const absl::Status& status : statuses) {
    UNSCOPED_INFO(status);
    all = all && status.ok();
  }
  return all;
}

void PlayWell(const Groups& groups, const Play& play) {
  const std::vector<absl::Status> results = PlayRanks(groups, play);
  REQUIRE(AllOk(results));
}

TEST_CASE("sums are the rank-order sum, bit for bit, on every rank") {
  for (const GroupKind& kind : GroupKinds()) {
    for (int size = 1; size <= kMaxWidth; ++size) {
      const Groups groups = kind.create(size, {});
      // Around the sizes at which algorithms change, and odd ones.
      for (const int64_t count : {1, 3, 4096, 4097, 8191, 8193, 16384, 50'001, 300'007}) {
        // Slow under sanitizers and on the emulated GPU.
        const bool emulated = kind.by_nccl || kind.sums_apart;
        if (count > (emulated ? 20'000 : 100'000) && size > 3) continue;
        INFO(kind.name << ", " << size << " ranks, " << count << " values");
        std::vector<std::vector<float>> values(static_cast<size_t>(size));
        for (int r = 0; r < size; ++r) values[r] = Contribution(r, count);
        PlayWell(groups, [&](Group& group, Stream& stream, Expectations& expect) {
          expect(group.AllReduceSum(View(values[group.rank()]), stream).ok());
        });
        const std::vector<float> expected = SumInOrder(RankOrder(size), count);
        for (int r = 0; r < size; ++r) CHECK(SameBits(values[r], expected));
      }
    }
  }
}

TEST_CASE("a rank knows how long its calls took, waits for the others included") {
  constexpr std::chrono::milliseconds kDelay(100);
  for (const GroupKind& kind : GroupKinds()) {
    INFO(kind.name);
    const Groups groups = kind.create(2, {});
    std::vector<std::vector<float>> values(2, std::vector<float>(100));
    CHECK(groups[0]->call_time().count() == 0);
    PlayWell(groups, [&](Group& group, Stream& stream, Expectations& expect) {
      if (group.rank() == 1) std::this_thread::sleep_for(kDelay);
      expect(group.AllReduceSum(View(values[group.rank()]), stream).ok());
    });
    // Rank 0 may have been late itself, by less.
    CHECK(groups[0]->call_time() > kDelay / 2);
    CHECK(groups[1]->call_time() < groups[0]->call_time());
  }
}

TEST_CASE("the values of these tests show another order of additions") {
  CHECK_FALSE(SameBits(SumInOrder({0, 1, 2}, 100), SumInOrder({1, 2, 0}, 100)));
  CHECK_FALSE(SameBits(SumInOrder({0, 1, 2, 3}, 100), SumInOrder({0, 1, 3, 2}, 100)));
}

TEST_CASE("a broadcast gives everybody the root's bytes") {
  for (const GroupKind& kind : GroupKinds()) {
    for (const int size : {1, 2, 3, 5, 8}) {
      const Groups groups = kind.create(size, {});
      for (const size_t bytes : {size_t{1}, size_t{65536}, size_t{200'001}}) {
        for (const int root : {0, size / 2, size - 1}) {
          INFO(kind.name << ", " << size << " ranks, " << bytes << " bytes, root " << root);
          std::vector<std::string> values;
          for (int r = 0; r < size; ++r) values.push_back(Text(r, bytes));
          PlayWell(groups, [&](Group& group, Stream& stream, Expectations& expect) {
            expect(group.Broadcast(View(values[group.rank()]), root, stream).ok());
          });
          for (int r = 0; r < size; ++r) CHECK(values[r] == Text(root, bytes));
        }
      }
    }
  }
}

// Sizes of the ranks' shares: equal, unequal, empty, and larger than any buffer.
std::vector<size_t> Shares(int size, int pattern) {
  std::vector<size_t> shares;
  for (int r = 0; r < size; ++r) {
    const std::vector<size_t> choices = {100, size_t(r) * 37, r % 2 == 0 ? size_t{0} : size_t{5},
                                         100'000 + size_t(r) * 70'000};
    shares.push_back(choices[pattern]);
  }
  return shares;
}

TEST_CASE("gathers put shares of any size one after another") {
  for (const GroupKind& kind : GroupKinds()) {
    for (const int size : {1, 2, 3, 5, 8}) {
      const Groups groups = kind.create(size, {});
      for (int pattern = 0; pattern < 4; ++pattern) {
        const std::vector<size_t> shares = Shares(size, pattern);
        const int root = (pattern + 1) % size;
        INFO(kind.name << ", " << size << " ranks, pattern " << pattern);
        std::string expected;
        std::vector<std::string> in;
        for (int r = 0; r < size; ++r) expected += in.emplace_back(Text(r, shares[r]));
        std::string at_root(expected.size(), '?');
        std::vector<std::string> everywhere(static_cast<size_t>(size), at_root);
        PlayWell(groups, [&](Group& group, Stream& stream, Expectations& expect) {
          const int r = group.rank();
          const TensorView out = r == root ? View(at_root) : TensorView();
          expect(group.Gather(View(in[r]), out, root, stream).ok());
          expect(group.AllGather(View(in[r]), View(everywhere[r]), stream).ok());
        });
        CHECK(at_root == expected);
        for (const std::string& out : everywhere) CHECK(out == expected);
      }
    }
  }
}

TEST_CASE("calls run in the order in which they were enqueued, without a pause between them") {
  constexpr int kCalls = 60;
  for (const GroupKind& kind : GroupKinds()) {
    for (const int size : {2, 3, 7}) {
      INFO(kind.name << ", " << size << " ranks");
      const Groups groups = kind.create(size, {});
      std::vector<std::vector<float>> values(static_cast<size_t>(size), std::vector<float>(kCount));
      PlayWell(groups, [&](Group& group, Stream& stream, Expectations& expect) {
        std::vector<float>& own = values[group.rank()];
        own.assign(kCount, static_cast<float>(group.rank()));
        for (int call = 0; call < kCalls; ++call) {
          // Each depends on what was before.
          expect(group.AllReduceSum(View(own), stream).ok());
          expect(EnqueueHost(stream, &Change, own.data()).ok());
          expect(group.Broadcast(View(own), call % group.size(), stream).ok());
        }
      });
      std::vector<float> expected(kCount, static_cast<float>(size * (size - 1) / 2));
      for (int call = 0; call < kCalls; ++call) {
        for (int64_t i = 0; i < kCount; ++i) {
          float sum = expected[i];
          for (int r = 1; call > 0 && r < size; ++r) sum += expected[i];
          expected[i] = sum / 16 + static_cast<float>(i);
        }
      }
      for (const auto& own : values) CHECK(SameBits(own, expected));
    }
  }
}

TEST_CASE("sums and broadcasts of no elements do nothing") {
  for (const GroupKind& kind : GroupKinds()) {
    INFO(kind.name);
    const Groups groups = kind.create(3, {});
    std::vector<float> nothing;
    PlayWell(groups, [&](Group& group, Stream& stream, Expectations& expect) {
      expect(group.AllReduceSum(View(nothing), stream).ok());
      expect(group.Broadcast(View(nothing), 1, stream).ok());
    });
  }
}

TEST_CASE("what is wrong with a call itself is an error at once") {
  for (const GroupKind& kind : GroupKinds()) {
    INFO(kind.name);
    const Groups groups = kind.create(2, {});
    PlayWell(groups, [](Group& group, Stream& stream, Expectations& expect) {
      std::vector<float> values(12);
      std::string bytes(12, 'x');
      TensorView strided(values.data(), DType::kF32, {2, 3});
      strided.row_stride = 6;
      const auto is_invalid = [](const absl::Status& status) {
        return status.code() == absl::StatusCode::kInvalidArgument;
      };
      expect(is_invalid(group.AllReduceSum(strided, stream)));
      expect(is_invalid(group.AllReduceSum(View(bytes), stream)));
      expect(is_invalid(group.Broadcast(strided, 0, stream)));
      expect(is_invalid(group.Broadcast(View(values), 2, stream)));
      expect(is_invalid(group.Broadcast(View(values), -1, stream)));
      expect(is_invalid(group.Gather(View(values), View(values), 2, stream)));
      expect(is_invalid(group.AllGather(View(values), View(bytes), stream)));
      expect(group.status().ok());
    });
  }
}

TEST_CASE("an abort ends the waits of every rank, for good") {
  for (const GroupKind& kind : GroupKinds()) {
    for (const int size : {2, 4}) {
      INFO(kind.name << ", " << size << " ranks");
      const Groups groups = kind.create(size, {});
      const absl::Status reason = absl::AbortedError("the formation ended");
      const Play play = [&](Group& group, Stream& stream, Expectations& expect) {
        std::vector<float> values(1000, 1.0F);
        if (group.rank() == 0) {
          group.Abort(reason);
        } else {
          expect(group.AllReduceSum(View(values), stream).ok());
          expect(!stream.Synchronize().ok());
        }
        // Later calls fail without waiting.
        expect(group.AllReduceSum(View(values), stream).ok());
      };
      const std::vector<absl::Status> results = PlayRanks(groups, play);
      for (const absl::Status& status : results) CHECK_FALSE(status.ok());
      CHECK(results[0] == reason);
      CHECK(groups[0]->status() == reason);
    }
  }
}

TEST_CASE("a rank that goes away ends the waits of the others") {
  for (const GroupKind& kind : GroupKinds()) {
    for (const int size : {2, 4}) {
      INFO(kind.name << ", " << size << " ranks");
      Groups groups = kind.create(size, {});
      std::vector<absl::Status> results;
      const int lost = size / 2;
      Groups survivors;
      for (int r = 0; r < size; ++r) {
        if (r != lost) survivors.push_back(std::move(groups[r]));
      }
      std::thread goes([gone = std::move(groups[lost])]() mutable { gone.reset(); });
      results = PlayRanks(survivors, [](Group& group, Stream& stream, Expectations& expect) {
        std::vector<float> values(1000, 1.0F);
        expect(group.AllReduceSum(View(values), stream).ok());
        expect(!stream.Synchronize().ok());
        expect(!group.status().ok());
      });
      goes.join();
    }
  }
}

TEST_CASE("what a rank completed before it went away stays complete for the others") {
  for (const GroupKind& kind : GroupKinds()) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      INFO(kind.name);
      Groups groups = kind.create(2, {});
      std::vector<std::vector<float>> values = {Contribution(0, 100), Contribution(1, 100)};
      const std::vector<absl::Status> results =
          PlayRanks(groups, [&](Group& group, Stream& stream, Expectations& expect) {
            const int rank = group.rank();
            expect(group.AllReduceSum(View(values[rank]), stream).ok());
            if (rank == 0) {
              expect(stream.Synchronize().ok());
              groups[0].reset();
            }
          });
      CHECK(AllOk(results));
      CHECK(SameBits(values[1], SumInOrder({0, 1}, 100)));
    }
  }
}

TEST_CASE("a rank that does not come costs a bounded wait and is named") {
  for (const GroupKind& kind : GroupKinds()) {
    INFO(kind.name);
    const Groups groups = kind.create(3, {.timeout_seconds = 0.1});
    const std::vector<absl::Status> results =
        PlayRanks(groups, [](Group& group, Stream& stream, Expectations& expect) {
          std::vector<float> values(10, 1.0F);
          if (group.rank() == 2) return;
          expect(group.AllReduceSum(View(values), stream).ok());
          expect(!stream.Synchronize().ok());
        });
    int named = 0;
    for (int r = 0; r < 2; ++r) {
      const absl::Status status = groups[r]->status();
      const bool late = status.code() == absl::StatusCode::kDeadlineExceeded;
      named += late && std::string(status.message()).find("rank 2") != std::string::npos ? 1 : 0;
      CHECK_FALSE(status.ok());
    }
    CHECK((named >= 1 || kind.by_nccl));
  }
}

TEST_CASE("ranks whose calls differ fail, and no memory is written past its end") {
  for (const GroupKind& kind : GroupKinds()) {
    for (const auto& [first, second] : std::vector<std::pair<size_t, size_t>>{
             {10, 11}, {11, 10}, {100'000, 10}, {30'000, 30'001}}) {
      INFO(kind.name << ": " << first << " and " << second << " values");
      const bool apart = kind.sums_apart && first == 100'000;  // one goes the other way
      const Groups groups = kind.create(2, {.timeout_seconds = apart ? 0.2 : 60});
      PlayRanks(groups, [&](Group& group, Stream& stream, Expectations& expect) {
        std::vector<float> values(group.rank() == 0 ? first : second);
        expect(group.AllReduceSum(View(values), stream).ok());
        expect(!stream.Synchronize().ok());
      });
      CHECK((kind.by_nccl || apart ||
             groups[0]->status().code() == absl::StatusCode::kFailedPrecondition ||
             groups[1]->status().code() == absl::StatusCode::kFailedPrecondition));
    }
    INFO(kind.name << ": unlike calls");
    const Groups groups = kind.create(2, {.timeout_seconds = kind.sums_apart ? 0.2 : 60});
    PlayRanks(groups, [&](Group& group, Stream& stream, Expectations& expect) {
      std::vector<float> values(100);
      std::vector<float> all(200);
      expect((group.rank() == 0 ? group.AllReduceSum(View(values), stream)
                                : group.AllGather(View(values), View(all), stream))
                 .ok());
      expect(!stream.Synchronize().ok());
    });
    const Groups short_of = kind.create(2, {});
    PlayRanks(short_of, [&](Group& group, Stream& stream, Expectations& expect) {
      std::vector<float> values(100);
      std::vector<float> all(199);
      expect(group.AllGather(View(values), View(all), stream).ok());
      expect(!stream.Synchronize().ok());
    });
  }
}

}  // namespace
}  // namespace tessera::kernels
