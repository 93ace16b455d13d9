#include "kernels/cuda/launch/kv_shapes.h"

#include <algorithm>

#include "kernels/kv_wire.h"

namespace tessera::kernels::cuda {

LaunchShape KvUnitShape(int64_t units) {
  return {.blocks = {(units + kKvThreads - 1) / kKvThreads}, .threads = {kKvThreads}};
}

int64_t MaxKvGroupScales(int64_t head_dim) {
  return std::max(KvGroupScales(false, kKvGroup, head_dim),
                  KvGroupScales(true, kKvGroup, head_dim));
}

LaunchShape KvGroupShape(int64_t groups, int64_t head_dim) {
  return {.blocks = {groups},
          .threads = {kKvThreads},
          .shared_bytes = 2 * MaxKvGroupScales(head_dim) * int64_t{sizeof(float)}};
}

}  // namespace tessera::kernels::cuda
