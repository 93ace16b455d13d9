// Attention over a bf16 cache with AMX tiles, over a Tiles type of kernels/cpu/amx_tiles.h. Queries
// and softmax weights are rounded to bf16, as in attention_dot.cc.
//
// Scores are computed as [key][row]: keys are a left operand as the cache has them, and the queries
// of 16 rows, turned once per item, the right one. So a register holds one key's scores of 16 rows
// and nothing is summed or compared across lanes. The weights are then turned to [row][key], the
// left operand of the second product, whose right one are values put in pairs of keys; that leaves
// the dimensions of 32 in an order that Finish mends.
#pragma once

#include <utility>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/cpu/avx512_transpose.h"
#include "kernels/cpu/simd/attention_bf16.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

using cpu::kTilePairs;

constexpr int kTileWords = 16 * 16;  // of 4 bytes
constexpr int kGroupRows = 16;       // rows that share a register of scores
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kProductKeys = 2 * kTilePairs;  // of one product of weights and values
constexpr int kDimensionsTogether = 4;            // tiles of sums, of 16 dimensions each

// Which keys of a tile the rows of a group see: for each row those of [begin, end).
class SeenByRow {
 public:
  template <typename SeenOf>
  SeenByRow(const SeenOf& seen_of, int64_t first_row) {
    alignas(64) int32_t begin[kGroupRows], end[kGroupRows];
    for (int i = 0; i < kGroupRows; ++i) {
      const auto [from, to] = seen_of(first_row + i);
      begin[i] = static_cast<int32_t>(from);
      end[i] = static_cast<int32_t>(to);
    }
    begin_ = _mm512_load_si512(begin);
    end_ = _mm512_load_si512(end);
  }
  [[gnu::always_inline]] VecMask operator()(int key) const {
    const __m512i at = _mm512_set1_epi32(key);
    return _mm512_cmpge_epi32_mask(at, begin_) & _mm512_cmplt_epi32_mask(at, end_);
  }

 private:
  __m512i begin_, end_;
};

// Weights of a group's products with keys [key][row], times `scale`, as pairs of bf16
// [kProductKeys keys][row][pair], 0 where a row does not see a key; the rest as SoftmaxOf of
// attention_dot.cc does it.
template <typename Seen, typename Ask>
[[gnu::always_inline]] inline void SoftmaxOfGroup(const float* products, float scale,
                                                  const Seen& seen, const Ask& ask,
                                                  uint32_t* weights, float* maxima, float* totals,
                                                  float* corrections) {
  const Vec none = Set(-__builtin_inff());
  Vec largest[4] = {none, none, none, none};
  Vec sums[4] = {Zero(), Zero(), Zero(), Zero()};
#pragma GCC unroll 2
  for (int key = 0; key < kTileKeys; key += 4) {
    ask(key);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vec product = Load(products + (key + j) * kLanes);
      largest[j] = Max(largest[j], Select(seen(key + j), product, none));
      sums[j] = Add(sums[j], Select(seen(key + j), product, Zero()));
    }
  }
  const Vec of_tile = Max(Max(largest[0], largest[1]), Max(largest[2], largest[3]));
  const Vec before = Load(maxima);
  const Vec next = Max(Mul(of_tile, Set(scale)), before);
  // 0, or NaN where the sum is not finite.
  const Vec unsound = Mul(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])), Zero());
  const Vec correction =
      Add(Select(Equal(before, next), Set(1.0f), Exp(Sub(before, next))), unsound);
  Store(maxima, next);
  Store(corrections, correction);

  // Where nothing was seen yet every weight is 0, whatever is subtracted.
  const Vec steps_of_one = Set(1.44269504088896341f * kSteps);
  const Vec least = Select(Equal(next, none), Zero(), next);
  const Vec base = Sub(Set(kStepsToOne), Mul(least, steps_of_one));
  const Vec factor = Mul(steps_of_one, Set(scale));
  const PowersOfTwo powers;
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  Vec added[2] = {Zero(), Zero()};
  for (int first = 0; first < kTileKeys; first += kProductKeys) {
    const auto steps = [&](int key) {
      const Vec exact = Fma(Load(products + key * kLanes), factor, base);
      return _mm512_maskz_cvtps_epi32(seen(key), exact);
    };
    __m512i pairs[kTilePairs];
#pragma GCC unroll 16
    for (int i = 0; i < kTilePairs; i += 2) {
      const int key = first + 2 * i;
      ask(key);
      const __m512i even = powers.Of(steps(key), steps(key + 2));
      const __m512i odd = powers.Of(steps(key + 1), steps(key + 3));
      pairs[i] = _mm512_unpacklo_epi16(even, odd);
      pairs[i + 1] = _mm512_unpackhi_epi16(even, odd);
      added[0] = _mm512_dpbf16_ps(added[0], reinterpret_cast<__m512bh>(pairs[i]), ones);
      added[1] = _mm512_dpbf16_ps(added[1], reinterpret_cast<__m512bh>(pairs[i + 1]), ones);
    }
    cpu::Transpose(pairs);
#pragma GCC unroll 16
    for (int r = 0; r < kGroupRows; ++r) {
      _mm512_store_si512(weights + r * kTilePairs, pairs[r]);
    }
    weights += kTileWords;
  }
  Store(totals, Fma(Load(totals), correction, Add(added[0], added[1])));
}

// The lines of the next tile, values first, as they are computed. Each is asked for once, in the
// order of memory and evenly over all that a tile takes: memory is busy only while something is
// asked of it, and the processor reads ahead by itself only where lines follow one another at a
// steady pace. Runs are asked for from some lines on, up to those of the tile behind. (Of 33 GB/s
// that two cores read, asking by bursts left 18, evenly 24, some lines on 27.)
class AskedLines {
 public:
  void Begin(const TilePlaces<BFloat16>& next, const TilePlaces<BFloat16>& after, int64_t stride) {
    const int64_t lines = kRunKeys * stride / kLineElements;
    const auto put = [&](Part* to, const BFloat16* const* runs, const BFloat16* behind) {
      to[0] = {runs[0] + kLead * kLineElements, lines - kLead};
      for (int i = 1; i < kTileRuns; ++i) to[i] = {runs[i], lines};
      to[kTileRuns] = {behind, kLead};
    };
    put(parts_, next.values, after.values[0]);
    put(parts_ + kParts, next.keys, after.keys[0]);
    parts_[2 * kParts] = {after.keys[0], 0};
    part_ = parts_;
    Enter();
  }

  template <int kLines>
  [[gnu::always_inline]] void Ask() {
#pragma GCC unroll 8
    for (int i = 0; i < kLines; ++i) AskFor(place_ + i * kLineElements);
    place_ += kLines * kLineElements;
    left_ -= kLines;
    if (left_ == 0) {
      ++part_;
      Enter();
    }
  }

 private:
  static constexpr int64_t kLead = 8;
  static constexpr int kParts = kTileRuns + 1;  // of values, and of keys
  struct Part {
    const BFloat16* place;
    int64_t lines;
  };

  void Enter() {
    place_ = part_->place;
    left_ = part_->lines;
  }

  Part parts_[2 * kParts + 1];  // all that a tile asks for, and an end
  const Part* part_ = parts_;
  const BFloat16* place_ = nullptr;
  int64_t left_ = 0;
};

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
  static int64_t Floats(int64_t width) {
    return kMaxQueryRows * width / 2 + kGroupRows * kTileKeys / 2 + kTileKeys * width / 2;
  }

  // Tiles are the thread's for as long as this lives.
  TileMath(float* scratch, int64_t head_dim, int64_t stride)
      : head_dim_(head_dim),
        stride_(stride),
        width_(PaddedWidth(head_dim)),
        q_(reinterpret_cast<uint32_t*>(scratch)),
        weights_(q_ + kMaxQueryRows * width_ / 2),
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
    alignas(64) uint32_t pairs[kBlockElements / 2];
    auto* elements = reinterpret_cast<BFloat16*>(pairs);
    for (int64_t d = 0; d < width_; d += kBlockElements) {
      for (int64_t i = 0; i < kBlockElements; i += kLanes) {
        const int64_t left = head_dim_ - d - i;
        Store(elements + i, left > 0 ? LoadUpTo(query + d + i, Smaller(kLanes, left)) : Zero());
      }
      for (int64_t i = 0; i < kTilePairs; ++i) *QueryWord(r, d / 2 + i) = pairs[i];
    }
  }
  void PutNoQuery(int64_t r) {
    for (int64_t i = 0; i < width_ / 2; ++i) *QueryWord(r, i) = 0;
  }

  void LookAhead(const TilePlaces<BFloat16>* places, bool) {
    asked_.Begin(places[1], places[2], stride_);
  }
  void PutTile(const TilePlaces<BFloat16>& places, int64_t count) {
    places_ = places;
    count_ = count;
    TurnValues();
  }

  // All of a group before the next, so that what it needs stays in the first cache. Only the first
  // asks for lines ahead.
  template <typename SeenOf>
  void Attend(int64_t rows, float scale, const SeenOf& seen_of, bool all_seen, float* scores,
              const RowState& state, float* corrections) {
    const auto group = [&]<bool kAsk>(int64_t r, std::bool_constant<kAsk>) {
      ScoreGroup<kAsk>(q_ + r * width_ / 2, scores);
      const auto softmax = [&](const auto& seen) {
        SoftmaxOfGroup(
            scores, scale, seen,
            [this](int) {
              for (int64_t i = 0; kAsk && i < stride_; i += 32) asked_.template Ask<1>();
            },
            weights_, state.maxima + r, state.totals + r, corrections);
      };
      // No lane is left out of most tiles. The bits are the same.
      if (all_seen) {
        softmax([](int) { return FirstLanes(kLanes); });
      } else {
        softmax(SeenByRow(seen_of, r));
      }
      WeighGroup<kAsk>(corrections, state.sums + r * width_);
    };
    group(0, std::true_type());
    for (int64_t r = kGroupRows; r < rows; r += kGroupRows) group(r, std::false_type());
  }

  void Finish(float* row) const { OrderDimensions(row, width_); }

 private:
  enum Tile : int { kSums = 0, kLeft = 4, kRight = 5 };  // four of sums, then the operands

  uint32_t* QueryWord(int64_t row, int64_t word) const {
    const int64_t tile = row / kGroupRows * (width_ / kBlockElements) + word / kTilePairs;
    return q_ + tile * kTileWords + word % kTilePairs * kGroupRows + row % kGroupRows;
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

  // As right operands: [16 dimensions][pair of keys][dimension][2], zeros where a product reaches
  // beyond the keys. Meanwhile the keys are brought near: loads of tiles wait longer for the second
  // cache than what else there is to do takes.
  void TurnValues() {
    const int64_t pairs = CeilDivide(count_, 2);
    const int64_t width = width_;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t offset = pair % kRunPairs * 2 * stride_;
      const BFloat16* value = places_.values[pair / kRunPairs] + offset;
      const BFloat16* key = places_.keys[pair / kRunPairs] + offset;
      uint32_t* out = turned_ + pair * kLanes;
      for (int64_t d = 0; d < width; d += kBlockElements, out += kTileKeys * kLanes) {
        asked_.template Ask<1>();
        AskNear(key + d);
        AskNear(key + stride_ + d);
        __m512i x[2];
        TurnPair(_mm512_loadu_si512(value + d), _mm512_loadu_si512(value + stride_ + d), x);
        _mm512_store_si512(out, x[0]);
        _mm512_store_si512(out + kTileKeys / 2 * kLanes, x[1]);
      }
    }
    for (int64_t pair = pairs; pair < RoundUp(pairs, kTilePairs); ++pair) {
      uint32_t* out = turned_ + pair * kLanes;
      for (int64_t d = 0; d < width; d += kLanes, out += kTileKeys / 2 * kLanes) {
        _mm512_store_si512(out, _mm512_setzero_si512());
      }
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

  template <bool kAsk>
  void WeighGroup(const float* corrections, float* sums) {
    Correct(corrections, sums);
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
    constexpr int64_t kColumnWords = kTileKeys / 2 * kLanes;  // of 16 dimensions
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

  const int64_t head_dim_, stride_, width_;
  uint32_t* const q_;            // [group][32 dimensions][pair][row]
  uint32_t* const weights_;      // of a group, [32 keys][row][pair]
  uint32_t* const turned_;       // values, [16 dimensions][kTileKeys / 2][dimension]
  TilePlaces<BFloat16> places_;  // of this tile
  int64_t count_ = 0;
  AskedLines asked_;
};

}  // namespace
}  // namespace tessera::kernels::TESSERA_SIMD_PATH
