// Tiles of keys and values on their way from the paged cache through shared memory. For .cu files.
#pragma once

#include "kernels/cuda/attention/tiled_params.h"
#include "kernels/cuda/launch/attention_shapes.h"
#include "kernels/cuda/warp_ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Rows of D 16-bit elements in chunks of 16 bytes. Eight rows behind each other, of which the same
// chunk is read at once, lie in unlike banks: by the length of a row, or by the places of its
// chunks.
template <int D>
struct TileLayout {
  static constexpr int kChunks = D / 8;
  static constexpr int kRowBytes = TileRowBytes(D);

  __device__ static __forceinline__ int Offset(int row, int chunk) {
    if constexpr (kChunks % 8 == 0) chunk ^= row % 8;
    return row * kRowBytes + chunk * 16;
  }
};

// Keys and values of one sequence, of one kv head.
struct Pages {
  const uint16_t* keys;    // [slots, D]
  const uint16_t* values;  // [slots, D]
  const int32_t* table;    // block numbers
  int begin, end;          // keys that are read; zeros stand for others

  __device__ __forceinline__ int SlotOf(int key, const TiledParams& p) const {
    const int block_tokens = static_cast<int>(p.attention.block_tokens), shift = p.block_shift;
    if (shift >= 0) return (table[key >> shift] << shift) + (key & (block_tokens - 1));
    return table[key / block_tokens] * block_tokens + key % block_tokens;
  }
};

// The tiles of keys and values by turns, each kKeys rows, loaded by kThreads threads: one warp, or
// the whole block. p.slots - 1 tiles are on their way while one is computed with.
template <int D, int kKeys, int kThreads>
class TileRing {
 public:
  static constexpr int kTileBytes = kKeys * TileLayout<D>::kRowBytes;

  // Tile i begins with key (first + i * step) * kKeys. `memory`: p.slots * kTileBytes. All are
  // borrowed.
  __device__ __forceinline__ TileRing(unsigned char* memory, const Pages& pages, int first,
                                      int step, int tiles, const TiledParams& p)
      : params_(p),
        memory_(memory),
        pages_(pages),
        next_key_(first * kKeys),
        key_step_(step * kKeys),
        loads_(2 * tiles) {
    for (int i = 1; i < p.slots; ++i) Load();
  }

  // The keys of the first tile, its values, the keys of the second one, and so on. All threads of
  // the ring call it together; the tile stays until the next call.
  __device__ __forceinline__ const unsigned char* Next() {
    static_assert(kMinTileSlots == 2 && kMaxTileSlots == 4);
    if (params_.slots == 2) {
      WaitCopies<0>();
    } else if (params_.slots == 3) {
      WaitCopies<1>();
    } else {
      WaitCopies<2>();
    }
    // All have what they copied, and all are done with the tile that is overwritten now.
    if constexpr (kThreads == kWarpThreads) {
      __syncwarp();
    } else {
      __syncthreads();
    }
    Load();
    return memory_ + slot_ * kTileBytes;  // the oldest one
  }

 private:
  // Into the next slot. Behind the last tile it closes a group of no copies.
  __device__ __forceinline__ void Load() {
    if (loads_ > 0) {
      const bool values = loads_ % 2 != 0;
      LoadTile(memory_ + slot_ * kTileBytes, values ? pages_.values : pages_.keys);
      if (values) next_key_ += key_step_;
      --loads_;
    }
    slot_ = slot_ + 1 == params_.slots ? 0 : slot_ + 1;
    CommitCopies();
  }

  __device__ __forceinline__ void LoadTile(unsigned char* tile, const uint16_t* cache) const {
    constexpr int kChunks = TileLayout<D>::kChunks;
    static_assert(kKeys * kChunks % kThreads == 0);
    [[maybe_unused]] constexpr int kAtOnce = 512 / D;  // addresses; large heads leave few registers
#pragma unroll kAtOnce
    for (int i = 0; i < kKeys * kChunks / kThreads; ++i) {
      const int index = i * kThreads + static_cast<int>(threadIdx.x) % kThreads;
      const int row = index / kChunks, chunk = index % kChunks, key = next_key_ + row;
      const bool seen = key >= pages_.begin && key < pages_.end;
      const int64_t slot = seen ? pages_.SlotOf(key, params_) : 0;
      CopyAsync16(tile + TileLayout<D>::Offset(row, chunk), cache + slot * D + chunk * 8, seen);
    }
  }

  const TiledParams& params_;
  unsigned char* const memory_;
  const Pages pages_;
  int next_key_;
  const int key_step_;
  int loads_;     // to come, of keys where even
  int slot_ = 0;  // of the next load, and until then of the tile that is read
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
