// Attention over a bf16 cache with AMX tiles, over a Tiles type of kernels/cpu/amx_tiles.h. Queries
// and softmax weights are rounded to bf16, as in attention_dot.cc.
//
// Scores are computed as [key][row]: keys are a left operand as the cache has them, and the queries
// of 16 rows, turned once per item, the right one. So a register holds one key's scores of 16 rows
// and nothing is summed or compared across lanes. The second product must have its weights or its
// values turned. Of few rows the weights are: to [row][key], the left operand, whose right one are
// values put in pairs of keys. Of many rows the values are, once for all: to [dimension][key], the
// left operand, whose right one are the weights as they come; sums are [dimension][row] then. Both
// add the same products in the same order, and leave the dimensions of 32 in an order that Finish
// mends.
#pragma once

#include <utility>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/simd/prefetch.h"
#include "kernels/cpu/simd/tile_softmax.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

using cpu::kTilePairs;
static_assert(kProductPairs == kTilePairs && kGroupRows == cpu::kTileRows);

constexpr int kTileWords = 16 * 16;  // of 4 bytes
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kSumsBytes = 256 << 10;  // of an item
constexpr int kDimensionsTogether = 4;     // tiles of sums, of 16 dimensions each

// A Math of attention_run.h over tiles.
template <typename Tiles>
class TileMath {
 public:
  using Cache = BFloat16;
  static constexpr int64_t kRowGroup = kGroupRows;
  static constexpr int64_t kRowMultiple = kBlockElements;

  static constexpr int64_t PaddedWidth(int64_t head_dim) {
    return RoundUp(head_dim, kBlockElements);
  }
  // Values are turned once for all, and sums should stay in the second cache.
  static constexpr int64_t MaxItemRows(int64_t width) {
    return Larger(1, kSumsBytes / static_cast<int64_t>(sizeof(float)) / width / kMaxQueryRows) *
           kMaxQueryRows;
  }
  static int64_t Floats(int64_t width) {
    return MaxItemRows(width) * width / 2 + kGroupRows * kTileKeys / 2 + kTileKeys * width / 2;
  }

  // Tiles are the thread's for as long as this lives.
  TileMath(float* scratch, int64_t head_dim, int64_t stride)
      : head_dim_(head_dim),
        stride_(stride),
        width_(PaddedWidth(head_dim)),
        q_(reinterpret_cast<uint32_t*>(scratch)),
        weights_(q_ + MaxItemRows(width_) * width_ / 2),
        turned_(weights_ + kGroupRows * kTileKeys / 2) {
    cpu::TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = cpu::kTileRows;
      config.row_bytes[tile] = kTileRowBytes;
    }
    Tiles::Configure(config);
  }
  ~TileMath() { Tiles::Release(); }
  TileMath(const TileMath&) = delete;
  TileMath& operator=(const TileMath&) = delete;

  template <typename T>
  void PutQuery(int64_t r, const T* query) {
    for (int64_t d = 0; d < width_; d += kBlockElements) {
      auto* elements = reinterpret_cast<BFloat16*>(QueryRow(r, d));
      for (int64_t i = 0; i < kBlockElements; i += kLanes) {
        const int64_t left = head_dim_ - d - i;
        Store(elements + i, left > 0 ? LoadUpTo(query + d + i, Smaller(kLanes, left)) : Zero());
      }
      largest_query_ = LargestOf(largest_query_, _mm512_load_si512(elements));
    }
    if (r % kGroupRows == kGroupRows - 1) TurnQueries(r);
  }
  void PutNoQuery(int64_t r) {
    for (int64_t d = 0; d < width_; d += kBlockElements) {
      _mm512_store_si512(QueryRow(r, d), _mm512_setzero_si512());
    }
    if (r % kGroupRows == kGroupRows - 1) TurnQueries(r);
  }

  void LookAhead(const TilePlaces<BFloat16>* places, bool) {
    asked_.Begin(places[1], places[2], stride_);
  }
  void PutTile(const TilePlaces<BFloat16>& places, int64_t count) {
    places_ = places;
    count_ = count;
  }

  template <typename SeenOf>
  void Attend(int64_t rows, float scale, const SeenOf& seen_of, bool all_seen, float* scores,
              const RowState& state, float* corrections) {
    if (ValuesTurned(rows)) {
      AttendRows<true>(rows, scale, seen_of, all_seen, scores, state, corrections);
    } else {
      AttendRows<false>(rows, scale, seen_of, all_seen, scores, state, corrections);
    }
  }

  void FoldInto(const RowState& later, int64_t rows, const RowState& sofar) const {
    if (!ValuesTurned(rows)) return Fold(later, rows, width_, sofar);
    for (int64_t r = 0; r < rows; r += kGroupRows) {
      const Shares shares = FoldTotals(later, r, sofar);
      for (int64_t i = r * width_; i < (r + kGroupRows) * width_; i += kLanes) {
        const Vec before = Load(sofar.sums + i);
        const Vec sum = Fma(before, shares.kept, Mul(Load(later.sums + i), shares.taken));
        Store(sofar.sums + i, Select(shares.empty, before, sum));
      }
    }
  }

  void Finish(int64_t rows, float* sums) const {
    if (ValuesTurned(rows)) {
      for (int64_t r = 0; r < rows; r += kGroupRows) TurnSums(sums + r * width_);
    }
    for (int64_t r = 0; r < rows; ++r) OrderDimensions(sums + r * width_, width_);
  }

 private:
  static constexpr int64_t kColumnWords = kTileKeys / 2 * kLanes;  // of 16 dimensions of values
  enum Tile : int { kSums = 0, kLeft = 4, kRight = 5 };  // four of sums, then the operands

  // Where 32 dimensions of a row stand until its group is complete.
  uint32_t* QueryRow(int64_t row, int64_t d) const {
    const int64_t tile = (row / kGroupRows * width_ + d) / kBlockElements;
    return q_ + tile * kTileWords + row % kGroupRows * kTilePairs;
  }
  // The group that ends with `row`: [row][pair] to [pair][row].
  void TurnQueries(int64_t row) {
    for (int64_t d = 0; d < width_; d += kBlockElements) {
      uint32_t* tile = QueryRow(row - kGroupRows + 1, d);
      __m512i x[kTilePairs];
      for (int64_t i = 0; i < kTilePairs; ++i) x[i] = _mm512_load_si512(tile + i * kLanes);
      cpu::Transpose(x);
      for (int64_t i = 0; i < kTilePairs; ++i) _mm512_store_si512(tile + i * kLanes, x[i]);
    }
  }

  static bool ValuesTurned(int64_t rows) { return rows > kMaxQueryRows; }

  // Whether a group of rows in order sees any key of the tile.
  template <typename SeenOf>
  static bool SeesAny(const SeenOf& seen_of, int64_t r) {
    return seen_of(r + kGroupRows - 1).second > 0 && seen_of(r).first < kTileKeys;
  }

  // The magnitudes of bf16 are in the order of their bits.
  static __m512i LargestOf(__m512i largest, __m512i elements) {
    return _mm512_max_epu16(largest, _mm512_and_si512(elements, _mm512_set1_epi16(0x7fff)));
  }
  static float AsFloat(__m512i largest) {
    const __m256i half =
        _mm256_max_epu16(_mm512_castsi512_si256(largest), _mm512_extracti64x4_epi64(largest, 1));
    const __m128i quarter =
        _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    // _mm_minpos_epu16 finds the least.
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
    const uint32_t bits = static_cast<uint32_t>(~_mm_cvtsi128_si32(least) & 0xffff) << 16;
    return __builtin_bit_cast(float, bits);
  }
  // Whether all scores of this tile, and those before it, are moderate numbers.
  bool Bounded(float scale) {
    const float largest = AsFloat(largest_query_) * AsFloat(largest_key_);
    constexpr float kMaxSteps = 1 << 28;
    bounded_ &= largest * static_cast<float>(width_) * scale * kStepsOfOne < kMaxSteps;
    return bounded_;
  }

  // Lines of the next tile are asked for as few rows are computed, by the first group; before each
  // of many.
  template <bool kValuesTurned, typename SeenOf>
  void AttendRows(int64_t rows, float scale, const SeenOf& seen_of, bool all_seen, float* scores,
                  const RowState& state, float* corrections) {
    TurnValues<kValuesTurned>();
    // Few rows would wait for keys that are read before their time: their references may move.
    const bool bounded = kValuesTurned && Bounded(scale);
    const int64_t lines = 2 * kTileKeys * stride_ / kLineElements;
    // All of a group before the next, so that what it needs stays in the first cache; every other
    // tile from the last on, whose sums are there still.
    const int64_t last = (rows - 1) / kGroupRows * kGroupRows;
    if constexpr (kValuesTurned) backward_ = !backward_;
    for (int64_t i = 0; i < rows; i += kGroupRows) {
      const int64_t r = backward_ ? last - i : i;
      if constexpr (kValuesTurned) asked_.AskUpTo(CeilDivide(lines * kGroupRows, rows));
      if (r > 0 && !all_seen && !SeesAny(seen_of, r)) continue;
      const GroupSums group = {state.maxima + r, state.totals + r, corrections};
      const auto attend = [&](const auto& seen, auto asks) {
        AttendGroup<kValuesTurned, decltype(asks)::value>(q_ + r * width_ / 2, scale, bounded, seen,
                                                          scores, group, state.sums + r * width_);
      };
      const auto attend_seen = [&](const auto& seen) {
        if (r == 0 && !kValuesTurned) {
          attend(seen, std::bool_constant<!kValuesTurned>());
        } else {
          attend(seen, std::false_type());
        }
      };
      // No lane is left out of most tiles. The bits are the same.
      if (all_seen) {
        attend_seen([](int) { return FirstLanes(kLanes); });
      } else {
        attend_seen(SeenByRow(seen_of, r));
      }
    }
  }

  template <bool kValuesTurned, bool kAsk, typename Seen>
  void AttendGroup(const uint32_t* q, float scale, bool bounded, const Seen& seen, float* scores,
                   const GroupSums& group, float* sums) {
    ScoreGroup<kAsk>(q, scores);
    const auto ask = [this](int) {
      for (int64_t i = 0; kAsk && i < stride_; i += kBlockElements) asked_.template Ask<1>();
    };
    const bool moved =
        SoftmaxOfGroup<!kValuesTurned>(scores, scale, bounded, seen, ask, weights_, group);
    if constexpr (kValuesTurned) {
      if (moved) CorrectColumns(group.corrections, sums);
      WeighTurned(sums);
    } else {
      if (moved) Correct(group.corrections, sums);
      WeighGroup<kAsk>(sums);
    }
  }

  // Products without the scale, [key][row].
  template <bool kAsk>
  void ScoreGroup(const uint32_t* q, float* scores) {
    const int64_t runs = CeilDivide(count_, kRunKeys);
    if (runs == kTileRuns) {
      ScoreRuns<kTileRuns, kAsk>(q, places_.keys, scores);
    } else {
      for (int64_t run = 0; run < runs; ++run) {
        ScoreRuns<1, false>(q, places_.keys + run, scores + run * kTileWords);
      }
    }
  }

  template <int kRuns, bool kAsk>
  void ScoreRuns(const uint32_t* q, const BFloat16* const* runs, float* scores) {
    [&]<int... kRun>(std::integer_sequence<int, kRun...>) {
      (Tiles::template Zero<kSums + kRun>(), ...);
      for (int64_t d = 0; d < width_; d += kBlockElements, q += kTileWords) {
        Tiles::template Load<kRight>(q, kTileRowBytes);
        ((kAsk ? asked_.template Ask<8>() : (void)0,
          Tiles::template Load<kRight + 1 + kRun % 2>(runs[kRun] + d, stride_ * 2),
          Tiles::template Dot<kSums + kRun, kRight + 1 + kRun % 2, kRight>()),
         ...);
      }
      (Tiles::template Store<kSums + kRun>(scores + kRun * kTileWords, kTileRowBytes), ...);
    }
    (std::make_integer_sequence<int, kRuns>());
  }

  // To right operands [16 dimensions][pair of keys][dimension][2], or left ones
  // [16 dimensions][32 keys][dimension][pair of keys][2]; zeros where a product reaches beyond the
  // keys. Meanwhile the keys are brought near: loads of tiles wait longer for the second cache than
  // what else there is to do takes.
  template <bool kTurned>
  void TurnValues() {
    const int64_t pairs = CeilDivide(count_, 2);
    largest_key_ = _mm512_setzero_si512();
    for (int64_t first = 0; first < pairs; first += kTilePairs) {
      const int64_t count = Smaller(kTilePairs, pairs - first);
      if constexpr (kTurned) {
        for (int64_t d = 0; d < width_; d += kBlockElements) TurnBlocks(first, count, d);
      } else {
        for (int64_t i = 0; i < kTilePairs; ++i) PutPair(first + i, i < count);
      }
    }
  }

  // Reads some pairs of keys, 32 dimensions from d on.
  void ReadKeys(int64_t first, int64_t count, int64_t d) {
    __m512i largest = largest_key_;
    for (int64_t pair = first; pair < first + count; ++pair) {
      const BFloat16* key = KeyOf(pair, d);
      largest = LargestOf(largest, _mm512_loadu_si512(key));
      largest = LargestOf(largest, _mm512_loadu_si512(key + stride_));
    }
    largest_key_ = largest;
  }

  const BFloat16* KeyOf(int64_t pair, int64_t d) const {
    return places_.keys[pair / kRunPairs] + pair % kRunPairs * 2 * stride_ + d;
  }
  const BFloat16* ValueOf(int64_t pair, int64_t d) const {
    return places_.values[pair / kRunPairs] + pair % kRunPairs * 2 * stride_ + d;
  }

  // A pair of values, or none.
  void PutPair(int64_t pair, bool any) {
    uint32_t* out = turned_ + pair * kLanes;
    for (int64_t d = 0; d < width_; d += kBlockElements, out += 2 * kColumnWords) {
      __m512i x[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      if (any) {
        asked_.template Ask<1>();
        const BFloat16 *key = KeyOf(pair, d), *value = ValueOf(pair, d);
        AskNear(key);
        AskNear(key + stride_);
        TurnPair(_mm512_loadu_si512(value), _mm512_loadu_si512(value + stride_), x);
      }
      _mm512_store_si512(out, x[0]);
      _mm512_store_si512(out + kColumnWords, x[1]);
    }
  }

  void TurnBlocks(int64_t first, int64_t count, int64_t d) {
    ReadKeys(first, count, d);
    uint32_t* out = turned_ + d / kLanes * kColumnWords + first * kLanes;
    TurnBlock(
        first, count, d, [](auto x, auto y) { return _mm512_unpacklo_epi16(x, y); }, out);
    TurnBlock(
        first, count, d, [](auto x, auto y) { return _mm512_unpackhi_epi16(x, y); },
        out + kColumnWords);
  }

  template <typename Unpack>
  void TurnBlock(int64_t first, int64_t count, int64_t d, const Unpack& unpack,
                 uint32_t* out) const {
    __m512i x[kTilePairs];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTilePairs; ++i) {
      const BFloat16* value = ValueOf(first + Smaller(i, count - 1), d);
      const __m512i pair = unpack(_mm512_loadu_si512(value), _mm512_loadu_si512(value + stride_));
      x[i] = i < count ? pair : _mm512_setzero_si512();
    }
    cpu::Transpose(x);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTilePairs; ++i) _mm512_store_si512(out + i * kLanes, x[i]);
  }

  // Sums [dimension][row] of a group to [row][dimension].
  void TurnSums(float* sums) const {
    auto* columns = reinterpret_cast<float*>(turned_);  // of no tile any more
    __builtin_memcpy(columns, sums, kGroupRows * width_ * sizeof(float));
    for (int64_t d = 0; d < width_; d += kLanes) {
      __m512i x[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) x[i] = _mm512_load_si512(columns + (d + i) * kGroupRows);
      cpu::Transpose(x);
      for (int64_t r = 0; r < kGroupRows; ++r) _mm512_store_si512(sums + r * width_ + d, x[r]);
    }
  }

  // Rows of sums times their corrections, most of which are 1.
  void Correct(const float* corrections, float* sums) const {
    const Vec all = Load(corrections);
    uint32_t changed = ~Bits(Equal(all, Set(1.0f))) & 0xffff;
    for (; changed != 0; changed &= changed - 1) {
      const int r = __builtin_ctz(changed);
      float* row = sums + r * width_;
      const Vec correction = Set(corrections[r]);
      for (int64_t d = 0; d < width_; d += kLanes) Store(row + d, Mul(Load(row + d), correction));
    }
  }

  // The same where rows are columns.
  void CorrectColumns(const float* corrections, float* sums) const {
    const Vec all = Load(corrections);
    for (int64_t i = 0; i < width_ * kGroupRows; i += kLanes)
      Store(sums + i, Mul(Load(sums + i), all));
  }

  template <bool kAsk>
  void WeighGroup(float* sums) {
    int64_t d = 0;
    for (; d + kDimensionsTogether * kLanes <= width_; d += kDimensionsTogether * kLanes) {
      WeighDimensions<kDimensionsTogether, kAsk>(d, sums + d);
    }
    if (d < width_) WeighDimensions<2, kAsk>(d, sums + d);
  }

  // kCount tiles of sums, from dimension d on.
  template <int kCount, bool kAsk>
  void WeighDimensions(int64_t d, float* sums) {
    const int64_t products = CeilDivide(count_, kProductKeys);
    const uint32_t* values = turned_ + d / kLanes * kColumnWords;
    [&]<int... kColumn>(std::integer_sequence<int, kColumn...>) {
      (Tiles::template Load<kSums + kColumn>(sums + kColumn * kLanes, width_ * 4), ...);
      for (int64_t i = 0; i < products; ++i) {
        Tiles::template Load<kLeft>(weights_ + i * kTileWords, kTileRowBytes);
        ((kAsk ? asked_.template Ask<8>() : (void)0,
          Tiles::template Load<kRight + kColumn % 3>(
              values + kColumn * kColumnWords + i * kTileWords, kTileRowBytes),
          Tiles::template Dot<kSums + kColumn, kLeft, kRight + kColumn % 3>()),
         ...);
      }
      (Tiles::template Store<kSums + kColumn>(sums + kColumn * kLanes, width_ * 4), ...);
    }
    (std::make_integer_sequence<int, kCount>());
  }

  void WeighTurned(float* sums) {
    int64_t d = 0;
    for (; d + kDimensionsTogether * kLanes <= width_; d += kDimensionsTogether * kLanes) {
      WeighTurnedDimensions<kDimensionsTogether>(d, sums + d * kGroupRows);
    }
    if (d < width_) WeighTurnedDimensions<2>(d, sums + d * kGroupRows);
  }

  template <int kCount>
  void WeighTurnedDimensions(int64_t d, float* sums) {
    const int64_t products = CeilDivide(count_, kProductKeys);
    const uint32_t* values = turned_ + d / kLanes * kColumnWords;
    [&]<int... kColumn>(std::integer_sequence<int, kColumn...>) {
      (Tiles::template Load<kSums + kColumn>(sums + kColumn * kTileWords, kTileRowBytes), ...);
      for (int64_t i = 0; i < products; ++i) {
        Tiles::template Load<kLeft>(weights_ + i * kTileWords, kTileRowBytes);
        ((Tiles::template Load<kRight + kColumn % 3>(
              values + kColumn * kColumnWords + i * kTileWords, kTileRowBytes),
          Tiles::template Dot<kSums + kColumn, kRight + kColumn % 3, kLeft>()),
         ...);
      }
      (Tiles::template Store<kSums + kColumn>(sums + kColumn * kTileWords, kTileRowBytes), ...);
    }
    (std::make_integer_sequence<int, kCount>());
  }

  const int64_t head_dim_, stride_, width_;
  uint32_t* const q_;            // [group][32 dimensions][pair][row]
  uint32_t* const weights_;      // of a group, [32 keys][row][pair]
  uint32_t* const turned_;       // values, as TurnValues says
  TilePlaces<BFloat16> places_;  // of this tile
  int64_t count_ = 0;
  __m512i largest_query_ = _mm512_setzero_si512();  // magnitudes
  __m512i largest_key_ = _mm512_setzero_si512();
  bool bounded_ = true;
  bool backward_ = false;  // groups are taken from the last to the first
  AskedLines asked_;
};

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
