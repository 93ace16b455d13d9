#include "kernels/collectives/slot_group.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>

#include "kernels/collectives/rank_order_sum.h"
#include "kernels/cpu/futex.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kOneStepBytes = 32 << 10;
constexpr uint32_t kSumKind = 1;
constexpr uint32_t kSliceKind = 2;
constexpr uint32_t kBroadcastKind = 3;
constexpr uint32_t kGatherKind = 4;

template <typename T>
absl::Span<const std::byte> AsBytes(absl::Span<T> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

// At the start of the shared memory.
struct SlotGroup::Control {
  struct alignas(64) Rank {
    std::atomic<uint32_t> published;  // its step
    std::atomic<uint32_t> sleepers;   // ranks that may sleep on it
  };
  alignas(64) std::atomic<uint32_t> aborted_by;  // 1 + the rank that ended the group
  std::array<Rank, kMaxGroupSize> ranks;
};

// Followed by slot_bytes of values.
struct alignas(64) SlotGroup::Slot {
  uint32_t kind;
  int64_t all_bytes;  // of the whole call, which may take several steps

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

absl::Status SlotGroup::CheckOptions(const SlotGroupOptions& options) {
  if (options.slot_bytes > 0 && options.slot_bytes % 64 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("slots of ", options.slot_bytes, " bytes; a multiple of 64 is possible"));
}

int64_t SlotGroup::MemoryBytes(int size, int64_t slot_bytes) {
  return static_cast<int64_t>(sizeof(Control)) +
         2 * size * (static_cast<int64_t>(sizeof(Slot)) + slot_bytes);
}

SlotGroup::SlotGroup(int rank, int size, std::shared_ptr<std::byte> memory,
                     const SlotGroupOptions& options, std::function<absl::Status()> check_peers)
    : HostGroup(rank, size),
      memory_(std::move(memory)),
      options_(options),
      check_peers_(std::move(check_peers)) {}

SlotGroup::~SlotGroup() { Abort(absl::CancelledError("this rank left its group")); }

SlotGroup::Control& SlotGroup::control() const {
  return *reinterpret_cast<Control*>(memory_.get());
}

SlotGroup::Slot& SlotGroup::SlotOf(int rank) const {
  const int64_t stride = static_cast<int64_t>(sizeof(Slot)) + options_.slot_bytes;
  const int64_t index = 2 * rank + step_ % 2;
  return *reinterpret_cast<Slot*>(memory_.get() + sizeof(Control) + index * stride);
}

absl::Status SlotGroup::SumNow(absl::Span<float> values) {
  const auto bytes = static_cast<int64_t>(AsBytes(values).size());
  if (bytes <= std::min(kOneStepBytes, options_.slot_bytes)) return SumInOneStep(values);
  const auto slot_values = static_cast<size_t>(options_.slot_bytes) / sizeof(float);
  for (size_t begin = 0; begin < values.size(); begin += slot_values) {
    absl::Status status = SumBySlices(values.subspan(begin, slot_values), bytes);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SlotGroup::SumInOneStep(absl::Span<float> values) {
  const auto bytes = static_cast<int64_t>(AsBytes(values).size());
  if (absl::Status status = Step(kSumKind, bytes, AsBytes(values)); !status.ok()) return status;
  if (absl::Status status = CheckSameSize(bytes); !status.ok()) return status;
  std::array<const float*, kMaxGroupSize> contributions;
  for (int r = 0; r < size(); ++r) {
    contributions[r] = reinterpret_cast<const float*>(SlotOf(r).data());
  }
  SumInRankOrder({contributions.data(), static_cast<size_t>(size())},
                 static_cast<int64_t>(values.size()), values.data());
  return absl::OkStatus();
}

absl::Status SlotGroup::SumBySlices(absl::Span<float> values, int64_t all_bytes) {
  const auto count = static_cast<int64_t>(values.size());
  const auto slice = [&](int r) {
    const int64_t begin = count * r / size();
    return values.subspan(begin, count * (r + 1) / size() - begin);
  };
  absl::Status status = Step(kSumKind, all_bytes, AsBytes(values));
  if (status.ok()) status = CheckSameSize(all_bytes);
  if (!status.ok()) return status;
  const absl::Span<float> own = slice(rank());
  std::array<const float*, kMaxGroupSize> contributions;
  for (int r = 0; r < size(); ++r) {
    contributions[r] =
        reinterpret_cast<const float*>(SlotOf(r).data()) + (own.data() - values.data());
  }
  SumInRankOrder({contributions.data(), static_cast<size_t>(size())},
                 static_cast<int64_t>(own.size()), own.data());

  status = Step(kSliceKind, all_bytes, AsBytes(own));
  if (!status.ok()) return status;
  for (int r = 0; r < size(); ++r) {
    const absl::Span<float> other = slice(r);
    if (r != rank() && !other.empty()) {
      std::memcpy(other.data(), SlotOf(r).data(), AsBytes(other).size());
    }
  }
  return absl::OkStatus();
}

absl::Status SlotGroup::BroadcastNow(absl::Span<std::byte> bytes, int root) {
  const auto all_bytes = static_cast<int64_t>(bytes.size());
  const auto slot_bytes = static_cast<size_t>(options_.slot_bytes);
  for (size_t begin = 0; begin < bytes.size(); begin += slot_bytes) {
    const absl::Span<std::byte> piece = bytes.subspan(begin, slot_bytes);
    const bool is_root = root == rank();
    absl::Status status =
        Step(kBroadcastKind, all_bytes, is_root ? piece : absl::Span<const std::byte>());
    if (status.ok()) status = CheckSameSize(all_bytes);
    if (!status.ok()) return status;
    if (!is_root) std::memcpy(piece.data(), SlotOf(root).data(), piece.size());
  }
  return absl::OkStatus();
}

// The first step says how much each rank has, hence how many steps there are.
absl::Status SlotGroup::GatherNow(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                                  int root) {
  const auto slot_bytes = static_cast<size_t>(options_.slot_bytes);
  std::array<size_t, kMaxGroupSize> sizes = {};
  std::array<size_t, kMaxGroupSize> offsets = {};
  size_t longest = 1;  // one step at least
  for (size_t begin = 0; begin < longest; begin += slot_bytes) {
    const auto own = begin < in.size() ? in.subspan(begin, slot_bytes) : in.first(0);
    absl::Status status = Step(kGatherKind, static_cast<int64_t>(in.size()), own);
    if (!status.ok()) return status;
    if (begin == 0) {
      size_t total = 0;
      for (int r = 0; r < size(); ++r) {
        sizes[r] = static_cast<size_t>(SlotOf(r).all_bytes);
        offsets[r] = total;
        total += sizes[r];
        longest = std::max(longest, sizes[r]);
      }
      if (Receives(root) && total != out.size()) {
        return absl::FailedPreconditionError(StrCat(
            "gather: the ranks have ", total, " bytes, rank ", rank(), " expects ", out.size()));
      }
    }
    if (!Receives(root)) continue;
    for (int r = 0; r < size(); ++r) {
      if (begin >= sizes[r]) continue;
      std::memcpy(out.data() + offsets[r] + begin, SlotOf(r).data(),
                  std::min(slot_bytes, sizes[r] - begin));
    }
  }
  return absl::OkStatus();
}

absl::Status SlotGroup::Step(uint32_t kind, int64_t all_bytes, absl::Span<const std::byte> bytes) {
  const Deadline deadline = DeadlineAfter(options_.group.timeout_seconds);
  ++step_;
  Slot& own = SlotOf(rank());
  own.kind = kind;
  own.all_bytes = all_bytes;
  if (!bytes.empty()) std::memcpy(own.data(), bytes.data(), bytes.size());
  Control::Rank& word = control().ranks[rank()];
  word.published.store(step_);  // sequentially consistent with sleepers, see WaitFor
  if (word.sleepers.load() > 0) FutexWake(word.published, INT_MAX, FutexScope::kShared);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (absl::Status status = WaitFor(r, deadline); !status.ok()) return status;
    if (SlotOf(r).kind != kind) {
      return absl::FailedPreconditionError(
          StrCat("rank ", r, " and rank ", rank(), " make different calls to their group"));
    }
  }
  return absl::OkStatus();
}

absl::Status SlotGroup::CheckSameSize(int64_t all_bytes) const {
  for (int r = 0; r < size(); ++r) {
    if (SlotOf(r).all_bytes == all_bytes) continue;
    return absl::FailedPreconditionError(StrCat("rank ", r, " has ", SlotOf(r).all_bytes,
                                                " bytes, rank ", rank(), " has ", all_bytes));
  }
  return absl::OkStatus();
}

absl::Status SlotGroup::WaitFor(int rank, Deadline deadline) {
  Control::Rank& word = control().ranks[rank];
  const auto come = [&] {
    return static_cast<int32_t>(word.published.load(std::memory_order_acquire) - step_) >= 0;
  };
  const auto aborted = [&] { return control().aborted_by.load(std::memory_order_acquire) != 0; };
  SpinUntil([&] { return come() || aborted(); }, options_.group.spin_limit);
  absl::Status lost;
  while (!come()) {
    if (aborted()) return Aborted();
    if (!lost.ok()) return lost;
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::DeadlineExceededError(StrCat("rank ", rank, " did not come to rank ",
                                                this->rank(), " within ",
                                                options_.group.timeout_seconds, " s"));
    }
    word.sleepers.fetch_add(1);
    const uint32_t seen = word.published.load();
    if (seen != step_ && !aborted()) FutexWait(word.published, seen, FutexScope::kShared);
    word.sleepers.fetch_sub(1);
    // What a rank published before it went away still counts.
    if (!come()) lost = check_peers_();
  }
  return absl::OkStatus();
}

absl::Status SlotGroup::Aborted() const {
  if (failed()) return status();
  return absl::AbortedError(StrCat("rank ", control().aborted_by.load() - 1, " ended the group"));
}

void SlotGroup::WakeAll(const absl::Status&) {
  uint32_t nobody = 0;
  control().aborted_by.compare_exchange_strong(nobody, static_cast<uint32_t>(rank()) + 1);
  for (int r = 0; r < size(); ++r) {
    FutexWake(control().ranks[r].published, INT_MAX, FutexScope::kShared);
  }
}

}  // namespace tessera::kernels
