#include "proto/layers/kv_sizes.h"

#include <algorithm>

#include "proto/layers/layer_sizes.h"
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
                          int64_t element_bytes, int64_t block_tokens, bool windows_apart) {
  KvBlockBytes bytes;
  for (int64_t layer = share.layers().begin(); layer < share.layers().end(); ++layer) {
    const v1::LayerKind& kind = KindOf(model, layer);
    const int64_t elements =
        KvElementsPerToken(ShapeOf(model, kind), PartOf(ShareOf(model, share, layer)));
    const bool apart = windows_apart && kind.attention().window() > 0;
    (apart ? bytes.window : bytes.common) += elements * block_tokens * element_bytes;
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
  return sequences * WindowBlocksPerSequence(limits) + BlocksFor(limits.max_step_tokens, limits);
}

KvBlocks CutKv(int64_t bytes, const KvBlockBytes& block, const KvLimits& limits) {
  const int64_t longest = BlocksFor(limits.max_sequence_tokens, limits);
  const int64_t typical =
      std::min(longest, BlocksFor(kTypicalWindows * limits.window_tokens, limits));
  const auto left = [&](int64_t sequences) {
    return bytes - WindowBlocksFor(sequences, limits) * block.window;
  };
  if (left(1) < std::max<int64_t>(1, block.common)) return 0;
  int64_t sequences = limits.max_sequences;
  while (sequences > 1 && left(sequences) < std::max(longest, sequences * typical) * block.common) {
    --sequences;
  }
  // Without bytes of their own, common blocks are ids alone: as many as can be of use.
  const int64_t common = block.common > 0 ? left(sequences) / block.common : sequences * longest;
  return {common, WindowBlocksFor(sequences, limits)};
}

int64_t MaxUsefulKvBytes(const KvBlockBytes& block, const KvLimits& limits) {
  return limits.max_sequences * BlocksFor(limits.max_sequence_tokens, limits) * block.common +
         WindowBlocksFor(limits.max_sequences, limits) * block.window;
}

int64_t SequenceKvBytes(int64_t tokens, const KvBlockBytes& block, const KvLimits& limits) {
  const int64_t blocks = BlocksFor(tokens, limits);
  return blocks * block.common + std::min(blocks, WindowBlocksPerSequence(limits)) * block.window;
}

}  // namespace tessera
