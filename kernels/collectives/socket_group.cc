#include "kernels/collectives/socket_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "kernels/collectives/group_links.h"
#include "kernels/collectives/host_group.h"
#include "kernels/collectives/rank_order_sum.h"
#include "kernels/links/deadline.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

// What every rank may have on its way to every other without waiting: less than a socket takes.
constexpr int64_t kOneExchangeBytes = 16 << 10;
constexpr int64_t kChunkValues = (1 << 20) / sizeof(float);
// One slice of a chunk, or one small sum, from each rank.
constexpr int64_t kScratchValues = kChunkValues + kMaxGroupSize;
static_assert(kMaxGroupSize * kOneExchangeBytes <= kChunkValues * int64_t{sizeof(float)});

absl::Span<const std::byte> ReadOnly(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

absl::Span<std::byte> Writable(absl::Span<float> values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
}

class SocketGroup final : public HostGroup {
 public:
  SocketGroup(int rank, std::vector<std::shared_ptr<Link>> links, const GroupOptions& options)
      : HostGroup(rank, static_cast<int>(links.size())),
        links_(std::move(links)),
        options_(options),
        scratch_(kScratchValues) {}
  ~SocketGroup() override { Abort(absl::CancelledError("this rank left its group")); }
  std::string transport() const override { return "sockets"; }

 private:
  absl::Status SumNow(absl::Span<float> values) override;
  absl::Status BroadcastNow(absl::Span<std::byte> bytes, int root) override;
  absl::Status GatherNow(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                         int root) override;
  void WakeAll(const absl::Status& reason) override;

  absl::Status SumInOneExchange(absl::Span<float> values, Deadline deadline);
  absl::Status SumBySlices(absl::Span<float> values, Deadline deadline);
  absl::Status GatherAtRoot(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                            Deadline deadline);
  absl::Status GatherEverywhere(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                                Deadline deadline);

  absl::Status Send(int peer, uint16_t type, absl::Span<const std::byte> bytes, Deadline deadline) {
    return links_[peer]->Send(type, bytes, SecondsUntil(deadline));
  }
  absl::Status Receive(int peer, uint16_t type, absl::Span<std::byte> bytes, Deadline deadline);
  // Sends small payloads to every other rank and receives theirs; of(r) is memory for rank r's.
  template <typename Memory>
  absl::Status SwapSmall(uint16_t type, absl::Span<const std::byte> own, const Memory& of,
                         Deadline deadline);
  // Exchanges with every other rank: outgoing(r) goes to rank r, incoming(r) comes from it.
  template <typename Outgoing, typename Incoming>
  absl::Status SwapInPairs(uint16_t type, const Outgoing& outgoing, const Incoming& incoming,
                           Deadline deadline);

  const std::vector<std::shared_ptr<Link>> links_;
  const GroupOptions options_;
  std::vector<float> scratch_;
};

absl::Status SocketGroup::Receive(int peer, uint16_t type, absl::Span<std::byte> bytes,
                                  Deadline deadline) {
  const absl::StatusOr<int64_t> received =
      links_[peer]->Receive(type, bytes, SecondsUntil(deadline));
  if (!received.ok()) return received.status();
  if (static_cast<size_t>(*received) == bytes.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("rank ", peer, " sent ", *received, " bytes, rank ",
                                              rank(), " expects ", bytes.size()));
}

template <typename Memory>
absl::Status SocketGroup::SwapSmall(uint16_t type, absl::Span<const std::byte> own,
                                    const Memory& of, Deadline deadline) {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (absl::Status status = Send(r, type, own, deadline); !status.ok()) return status;
  }
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (absl::Status status = Receive(r, type, of(r), deadline); !status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename Outgoing, typename Incoming>
absl::Status SocketGroup::SwapInPairs(uint16_t type, const Outgoing& outgoing,
                                      const Incoming& incoming, Deadline deadline) {
  for (int round = 0; round < TournamentRounds(size()); ++round) {
    const int peer = TournamentPartner(rank(), size(), round);
    if (peer < 0) continue;
    const bool sends_first = rank() < peer;
    absl::Status status = sends_first ? Send(peer, type, outgoing(peer), deadline)
                                      : Receive(peer, type, incoming(peer), deadline);
    if (!status.ok()) return status;
    status = sends_first ? Receive(peer, type, incoming(peer), deadline)
                         : Send(peer, type, outgoing(peer), deadline);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SocketGroup::SumNow(absl::Span<float> values) {
  const Deadline deadline = DeadlineAfter(options_.timeout_seconds);
  if (ReadOnly(values).size() <= kOneExchangeBytes) return SumInOneExchange(values, deadline);
  for (size_t begin = 0; begin < values.size(); begin += kChunkValues) {
    absl::Status status = SumBySlices(values.subspan(begin, kChunkValues), deadline);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SocketGroup::SumInOneExchange(absl::Span<float> values, Deadline deadline) {
  const auto place = [&](int r) { return absl::MakeSpan(scratch_).subspan(r * values.size()); };
  absl::Status status = SwapSmall(
      kReduceFrame, ReadOnly(values),
      [&](int r) { return Writable(place(r).first(values.size())); }, deadline);
  if (!status.ok()) return status;
  std::array<const float*, kMaxGroupSize> contributions;
  for (int r = 0; r < size(); ++r) {
    contributions[r] = r == rank() ? values.data() : place(r).data();
  }
  SumInRankOrder({contributions.data(), static_cast<size_t>(size())},
                 static_cast<int64_t>(values.size()), values.data());
  return absl::OkStatus();
}

absl::Status SocketGroup::SumBySlices(absl::Span<float> values, Deadline deadline) {
  const auto count = static_cast<int64_t>(values.size());
  const auto slice = [&](int r) {
    const int64_t begin = count * r / size();
    return values.subspan(begin, count * (r + 1) / size() - begin);
  };
  const absl::Span<float> own = slice(rank());
  const auto place = [&](int r) {
    return absl::MakeSpan(scratch_).subspan(r * own.size(), own.size());
  };
  absl::Status status = SwapInPairs(
      kReduceFrame, [&](int r) { return ReadOnly(slice(r)); },
      [&](int r) { return Writable(place(r)); }, deadline);
  if (!status.ok()) return status;
  std::array<const float*, kMaxGroupSize> contributions;
  for (int r = 0; r < size(); ++r) {
    contributions[r] = r == rank() ? own.data() : place(r).data();
  }
  SumInRankOrder({contributions.data(), static_cast<size_t>(size())},
                 static_cast<int64_t>(own.size()), own.data());
  return SwapInPairs(
      kSumFrame, [&](int) { return ReadOnly(own); }, [&](int r) { return Writable(slice(r)); },
      deadline);
}

absl::Status SocketGroup::BroadcastNow(absl::Span<std::byte> bytes, int root) {
  const Deadline deadline = DeadlineAfter(options_.timeout_seconds);
  if (root != rank()) return Receive(root, kBroadcastFrame, bytes, deadline);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (absl::Status status = Send(r, kBroadcastFrame, bytes, deadline); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status SocketGroup::GatherNow(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                                    int root) {
  const Deadline deadline = DeadlineAfter(options_.timeout_seconds);
  if (root == kEveryRank) return GatherEverywhere(in, out, deadline);
  if (root == rank()) return GatherAtRoot(in, out, deadline);
  return Send(root, kGatherFrame, in, deadline);
}

absl::Status SocketGroup::GatherAtRoot(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                                       Deadline deadline) {
  size_t offset = 0;
  for (int r = 0; r < size(); ++r) {
    absl::StatusOr<int64_t> bytes = static_cast<int64_t>(in.size());
    if (r != rank()) {
      bytes = links_[r]->Receive(kGatherFrame, out.subspan(offset), SecondsUntil(deadline));
      if (!bytes.ok()) return bytes.status();
    } else if (in.size() <= out.size() - offset && !in.empty()) {
      std::memcpy(out.data() + offset, in.data(), in.size());
    }
    offset += static_cast<size_t>(*bytes);
    if (offset > out.size()) break;
  }
  if (offset == out.size()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("gather: the ranks have ", offset, " bytes, rank ", rank(), " expects ", out.size()));
}

absl::Status SocketGroup::GatherEverywhere(absl::Span<const std::byte> in,
                                           absl::Span<std::byte> out, Deadline deadline) {
  std::array<uint64_t, kMaxGroupSize> sizes = {};
  sizes[rank()] = in.size();
  const auto size_of = [&](int r) {
    return absl::Span<std::byte>(reinterpret_cast<std::byte*>(&sizes[r]), sizeof sizes[r]);
  };
  absl::Status status = SwapSmall(kGatherFrame, size_of(rank()), size_of, deadline);
  if (!status.ok()) return status;
  std::array<size_t, kMaxGroupSize + 1> offsets = {};
  for (int r = 0; r < size(); ++r) {
    // Nothing is added up that could overflow.
    if (sizes[r] > out.size() - offsets[r]) {
      return absl::FailedPreconditionError(StrCat("gather: ranks 0 to ", r, " have more than the ",
                                                  out.size(), " bytes that rank ", rank(),
                                                  " expects"));
    }
    offsets[r + 1] = offsets[r] + sizes[r];
  }
  if (offsets[size()] != out.size()) {
    return absl::FailedPreconditionError(StrCat("gather: the ranks have ", offsets[size()],
                                                " bytes, rank ", rank(), " expects ", out.size()));
  }
  if (!in.empty()) std::memcpy(out.data() + offsets[rank()], in.data(), in.size());
  return SwapInPairs(
      kGatherFrame, [&](int) { return in; },
      [&](int r) { return out.subspan(offsets[r], sizes[r]); }, deadline);
}

void SocketGroup::WakeAll(const absl::Status& reason) {
  for (const auto& link : links_) {
    if (link != nullptr) link->Shutdown(reason);
  }
}

}  // namespace

int TournamentRounds(int size) { return size % 2 == 0 ? size - 1 : size; }

// The circle method: one player keeps its seat, the others move on by one seat a round. With an odd
// number of ranks the seat that stays is empty.
int TournamentPartner(int rank, int size, int round) {
  const int seats = size % 2 == 0 ? size : size + 1;
  const int moving = seats - 1;
  const auto opposite = [&](int r) { return ((round - r) % moving + moving) % moving; };
  int partner = seats - 1;
  if (rank == seats - 1) {
    for (int r = 0; r < moving; ++r) {
      if (opposite(r) == r) partner = r;
    }
  } else if (opposite(rank) != rank) {
    partner = opposite(rank);
  }
  return partner < size ? partner : -1;
}

absl::StatusOr<std::unique_ptr<Group>> CreateSocketGroup(int rank,
                                                         std::vector<std::shared_ptr<Link>> links,
                                                         const GroupOptions& options) {
  if (absl::Status status = CheckGroupLinks(rank, links); !status.ok()) return status;
  return std::make_unique<SocketGroup>(rank, std::move(links), options);
}

}  // namespace tessera::kernels
