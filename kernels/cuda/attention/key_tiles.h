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
  static constexpr bool kSwapped = kChunks % 8 == 0;

  __device__ static __forceinline__ int Offset(int row, int chunk) {
    if constexpr (kSwapped) chunk ^= row % 8;
    return row * kRowBytes + chunk * 16;
  }
  // Offset(rows16 * 16 + row, pair * 2 + chunk), from Offset(row, chunk) with row < 16, chunk < 2:
  // an operation for each pair where rows16 and pair are constants.
  __device__ static __forceinline__ int PairOffset(int of_lane, int rows16, int pair) {
    const int row = kSwapped ? of_lane ^ pair * 32 : of_lane + pair * 32;
    return row + rows16 * 16 * kRowBytes;
  }
};

// Keys and values of one sequence, of one kv head.
struct Pages {
  int kv_head;
  uint32_t table;  // where its block numbers begin among all
  int begin, end;  // keys that are read, one or more; the nearest stand for others

  // [slots, D]. Two pointers would take four registers.
  __device__ __forceinline__ const uint16_t* Cache(bool values, const AttentionParams& p) const {
    const void* const cache = values ? p.values : p.keys;
    const int64_t stride = values ? p.values_stride : p.keys_stride;
    return static_cast<const uint16_t*>(cache) + ComputedHere(kv_head) * stride;
  }

  __device__ __forceinline__ int Nearest(int key) const { return min(max(key, begin), end - 1); }
  __device__ __forceinline__ int BlockOf(int key, const TiledParams& p) const {
    return p.attention.block_tables[table + static_cast<uint32_t>(p.block_tokens.Of(key))];
  }
  __device__ __forceinline__ static int SlotOf(int key, int block, const TiledParams& p) {
    return key + (block - p.block_tokens.Of(key)) * p.block_tokens.number;
  }
};

// The tiles of keys and values by turns, each kKeys rows, loaded by kThreads threads: one warp, or
// the whole block. p.slots - 1 tiles are on their way while one is computed with.
//
// A few threads copy a row, up to 128 bytes of it at once. Each looks up the block of its rows when
// the tile before is on its way: copies do not wait for the block table. kPadded: rows of the cache
// have fewer than D elements, and end in zeros here.
template <int D, bool kPadded, int kKeys, int kThreads>
class TileRing {
 public:
  static constexpr int kTileBytes = kKeys * TileLayout<D>::kRowBytes;

  // Tile i begins with key (first + i * step) * kKeys. `memory`: p.slots * kTileBytes. All are
  // borrowed. Reads the block table alone.
  __device__ __forceinline__ TileRing(unsigned char* memory, const Pages& pages, int first,
                                      int step, int tiles, const TiledParams& p)
      : params_(p),
        memory_(memory),
        pages_(pages),
        next_key_(first * kKeys),
        key_step_(step * kKeys),
        loads_(2 * tiles) {
    LookUp();
  }

  // The first tiles are on their way. Once, by all threads of the ring.
  __device__ __forceinline__ void Begin() {
    for (int i = 1; i < params_.slots; ++i) Load();
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
  static constexpr int kChunks = TileLayout<D>::kChunks;
  // Threads of a row, and rows of a thread.
  static constexpr int kRowThreads = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;
  static constexpr int kRowsAtOnce = kThreads / kRowThreads;
  static constexpr int kRows = kKeys / kRowsAtOnce;
  static_assert(kChunks % kRowThreads == 0 && kKeys % kRowsAtOnce == 0);

  // The row of the thread, and its first chunk: what is computed from them takes no registers in
  // between.
  __device__ __forceinline__ static int FirstRow() {
    return ComputedHere(static_cast<int>(threadIdx.x)) % kThreads / kRowThreads;
  }
  __device__ __forceinline__ static int FirstChunk() {
    return ComputedHere(static_cast<int>(threadIdx.x)) % kRowThreads;
  }

  // Into the next slot. Behind the last tile it closes a group of no copies.
  __device__ __forceinline__ void Load() {
    if (loads_ > 0) {
      const bool values = loads_ % 2 != 0;
      if (!values) FindSlots();
      LoadTile(memory_ + slot_ * kTileBytes, pages_.Cache(values, params_.attention));
      if (values) {
        next_key_ += key_step_;
        LookUp();
      }
      --loads_;
    }
    slot_ = slot_ + 1 == params_.slots ? 0 : slot_ + 1;
    CommitCopies();
  }

  // The blocks of the tile that begins with next_key_.
  __device__ __forceinline__ void LookUp() {
    const int first_key = next_key_ + FirstRow();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      places_[i] = pages_.BlockOf(pages_.Nearest(first_key + i * kRowsAtOnce), params_);
    }
  }

  // From the blocks.
  __device__ __forceinline__ void FindSlots() {
    const int first_key = next_key_ + FirstRow();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int key = pages_.Nearest(first_key + i * kRowsAtOnce);
      places_[i] = pages_.SlotOf(key, places_[i], params_);
    }
  }

  __device__ __forceinline__ void LoadTile(unsigned char* tile, const uint16_t* cache) const {
    // A thread's chunks of a row, and its rows where places repeat, are as far apart in all
    // threads.
    constexpr int kChunkStep = kRowThreads * 16, kRowStep = kRowsAtOnce * TileLayout<D>::kRowBytes;
    static_assert(!TileLayout<D>::kSwapped || kRowThreads == 8);
    const int first_row = FirstRow(), first_chunk = FirstChunk();
    const auto* const from = reinterpret_cast<const unsigned char*>(cache) + first_chunk * 16;
    unsigned char* const to = tile + TileLayout<D>::Offset(first_row, first_chunk);
    const auto row_bytes = kPadded ? static_cast<int>(2 * params_.attention.head_dim) : 2 * D;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const unsigned char* const from_row = from + int64_t{places_[i]} * row_bytes;
      unsigned char* const to_row =
          kRowsAtOnce % 8 == 0 || !TileLayout<D>::kSwapped
              ? to + i * kRowStep
              : tile + TileLayout<D>::Offset(first_row + i * kRowsAtOnce, first_chunk);
#pragma unroll
      for (int j = 0; j < kChunks / kRowThreads; ++j) {
        if constexpr (kPadded) {
          const bool held = first_chunk * 16 + j * kChunkStep < row_bytes;
          CopyAsync16(to_row + j * kChunkStep, held ? from_row + j * kChunkStep : from, held);
        } else {
          CopyAsync16(to_row + j * kChunkStep, from_row + j * kChunkStep, true);
        }
      }
    }
  }

  const TiledParams& params_;
  unsigned char* const memory_;
  const Pages pages_;
  int next_key_;
  const int key_step_;
  int places_[kRows];  // blocks of the thread's rows at next_key_; from their keys on, slots
  int loads_;          // to come, of keys where even
  int slot_ = 0;       // of the next load, and until then of the tile that is read
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
