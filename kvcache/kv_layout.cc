#include "kvcache/kv_layout.h"

#include <algorithm>
#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::kvcache {
namespace {

bool Holds(const IndexRange& range, int64_t index) {
  return range.begin <= index && index < range.end;
}

// Where a range has to be cut so that each piece is inside or outside of every other one.
std::vector<int64_t> Cuts(const IndexRange& range, const std::vector<IndexRange>& others) {
  std::vector<int64_t> cuts = {range.begin, range.end};
  for (const IndexRange& other : others) {
    for (const int64_t cut : {other.begin, other.end}) {
      if (range.begin < cut && cut < range.end) cuts.push_back(cut);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

// Deals the pieces of one receiver after the other.
class Dealer {
 public:
  explicit Dealer(std::span<const KvShare> senders) : senders_(senders), sent_(senders.size(), 0) {}

  absl::Status Deal(int32_t receiver, const KvShare& wanted) {
    std::vector<IndexRange> layers;
    for (const KvShare& sender : senders_) layers.push_back(sender.layers);
    const std::vector<int64_t> cuts = Cuts(wanted.layers, layers);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const absl::Status dealt = DealLayers(receiver, {cuts[i], cuts[i + 1]}, wanted.kv_heads);
      if (!dealt.ok()) return dealt;
    }
    return absl::OkStatus();
  }

  std::vector<KvRoute> Take() { return std::move(routes_); }

 private:
  // Layers that each sender holds all or none of.
  absl::Status DealLayers(int32_t receiver, const IndexRange& layers, const IndexRange& heads) {
    std::vector<IndexRange> held;
    for (const KvShare& sender : senders_) {
      if (Holds(sender.layers, layers.begin)) held.push_back(sender.kv_heads);
    }
    const size_t first = routes_.size();
    const std::vector<int64_t> cuts = Cuts(heads, held);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const IndexRange piece = {cuts[i], cuts[i + 1]};
      const int32_t sender = LeastBusy(layers.begin, piece.begin);
      if (sender < 0) {
        return absl::InvalidArgumentError(
            StrCat("receiver ", receiver, " holds kv head ", piece.begin, " of layer ",
                   layers.begin, ", and none of the ", senders_.size(), " senders does"));
      }
      sent_[sender] += piece.size() * layers.size();
      if (routes_.size() > first && routes_.back().sender == sender) {
        routes_.back().kv_heads.end = piece.end;
      } else {
        routes_.push_back({sender, receiver, layers, piece});
      }
    }
    return absl::OkStatus();
  }

  int32_t LeastBusy(int64_t layer, int64_t head) const {
    int32_t best = -1;
    for (size_t i = 0; i < senders_.size(); ++i) {
      if (!Holds(senders_[i].layers, layer) || !Holds(senders_[i].kv_heads, head)) continue;
      if (best < 0 || sent_[i] < sent_[best]) best = static_cast<int32_t>(i);
    }
    return best;
  }

  const std::span<const KvShare> senders_;
  std::vector<int64_t> sent_;  // layers times heads, by sender
  std::vector<KvRoute> routes_;
};

absl::Status CheckShares(const char* side, std::span<const KvShare> shares) {
  for (size_t i = 0; i < shares.size(); ++i) {
    for (const IndexRange& range : {shares[i].layers, shares[i].kv_heads}) {
      if (range.begin >= 0 && range.begin < range.end) continue;
      return absl::InvalidArgumentError(
          StrCat(side, " ", i, " holds the empty range ", range.begin, " to ", range.end));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<KvRoute>> RouteKv(std::span<const KvShare> senders,
                                             std::span<const KvShare> receivers) {
  absl::Status status = CheckShares("sender", senders);
  if (status.ok()) status = CheckShares("receiver", receivers);
  Dealer dealer(senders);
  for (size_t i = 0; i < receivers.size() && status.ok(); ++i) {
    status = dealer.Deal(static_cast<int32_t>(i), receivers[i]);
  }
  if (!status.ok()) return status;
  return dealer.Take();
}

std::vector<SlotRun> SlotRuns(std::span<const int32_t> table, int64_t block_tokens, int64_t first,
                              int64_t end) {
  std::vector<SlotRun> runs;
  for (int64_t token = first; token < end;) {
    const int64_t in_block = token % block_tokens;
    const int64_t count = std::min(block_tokens - in_block, end - token);
    const int64_t slot = int64_t{table[token / block_tokens]} * block_tokens + in_block;
    if (!runs.empty() && runs.back().slot + runs.back().tokens == slot) {
      runs.back().tokens += count;
    } else {
      runs.push_back({slot, count});
    }
    token += count;
  }
  return runs;
}

int64_t KvPool::SlotsBefore(int32_t layer) const {
  const int64_t layers = layer - share.layers.begin;
  const int64_t apart =
      windowed.empty() ? 0 : std::count(windowed.begin(), windowed.begin() + layers, true);
  return int64_t{planes} * share.kv_heads.size() * block_tokens *
         ((layers - apart) * blocks + apart * window_blocks);
}

int64_t KvPool::bytes() const { return SlotsBefore(share.layers.end) * row_bytes(); }

std::byte* KvPool::At(int32_t layer, int plane, int32_t kv_head, int64_t slot) const {
  const int64_t heads = int64_t{plane} * share.kv_heads.size() + (kv_head - share.kv_heads.begin);
  return memory + (SlotsBefore(layer) + heads * SlotsOf(layer) + slot) * row_bytes();
}

}  // namespace tessera::kvcache
