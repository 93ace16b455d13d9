// Few rows: a block sums some columns. Its warps share the depth, their lanes read 16 bytes of
// weights each at a time (8 of int4), so that weights pass once, at full width, and many loads are
// under way. Inputs come from the caches.
#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/linear/half_pairs.h"
#include "kernels/cuda/linear/linear_kernels.h"
#include "kernels/cuda/linear/store_sum.h"
#include "kernels/cuda/plain/code_types.h"
#include "kernels/cuda/platform.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Where the inputs of the weights that a lane loads from place k on stand, the first and the i-th:
// those of 16-bit weights beside each other. Codes (device/weight_rows.h) are half a window of 32
// inputs: of each 8, the first or the last 4.
template <bool codes>
__device__ __forceinline__ int FirstInput(int k) {
  return codes ? k / 32 * 32 + k % 32 / 4 : k;
}
template <bool codes>
__device__ __forceinline__ constexpr int InputOffset(int i) {
  return codes ? i / 4 * 8 + i % 4 : i;
}

// Those inputs of a row, zeros beyond the depth. `whole`: there are all, and rows begin at
// multiples of 16 bytes.
template <typename T, bool codes, bool whole, int count>
__device__ __forceinline__ void LoadInputs(const T* row, int k, int depth, float* out) {
  const int first = FirstInput<codes>(k);
  if constexpr (whole) {
    if constexpr (codes && sizeof(T) == 2) {
#pragma unroll
      for (int i = 0; i < count; i += 4) {
        const uint2 two = *reinterpret_cast<const uint2*>(row + first + InputOffset<codes>(i));
        float eight[8];
        Unpack<T>({two.x, two.y, 0, 0}, eight);
#pragma unroll
        for (int j = 0; j < 4; ++j) out[i + j] = eight[j];
      }
    } else {
      constexpr int kOfVector = 16 / sizeof(T);
#pragma unroll
      for (int i = 0; i < count; i += kOfVector) {
        const T* at = row + first + InputOffset<codes>(i);
        Unpack<T>(*reinterpret_cast<const uint4*>(at), out + i);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int at = first + InputOffset<codes>(i);
      out[i] = at < depth ? AsFloat(row[at]) : 0.0f;
    }
  }
}

// Sums of `count` values over the lanes of a warp, in the order of a tree. Lanes hand half of their
// values over while they have more than one: values[0] is then that of the value whose number this
// returns, on all lanes that share it.
template <int count>
__device__ __forceinline__ int SumOverLanes(float (&values)[count], int lane) {
  int left = count, first = 0;
#pragma unroll
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const bool upper = (lane & mask) != 0;
    if (left > 1) {
      left /= 2;
#pragma unroll
      for (int i = 0; i < count / 2; ++i) {
        if (i >= left) break;
        const float given = upper ? values[i] : values[i + left];
        const float kept = upper ? values[i + left] : values[i];
        values[i] = kept + __shfl_xor_sync(kAllLanes, given, mask);
      }
      first += upper ? left : 0;
    } else {
      values[0] += __shfl_xor_sync(kAllLanes, values[0], mask);
    }
  }
  return first;
}

template <typename W>
constexpr bool kHasOffsets = std::is_same_v<W, OffsetNibbles>;

// What is known of a group's scale: its scale, its word, or pair and steps.
struct GroupWord {
  uint32_t word = 0, steps = kOneStep;
};

// What a lane loads at once of a row's weights, and its factors in the order of LoadInputs. Weights
// pass once: the first-level cache is for inputs.
template <typename W>
struct Chunk {
  static constexpr int kWeights = 8, kBits = 16;
  static constexpr bool kCodes = false, kTotals = false;
  uint4 packed;

  __device__ __forceinline__ void Load(const char* row, int k) {
    packed = __ldcg(reinterpret_cast<const uint4*>(row + k * sizeof(W)));
  }
  __device__ __forceinline__ void Read(float* out) const { Unpack<W>(packed, out); }
};

template <>
struct Chunk<int8_t> {
  static constexpr int kWeights = 16, kBits = 8;
  static constexpr bool kCodes = true, kTotals = false;
  uint4 packed;

  __device__ __forceinline__ void Load(const char* row, int k) {
    packed = __ldcg(reinterpret_cast<const uint4*>(row + k));
  }
  __device__ __forceinline__ void Read(float* out) const {
    const uint32_t words[4] = {packed.x ^ 0x80808080u, packed.y ^ 0x80808080u,
                               packed.z ^ 0x80808080u, packed.w ^ 0x80808080u};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      out[i] = BiasedAsFloat(words[PlaceOf(i) / 4], PlaceOf(i) % 4);
    }
  }
  static __device__ __forceinline__ constexpr int PlaceOf(int i) {
    return i % 4 / 2 * 8 + i / 4 * 2 + i % 2;
  }
  static __device__ __forceinline__ float AddScaled(float sum, float part, float,
                                                    const GroupWord& group) {
    return sum + part * __uint_as_float(group.word);
  }
};

template <>
struct Chunk<Float8> : Chunk<int8_t> {
  // Over kCodeUnit.
  __device__ __forceinline__ void Read(float* out) const {
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      out[i] = AsFloat(CodeAsHalf(words[PlaceOf(i) / 4] >> 8 * (PlaceOf(i) % 4)));
    }
  }
  static __device__ __forceinline__ float AddScaled(float sum, float part, float,
                                                    const GroupWord& group) {
    return sum + part * (__uint_as_float(group.word) * kCodeUnit<Float8>);
  }
};

template <>
struct Chunk<Nibbles> {
  static constexpr int kWeights = 16, kBits = 4;
  static constexpr bool kCodes = true, kTotals = true;
  uint2 packed;

  __device__ __forceinline__ void Load(const char* row, int k) {
    packed = __ldcg(reinterpret_cast<const uint2*>(row + k / 2));
  }
  // The codes times InputScale's inverse: a code stays where it is in its word, or 12 bits lower,
  // and 2^23 with it has it among its lowest bits.
  __device__ __forceinline__ void Read(float* out) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t codes = i % 4 < 2 ? packed.x : packed.y;
      const uint32_t moved = BitsOf(i) < kMantissaBits - 3 ? codes : codes >> kMoved;
      const uint32_t mask = 0xfu << PlaceOf(i);
      out[i] = __uint_as_float(MaskAndOr(moved, mask, 0x4b000000u)) - 8388608.0f;
    }
  }
  // What the inputs are multiplied by, exactly.
  static __device__ __forceinline__ constexpr float InputScale(int i) {
    return 1.0f / static_cast<float>(1 << PlaceOf(i));
  }
  static __device__ __forceinline__ float AddScaled(float sum, float part, float total,
                                                    const GroupWord& group) {
    part -= static_cast<float>(group.word & kNibbleZeroBits) * total;
    return sum + part * NibbleScale(group.word);
  }

 private:
  static constexpr int kMantissaBits = 23, kMoved = 12;
  static __device__ __forceinline__ constexpr int BitsOf(int i) { return i / 4 * 4 + i % 2 * 16; }
  static __device__ __forceinline__ constexpr int PlaceOf(int i) {
    return BitsOf(i) < kMantissaBits - 3 ? BitsOf(i) : BitsOf(i) - kMoved;
  }
};

template <>
struct Chunk<E2m1> : Chunk<Nibbles> {
  static constexpr bool kTotals = false;

  // Over kCodeUnit; in the order of int4.
  __device__ __forceinline__ void Read(float* out) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t codes = i % 4 < 2 ? packed.x : packed.y;
      out[i] = AsFloat(E2m1AsHalf(codes >> (i / 4 * 4 + i % 2 * 16)));
    }
  }
  static __device__ __forceinline__ float AddScaled(float sum, float part, float,
                                                    const GroupWord& group) {
    return sum + part * (__uint_as_float(group.word) * kCodeUnit<E2m1>);
  }
};

template <>
struct Chunk<OffsetNibbles> : Chunk<Nibbles> {
  static __device__ __forceinline__ float AddScaled(float sum, float part, float total,
                                                    const GroupWord& group) {
    const ScaleOffset by = MultiplyPair(group.word, group.steps);
    return (sum + by.offset * total) + part * by.scale;
  }
};

struct ExpertRows {
  int64_t expert, begin, end;
};

// The expert that is number `index` of those with rows, all heads are; beyond the last one, or
// where it has too many: no rows. Without experts: all rows. By all lanes of a warp.
template <bool kCodes>
__device__ __forceinline__ ExpertRows FindExpert(const LinearParams& p, int index, int lane) {
  if (!kCodes && p.head_rows > 0) {
    return {index, int64_t{index} * p.head_rows, int64_t{index + 1} * p.head_rows};
  }
  if (p.expert_offsets == nullptr) return {0, 0, p.rows};
  for (int64_t first = 0; first < p.experts; first += kWarpThreads) {
    const bool there = first + lane < p.experts;
    const int begin = there ? p.expert_offsets[first + lane] : 0;
    const int end = there ? p.expert_offsets[first + lane + 1] : 0;
    const uint32_t some = __ballot_sync(kAllLanes, begin < end);
    const bool wanted = begin < end && __popc(some & ((1u << lane) - 1)) == index;
    const uint32_t found = __ballot_sync(kAllLanes, wanted);
    if (found != 0) {
      const int from = __ffs(static_cast<int>(found)) - 1;
      const int rows = __shfl_sync(kAllLanes, end - begin, from);
      if (p.max_expert_rows > 0 && rows > p.max_expert_rows) return {0, 0, 0};
      return {first + from, __shfl_sync(kAllLanes, begin, from), __shfl_sync(kAllLanes, end, from)};
    }
    index -= __popc(some);
  }
  return {0, 0, 0};
}

// Blocks that a multiprocessor should hold, which bounds registers.
constexpr int MinBlocks(int rows, int weight_bits, bool offsets) {
  if (rows >= 4) return weight_bits == 16 ? 3 : 2;
  return (rows == 1 ? 5 : 4) - (weight_bits == 4 ? 1 : 0) - (offsets ? 1 : 0);
}

// Codes of some columns: what a lane loads at once, with the words of their groups.
template <typename W, int kColumns>
struct Loaded {
  Chunk<W> chunks[kColumns];
  GroupWord groups[kColumns];
};

// What a lane sums: kRows rows and kColumns columns, of every so many weights.
template <typename T, typename W, int kRows>
struct LaneSums {
  static constexpr int kChunk = Chunk<W>::kWeights, kColumns = GemvColumns(kRows, Chunk<W>::kBits);
  static constexpr bool kCodes = Chunk<W>::kCodes, kTotals = Chunk<W>::kTotals;
  // Whether the next weights are under way while some are summed: few rows leave registers for it.
  static constexpr bool kAhead = kRows <= 2;
  static constexpr int kStep = kGemvWarps * kWarpThreads * kChunk;

  const char* weights;           // of the first column
  uint32_t to_column[kColumns];  // bytes from there
  int places;                    // of weights in a row; codes stand in whole windows
  const T* rows[kRows];
  float sums[kRows * kColumns];

  // The inputs of row `r`; returns their sum where zeros or offsets need it.
  template <bool whole>
  __device__ __forceinline__ float Read(int r, int k, int depth, float* inputs) const {
    LoadInputs<T, kCodes, whole, kChunk>(rows[r], k, depth, inputs);
    float total = 0;
    if constexpr (kTotals) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        total += inputs[i];
        inputs[i] *= Chunk<W>::InputScale(i);
      }
    }
    return total;
  }

  // From place k on; nothing beyond the last place.
  __device__ __forceinline__ void Load(const LinearParams& p, int k,
                                       Loaded<W, kColumns>& loaded) const {
    if (k >= places) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) loaded.chunks[c].Load(weights + to_column[c], k);
    if constexpr (kCodes) {
      const uint32_t group = static_cast<uint32_t>(k) / static_cast<uint32_t>(p.group_size);
      uint32_t word = group;
      if constexpr (kHasOffsets<W>) {
        word = static_cast<uint32_t>(p.blocks.skipped + k) / static_cast<uint32_t>(p.blocks.size);
      }
      const char* const first = weights + p.scales_offset_bytes + word * sizeof(uint32_t);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        loaded.groups[c].word = *reinterpret_cast<const uint32_t*>(first + to_column[c]);
        if constexpr (kHasOffsets<W>) {
          loaded.groups[c].steps = StepsAt(weights + to_column[c], p.steps_offset_bytes, group);
        }
      }
    }
  }

  // What is held in registers: the inputs of all rows, or the factors of all columns.
  template <bool whole>
  __device__ __forceinline__ void Add(const Loaded<W, kColumns>& loaded, int k, int depth) {
    constexpr int kRowsHeld = kAhead ? kRows : 1, kColumnsHeld = kAhead ? 1 : kColumns;
    float inputs[kRowsHeld][kChunk], totals[kRowsHeld], factors[kColumnsHeld][kChunk];
#pragma unroll
    for (int outer = 0; outer < (kAhead ? kRows : kColumns); ++outer) {
      if constexpr (kAhead) {
        totals[outer] = Read<whole>(outer, k, depth, inputs[outer]);
      } else {
        loaded.chunks[outer].Read(factors[outer]);
      }
    }
#pragma unroll
    for (int outer = 0; outer < (kAhead ? kColumns : kRows); ++outer) {
      if constexpr (kAhead) {
        loaded.chunks[outer].Read(factors[0]);
      } else {
        totals[0] = Read<whole>(outer, k, depth, inputs[0]);
      }
#pragma unroll
      for (int inner = 0; inner < (kAhead ? kRows : kColumns); ++inner) {
        const int r = kAhead ? inner : outer, c = kAhead ? outer : inner;
        const int held_row = kAhead ? inner : 0, held_column = kAhead ? 0 : inner;
        float& sum = sums[r * kColumns + c];
        float part = kCodes ? 0.0f : sum;
#pragma unroll
        for (int i = 0; i < kChunk; ++i) part += inputs[held_row][i] * factors[held_column][i];
        if constexpr (kCodes) {
          part = Chunk<W>::AddScaled(sum, part, totals[held_row], loaded.groups[c]);
        }
        sum = part;
      }
    }
  }

  // `loaded`: of the thread's first place. Where registers are left for it, the next step is under
  // way while one is summed.
  template <bool whole>
  __device__ __forceinline__ void AddAll(const LinearParams& p, int thread,
                                         Loaded<W, kColumns> loaded) {
    const auto depth = static_cast<int>(p.depth);
#pragma unroll 1
    for (int k = thread * kChunk; k < places; k += kStep) {
      if constexpr (kAhead) {
        Loaded<W, kColumns> ahead = loaded;
        Load(p, k + kStep, ahead);
        Add<whole>(loaded, k, depth);
        loaded = ahead;
      } else {
        Load(p, k, loaded);
        Add<whole>(loaded, k, depth);
      }
    }
  }
};

// A value of all warps, one after the other.
template <int kValues>
__device__ __forceinline__ float SumOfWarps(const float* warp_sums, int value) {
  float sum = warp_sums[value];
  for (int w = 1; w < kGemvWarps; ++w) sum += warp_sums[w * kValues + value];
  return sum;
}

// Stores a gate times what it belongs to; nothing where the column is beyond the gates.
__device__ __forceinline__ void StoreGated(const LinearParams& p, int64_t row, int64_t column,
                                           float gate, float up) {
  if (column >= p.columns / 2) return;
  if (p.bias != nullptr) {
    gate += p.bias[column];
    up += p.bias[p.columns / 2 + column];
  }
  static_cast<float*>(p.out)[row * p.out_stride + column] = gate / (1.0f + expf(-gate)) * up;
}

template <typename T, typename W, int kRows>
__global__ void __launch_bounds__(kWarpThreads* kGemvWarps,
                                  MinBlocks(kRows, Chunk<W>::kBits, kHasOffsets<W>))
    GemvKernel(LinearParams p) {
  using Sums = LaneSums<T, W, kRows>;
  constexpr int kColumns = Sums::kColumns, kValues = kRows * kColumns;
  TESSERA_SHARED(float, warp_sums, kGemvWarps* kValues);
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int thread = warp * kWarpThreads + lane;
  // A block of a gate has half of its columns there, and those that belong to them.
  const int own_columns = p.silu_gate ? kColumns / 2 : kColumns;
  const int64_t of_half = p.silu_gate ? p.columns / 2 : p.columns;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * own_columns;
  if (p.expert_offsets != nullptr) WaitForEarlierLaunches();
  const ExpertRows range = FindExpert<Sums::kCodes>(p, static_cast<int>(blockIdx.y), lane);
  if (range.begin >= range.end) return;  // the whole block
  Sums lane_sums;
  lane_sums.weights = static_cast<const char*>(p.weights) + range.expert * p.expert_bytes +
                      first_column * p.weight_row_bytes;
  for (int c = 0; c < kColumns; ++c) {
    const bool second = c >= own_columns;
    const int64_t in_half = second ? c - own_columns : c;
    const int64_t column = min(in_half, of_half - 1 - first_column);  // beyond: not written
    const int64_t begin = second ? of_half : 0;
    lane_sums.to_column[c] = static_cast<uint32_t>((begin + column) * p.weight_row_bytes);
  }
  constexpr int kPlaces = Chunk<W>::kCodes ? 32 : 1;
  lane_sums.places = (static_cast<int>(p.depth) + kPlaces - 1) / kPlaces * kPlaces;
  Loaded<W, kColumns> loaded = {};
  if constexpr (Sums::kAhead) lane_sums.Load(p, thread * Sums::kChunk, loaded);
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
  const bool whole = p.depth % 32 == 0 && p.in_stride * sizeof(T) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(p.in) % 16 == 0;
  for (int64_t first_row = range.begin; first_row < range.end; first_row += kRows) {
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = min(first_row + r, range.end - 1);  // beyond: not written
      const int64_t source =
          p.source_rows == nullptr ? RowPlace<Sums::kCodes>(p, row) : p.source_rows[row];
      lane_sums.rows[r] = static_cast<const T*>(p.in) + source * p.in_stride;
    }
    for (float& sum : lane_sums.sums) sum = 0;
    if (whole) {
      lane_sums.template AddAll<true>(p, thread, loaded);
    } else {
      lane_sums.template AddAll<false>(p, thread, loaded);
    }
    const int value = SumOverLanes(lane_sums.sums, lane);
    if (lane % (kWarpThreads / kValues) == 0) {
      warp_sums[warp * kValues + value] = lane_sums.sums[0];
    }
    __syncthreads();
    if (thread < kValues && thread % kColumns < own_columns) {
      const float sum = SumOfWarps<kValues>(warp_sums, thread);
      const int64_t row = first_row + thread / kColumns;
      const int64_t column = first_column + thread % kColumns;
      if (row < range.end && !p.silu_gate) StoreSum(p, RowPlace<Sums::kCodes>(p, row), column, sum);
      if (row < range.end && p.silu_gate) {
        StoreGated(p, row, column, sum, SumOfWarps<kValues>(warp_sums, thread + own_columns));
      }
    }
    __syncthreads();  // before the sums of the next rows
  }
}

template <typename T, typename W>
cudaError_t LaunchRows(const LinearParams& p, cudaStream_t stream) {
  const int rows = GemvRowsAtOnce(p.rows, p.experts, p.weight_dtype);
  LaunchShape shape = GemvShape(p.rows, p.columns, p.experts, p.weight_dtype);
  if (p.silu_gate) {
    const int half = GemvColumns(rows, WeightBits(p.weight_dtype)) / 2;
    shape.blocks.x = (p.columns / 2 + half - 1) / half;
  }
  switch (rows) {
    case 1: return LaunchEarly(GemvKernel<T, W, 1>, shape, stream, p);
    case 2: return LaunchEarly(GemvKernel<T, W, 2>, shape, stream, p);
    default:
      if constexpr (Chunk<W>::kCodes)
        return cudaErrorInvalidValue;
      else
        return LaunchEarly(GemvKernel<T, W, 4>, shape, stream, p);
  }
}

template <typename T>
cudaError_t LaunchCodes(const LinearParams& p, cudaStream_t stream) {
  return WithCodeType(p, [&](auto codes) { return LaunchRows<T, decltype(codes)>(p, stream); });
}

// Inputs of 16 bits meet weights of the same type, or codes.
template <typename T>
cudaError_t LaunchHalf(const LinearParams& p, DType type, cudaStream_t stream) {
  return p.weight_dtype == type ? LaunchRows<T, T>(p, stream) : LaunchCodes<T>(p, stream);
}

cudaError_t LaunchFloat(const LinearParams& p, cudaStream_t stream) {
  switch (p.weight_dtype) {
    case DType::kBF16: return LaunchRows<float, BFloat16>(p, stream);
    case DType::kF16: return LaunchRows<float, Float16>(p, stream);
    default: return LaunchCodes<float>(p, stream);
  }
}

}  // namespace

cudaError_t LaunchGemv(const LinearParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.columns == 0) return cudaSuccess;
  const bool aligned = reinterpret_cast<uintptr_t>(params.weights) % 16 == 0 &&
                       params.weight_row_bytes % 16 == 0 && params.expert_bytes % 16 == 0;
  const bool gates = !params.silu_gate || (params.columns % 2 == 0 && params.experts == 1 &&
                                           params.out_dtype == DType::kF32);
  if (!aligned || !gates) return cudaErrorInvalidValue;
  switch (params.in_dtype) {
    case DType::kF32: return LaunchFloat(params, stream);
    case DType::kBF16: return LaunchHalf<BFloat16>(params, DType::kBF16, stream);
    case DType::kF16: return LaunchHalf<Float16>(params, DType::kF16, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
