#include "worker/engine/kv_pool.h"

#include <algorithm>
#include <limits>

#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"
#include "worker/model/model_dtypes.h"

namespace tessera::worker {

KvLimits KvLimitsOf(const v1::Model& model, const EngineOptions& options) {
  return {.block_tokens = options.limits.block_tokens,
          .window_tokens = LongestWindow(model),
          .max_sequence_tokens = options.max_model_len_tokens,
          .max_sequences = options.limits.max_sequences,
          .max_step_tokens = options.limits.max_batched_tokens};
}

bool KeepsWindowsApart(const v1::Model& model, const EngineOptions& options) {
  return MaySaveWindows(KvLimitsOf(model, options));
}

KvBlockBytes PoolBlockBytes(const Model& loaded, const ModelOptions& model,
                            const EngineOptions& options) {
  const int64_t block_tokens = options.limits.block_tokens;
  const bool apart = options.window.tokens > 0;
  KvBlockBytes bytes =
      BlockBytesOf(model.model, model.share, KvElementOf(model.kv_dtype), block_tokens, apart);
  if (!apart) bytes.common = loaded.KvBlockBytes(block_tokens);
  return bytes;
}

int64_t KvPoolBytes(int64_t left_bytes, const KvBlockBytes& block, const KvLimits& limits,
                    bool takes_rest) {
  return std::min(std::max<int64_t>(0, left_bytes) / (takes_rest ? 1 : 2),
                  MaxUsefulKvBytes(block, limits));
}

KvBlocks CutPool(int64_t bytes, const KvBlockBytes& block, const KvLimits& limits,
                 bool windows_apart) {
  KvBlocks cut = 0;
  if (block.window > 0 || block.seat > 0) {
    cut = CutKv(bytes, block, limits);
  } else {
    cut.common = bytes / block.common;
    if (windows_apart) cut.window = MaxUsefulWindowBlocks(limits);
  }
  const int64_t most = std::numeric_limits<int32_t>::max() / limits.block_tokens;
  cut.common = std::min(cut.common, most);
  return cut;
}

}  // namespace tessera::worker
