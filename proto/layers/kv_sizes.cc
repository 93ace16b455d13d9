#include "proto/layers/kv_sizes.h"

#include <algorithm>

#include "proto/layers/layers.h"

namespace tessera {
namespace {

int64_t BlocksFor(int64_t tokens, const KvLimits& limits) {
  return (tokens + limits.block_tokens - 1) / limits.block_tokens;
}

int64_t WindowBlocksPerSequence(const KvLimits& limits) {
  return std::min(WindowBlocksOf(limits.window_tokens, limits.block_tokens),
                  BlocksFor(limits.max_sequence_tokens, limits));
}

}  // namespace

int64_t LongestWindow(const v1::Model& model) {
  int64_t longest = 0;
  for (const v1::LayerKind& kind : model.kinds()) {
    longest = std::max<int64_t>(longest, kind.attention().window());
  }
  return longest;
}

KvBlockBytes BlockBytesOf(const v1::Model& model, const v1::WorkerShare& share,
                          const KvElement& element, int64_t block_tokens, bool windows_apart) {
  KvBlockBytes bytes;
  if (HoldsDraftHead(model, share)) {
    bytes.common = BlockBytesOf(DraftHeadModel(model), DraftHeadShare(share), element, block_tokens,
                                /*windows_apart=*/false)
                       .common;
  }
  if (HoldsDraftModel(model, share)) {
    const v1::Model& draft = model.draft_model().model();
    bytes.common += BlockBytesOf(draft, WholeModelShare(draft), element, block_tokens,
                                 /*windows_apart=*/false)
                        .common;
  }
  for (int64_t layer = share.layers().begin(); layer < share.layers().end(); ++layer) {
    const v1::LayerKind& kind = KindOf(model, layer);
    const LayerShape shape = ShapeOf(model, kind);
    const LayerPart part = PartOf(ShareOf(model, share, layer));
    bytes.seat += StateElements(shape, part) * kStateElementBytes;
    const bool apart = windows_apart && kind.attention().window() > 0;
    (apart ? bytes.window : bytes.common) += KvBytesPerToken(shape, part, element) * block_tokens;
  }
  return bytes;
}

bool MaySaveWindows(const KvLimits& limits) {
  return limits.window_tokens > 0 && limits.window_tokens < limits.max_sequence_tokens;
}

int64_t WindowBlocksOf(int64_t window_tokens, int64_t block_tokens) {
  return (window_tokens + block_tokens - 2) / block_tokens + 2;
}

int64_t WindowBlocksFor(int64_t sequences, const KvLimits& limits) {
  if (limits.window_tokens == 0) return 0;
  return sequences * WindowBlocksPerSequence(limits) + BlocksFor(limits.max_step_tokens, limits);
}

int64_t MaxUsefulWindowBlocks(const KvLimits& limits) {
  if (limits.window_tokens == 0) return 0;
  return WindowBlocksFor(limits.max_sequences + kKeptWindows, limits);
}

int64_t BytesOf(const KvBlocks& blocks, const KvBlockBytes& block) {
  return blocks.common * block.common + blocks.window * block.window + blocks.seats * block.seat;
}

KvBlocks CutKv(int64_t bytes, const KvBlockBytes& block, const KvLimits& limits) {
  const int64_t longest = BlocksFor(limits.max_sequence_tokens, limits);
  const int64_t typical_tokens =
      limits.window_tokens > 0 ? kTypicalWindows * limits.window_tokens : kTypicalTokens;
  const int64_t typical = std::min(longest, BlocksFor(typical_tokens, limits));
  const auto left = [&](int64_t sequences, int64_t kept_windows = 0) {
    return bytes - WindowBlocksFor(sequences + kept_windows, limits) * block.window -
           sequences * block.seat;
  };
  if (left(1) < std::max<int64_t>(0, block.common)) {
    const int64_t each = block.seat > 0 ? 0 : bytes / (block.common + block.window);
    return {each, each};
  }
  // A pool that has no room for the longest sequence anyway is cut for many shorter ones.
  const int64_t least = left(1) >= longest * block.common ? longest : 1;
  int64_t sequences = limits.max_sequences;
  const auto wanted = [&](int64_t count) {
    return std::max(least, count * typical) * block.common;
  };
  while (sequences > 1 && left(sequences) < wanted(sequences)) --sequences;
  const int64_t kept = left(sequences, kKeptWindows) >= wanted(sequences) ? kKeptWindows : 0;
  // Without bytes of their own, common blocks are ids alone: as many as can be of use.
  const int64_t common =
      block.common > 0 ? left(sequences, kept) / block.common : sequences * longest;
  return {common, block.window > 0 ? WindowBlocksFor(sequences + kept, limits) : 0,
          block.seat > 0 ? sequences : 0};
}

int64_t MaxUsefulKvBytes(const KvBlockBytes& block, const KvLimits& limits) {
  return limits.max_sequences * BlocksFor(limits.max_sequence_tokens, limits) * block.common +
         MaxUsefulWindowBlocks(limits) * block.window + limits.max_sequences * block.seat;
}

int64_t SequenceKvBytes(int64_t tokens, const KvBlockBytes& block, const KvLimits& limits) {
  const int64_t blocks = BlocksFor(tokens, limits);
  return blocks * block.common + std::min(blocks, WindowBlocksPerSequence(limits)) * block.window +
         block.seat;
}

}  // namespace tessera
