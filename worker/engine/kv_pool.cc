#include "worker/engine/kv_pool.h"

#include <algorithm>
#include <limits>

#include "kernels/dtype.h"

namespace tessera::worker {

KvLimits KvLimitsOf(const v1::Model& model, const EngineOptions& options) {
  return {.block_tokens = options.limits.block_tokens,
          .window_tokens = LongestWindow(model),
          .max_sequence_tokens = options.max_model_len_tokens,
          .max_sequences = options.limits.max_sequences,
          .max_step_tokens = options.limits.max_batched_tokens};
}

bool KeepsWindowsApart(const v1::ConfigureRequest& request, const EngineOptions& options) {
  return request.peers_size() <= 1 && request.role() != v1::REPLICA_ROLE_PREFILL &&
         request.role() != v1::REPLICA_ROLE_DECODE &&
         MaySaveWindows(KvLimitsOf(request.model(), options));
}

KvBlockBytes PoolBlockBytes(const Model& loaded, const ModelOptions& model,
                            const EngineOptions& options) {
  const int64_t block_tokens = options.limits.block_tokens;
  if (options.window.tokens == 0) return {.common = loaded.KvBlockBytes(block_tokens)};
  return BlockBytesOf(model.model, model.share, kernels::SizeInBytes(model.kv_dtype), block_tokens,
                      /*windows_apart=*/true);
}

int64_t KvPoolBytes(int64_t left_bytes, const KvBlockBytes& block, const KvLimits& limits,
                    bool takes_rest) {
  return std::min(std::max<int64_t>(0, left_bytes) / (takes_rest ? 1 : 2),
                  MaxUsefulKvBytes(block, limits));
}

KvBlocks CutPool(int64_t bytes, const KvBlockBytes& block, const KvLimits& limits) {
  KvBlocks cut = 0;
  if (block.window > 0) cut = CutKv(bytes, block, limits);
  if (cut.window == 0) cut.common = bytes / (block.common + block.window);
  const int64_t most = std::numeric_limits<int32_t>::max() / limits.block_tokens;
  cut.common = std::min(cut.common, most);
  return cut;
}

}  // namespace tessera::worker
