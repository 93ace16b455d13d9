// Attention over a bf16 cache with AVX512_BF16: queries and softmax weights are rounded to bf16 and
// multiplied in pairs (vdpbf16ps: even and odd product added to an f32 sum; subnormals count as
// zero), twice as many a cycle as f32. Compiled with -mavx512{f,bw,dq,vl,bf16,vbmi}.
//
// Query rows are worked on eight at a time, two lanes to a row: one sums over the even words of
// four bytes, one over the odd ones. So a key's words are broadcast, two at a time, from where the
// cache has them, and no key is turned. Values are turned into [pair of keys][dimension], whose
// lanes lie as interleaving within 128-bit lanes leaves them; Finish puts a row's sums in order.
#include "kernels/cpu/simd/attention_bf16.h"
#include "kernels/cpu/simd/attention_products.h"
#include "kernels/cpu/simd/dot_paths.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

// A register of scores holds a group's rows for two keys, in lanes [row][key]. Twice puts a figure
// of each row beside both.
inline Vec Twice(__m256 rows) {
  const __m512i places = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(places, _mm512_castps256_ps512(rows));
}
inline __m256 Once(Vec both) {
  const __m512i places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
  return _mm512_castps512_ps256(_mm512_permutexvar_ps(places, both));
}
inline Vec OtherKey(Vec both) { return _mm512_permute_ps(both, 0xb1); }

// Which keys of a tile a group's rows see: for each row those of [begin, end).
struct SeenKeys {
  alignas(32) int32_t begin[kGroup], end[kGroup];

  VecMask OfPair(int pair) const {
    const auto twice = [](const int32_t* rows) {
      return _mm512_castps_si512(Twice(_mm256_load_ps(reinterpret_cast<const float*>(rows))));
    };
    const __m512i second = _mm512_set4_epi32(1, 0, 1, 0);
    const __m512i key = _mm512_add_epi32(_mm512_set1_epi32(2 * pair), second);
    return _mm512_cmpge_epi32_mask(key, twice(begin)) & _mm512_cmplt_epi32_mask(key, twice(end));
  }
};

// Weights of a group's products with keys, times `scale`, as pairs of bf16 [pair of keys][row], 0
// where a row does not see a key; moves the running maxima and totals (of the weights as rounded);
// corrections are what the sums so far must be multiplied with. A row that sees a product which is
// not finite gets NaN there: weights do not tell.
template <typename Seen>
[[gnu::always_inline]] inline void SoftmaxOf(const float* products, float scale, const Seen& seen,
                                             uint32_t* weights, float* maxima, float* totals,
                                             float* corrections) {
  constexpr int kPairs = kTileKeys / 2;
  const Vec none = Set(-__builtin_inff());
  Vec largest[4] = {none, none, none, none};
  Vec sums[4] = {Zero(), Zero(), Zero(), Zero()};
#pragma GCC unroll 2
  for (int i = 0; i < kPairs; i += 4) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vec product = Load(products + (i + j) * kLanes);
      largest[j] = Max(largest[j], Select(seen(i + j), product, none));
      sums[j] = Add(sums[j], Select(seen(i + j), product, Zero()));
    }
  }
  const Vec of_tile = Max(Max(largest[0], largest[1]), Max(largest[2], largest[3]));
  const Vec of_rows = Mul(Max(of_tile, OtherKey(of_tile)), Set(scale));
  const Vec before = Twice(_mm256_loadu_ps(maxima));
  const Vec next = Max(of_rows, before);
  // 0, or NaN where the sum is not finite.
  const Vec sum = Add(Add(sums[0], sums[1]), Add(sums[2], sums[3]));
  const Vec unsound = Mul(Add(sum, OtherKey(sum)), Zero());
  const Vec correction =
      Add(Select(Equal(before, next), Set(1.0f), Exp(Sub(before, next))), unsound);
  _mm256_storeu_ps(maxima, Once(next));
  _mm256_storeu_ps(corrections, Once(correction));

  // Where nothing was seen yet every weight is 0, whatever is subtracted.
  const Vec steps_of_one = Set(1.44269504088896341f * kSteps);
  const Vec least = Select(Equal(next, none), Zero(), next);
  const Vec base = Sub(Set(kStepsToOne), Mul(least, steps_of_one));
  const Vec factor = Mul(steps_of_one, Set(scale));
  const PowersOfTwo powers;
  // The powers come as [two rows][pair of keys][row].
  const __m512i places = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  Vec added = Zero();  // [odd or even pair of keys][row]
#pragma GCC unroll 2
  for (int i = 0; i < kPairs; i += 2) {
    const auto steps = [&](int pair) {
      const Vec exact = Fma(Load(products + pair * kLanes), factor, base);
      return _mm512_maskz_cvtps_epi32(seen(pair), exact);
    };
    const __m512i pairs = _mm512_permutexvar_epi32(places, powers.Of(steps(i), steps(i + 1)));
    _mm512_store_si512(weights + i * kGroup, pairs);
    added = _mm512_dpbf16_ps(added, reinterpret_cast<__m512bh>(pairs), ones);
  }
  const __m256 of_pairs =
      _mm256_add_ps(_mm512_castps512_ps256(added), _mm512_extractf32x8_ps(added, 1));
  const __m256 kept = _mm256_mul_ps(_mm256_loadu_ps(totals), Once(correction));
  _mm256_storeu_ps(totals, _mm256_add_ps(kept, of_pairs));
}

// A Math of attention_run.h over pairs of bf16.
class DotMath {
 public:
  using Cache = BFloat16;
  static constexpr int64_t kRowGroup = kGroup;
  static constexpr int64_t kRowMultiple = 2 * kWordsTogether;

  static constexpr int64_t PaddedWidth(int64_t head_dim) {
    return RoundUp(head_dim, kBlockElements);
  }
  static constexpr int64_t MaxItemRows(int64_t) { return kMaxQueryRows; }
  static int64_t Floats(int64_t width) {
    return kMaxQueryRows * (width / 2 + kTileKeys / 2) + kTileKeys * width / 2;
  }

  DotMath(float* scratch, int64_t head_dim, int64_t stride)
      : head_dim_(head_dim),
        stride_(stride),
        width_(PaddedWidth(head_dim)),
        query_words_(RoundUp(CeilDivide(head_dim, 2), kWordsTogether)),
        q_(reinterpret_cast<uint32_t*>(scratch)),
        weights_(q_ + kMaxQueryRows * width_ / 2),
        turned_(weights_ + kMaxQueryRows * kTileKeys / 2) {}

  template <typename T>
  void PutQuery(int64_t r, const T* query) {
    alignas(64) uint32_t pairs[kBlockElements / 2];
    auto* elements = reinterpret_cast<BFloat16*>(pairs);
    for (int64_t d = 0; d < head_dim_; d += kBlockElements) {
      for (int64_t i = 0; i < kBlockElements; i += kLanes) {
        const int64_t left = head_dim_ - d - i;
        Store(elements + i, left > 0 ? LoadUpTo(query + d + i, Smaller(kLanes, left)) : Zero());
      }
      for (int64_t i = 0; i < Smaller(kBlockElements / 2, query_words_ - d / 2); ++i) {
        *QueryWord(r, d / 2 + i) = pairs[i];
      }
    }
  }
  void PutNoQuery(int64_t r) {
    for (int64_t i = 0; i < query_words_; ++i) *QueryWord(r, i) = 0;
  }

  // A tile that nobody asked for is asked for its values while its keys are read.
  void LookAhead(const TilePlaces<BFloat16>* places, bool unasked) {
    while_scoring_ = {places[unasked ? 0 : 1], places[unasked ? 1 : 2]};
    while_weighing_ = {places[1], places[2]};
  }
  void PutTile(const TilePlaces<BFloat16>& places, int64_t count) {
    places_ = places;
    count_ = count;
  }

  template <typename SeenOf>
  void Attend(int64_t rows, float scale, const SeenOf& seen_of, bool all_seen, float* scores,
              const RowState& state, float* corrections) {
    for (int64_t first = 0; first < rows; first += kRowsTogether) {
      const int64_t count = Smaller(kRowsTogether, rows - first);
      Scores(first, count, scores);
      Softmax(first, count, scores, scale, seen_of, all_seen, state, corrections);
    }
    Weigh(rows, corrections, state.sums);
  }

  void FoldInto(const RowState& later, int64_t rows, const RowState& sofar) const {
    Fold(later, rows, width_, sofar);
  }
  void Finish(int64_t rows, float* sums) const {
    for (int64_t r = 0; r < rows; ++r) OrderDimensions(sums + r * width_, width_);
  }

 private:
  static constexpr int64_t kRowsTogether = 2 * kGroup;  // whose scores are kept at once

  // scores: products, without the scale, [group][pair of keys][lane].
  void Scores(int64_t first, int64_t rows, float* scores) {
    const uint32_t* q = q_ + first * query_words_;
    for (int64_t k = 0; k < count_;) {
      const BFloat16* keys = places_.keys[k / kRunKeys] + k % kRunKeys * stride_;
      const Ahead::Cursor asked = while_scoring_.At(k * stride_ / kLineElements, stride_);
      float* out = scores + k * kGroup;
      if (rows <= kGroup) {
        ScoreBlock<1, kRunKeys>(q, query_words_, keys, stride_, asked, out);
        k += kRunKeys;
      } else {
        ScoreBlock<2, kRunKeys / 2>(q, query_words_, keys, stride_, asked, out);
        k += kRunKeys / 2;
      }
    }
  }

  // The weights go to weights_.
  template <typename SeenOf>
  void Softmax(int64_t first, int64_t rows, const float* scores, float scale, const SeenOf& seen_of,
               bool all_seen, const RowState& state, float* corrections) {
    for (int64_t r = first; r < first + rows; r += kGroup, scores += kTileKeys * kGroup) {
      uint32_t* weights = weights_ + r * kTileKeys / 2;
      // No lane is left out of most tiles. The bits are the same.
      if (all_seen) {
        SoftmaxOf(
            scores, scale, [](int) { return FirstLanes(kLanes); }, weights, state.maxima + r,
            state.totals + r, corrections + r);
        continue;
      }
      SeenKeys seen;
      for (int i = 0; i < kGroup; ++i) {
        const auto [begin, end] = seen_of(r + i);
        seen.begin[i] = static_cast<int32_t>(begin);
        seen.end[i] = static_cast<int32_t>(end);
      }
      SoftmaxOf(
          scores, scale, [&](int pair) { return seen.OfPair(pair); }, weights, state.maxima + r,
          state.totals + r, corrections + r);
    }
  }

  // Up to the last block of rows: nobody reads those behind `rows`.
  void Weigh(int64_t rows, const float* corrections, float* sums) {
    const int64_t pairs = CeilDivide(count_, 2);
    const bool turned = rows > kRowsTogether;  // else turning values again is cheaper
    if (turned) TurnValues(pairs);
    for (int64_t r = 0; r < rows; r += kBlockRows) {
      if (turned) {
        WeighTurned(r, pairs, corrections, sums);
      } else if (rows > kBlockRows) {
        WeighInPlace<2>(r, pairs, corrections, sums);
      } else {
        WeighInPlace<4>(r, pairs, corrections, sums);
      }
    }
  }

  uint32_t* QueryWord(int64_t row, int64_t word) const {
    const int64_t first = row / kGroup * query_words_ + word / kWordsTogether * kWordsTogether;
    return q_ + first * kGroup + row % kGroup * kWordsTogether + word % kWordsTogether;
  }

  void TurnValues(int64_t pairs) {
    const int64_t width = width_;
    uint32_t* out = turned_;
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const BFloat16* value = places_.values[pair / kRunPairs] + pair % kRunPairs * 2 * stride_;
      for (int64_t d = 0; d < width; d += kBlockElements, out += kBlockElements) {
        const int64_t count = Smaller(head_dim_ - d, kBlockElements);
        __m512i x[2];
        TurnPair(LoadBlock(value + d, count), LoadBlock(value + stride_ + d, count), x);
        _mm512_store_si512(out, x[0]);
        _mm512_store_si512(out + kLanes, x[1]);
      }
    }
  }

  template <int kCount, typename Right>
  [[gnu::always_inline]] void WeighColumns(int64_t row, int64_t pairs, int64_t d,
                                           const Right& right, const float* corrections,
                                           float* sums) {
    const int64_t width = width_;
    float* base = sums + row * width + d;
    const uint32_t* weights = weights_ + row / kGroup * kGroup * kTileKeys / 2 + row % kGroup;
    MultiplyPairs<kBlockRows, kCount>(
        weights, right, pairs,
        [&](int r, int v) {
          return Mul(Load(base + r * width + v * kLanes), Set(corrections[row + r]));
        },
        [&](int r, int v, Vec sum) { Store(base + r * width + v * kLanes, sum); });
  }

  // Together the passes over blocks of rows ask for every line of the tiles to come.
  template <int kLines>
  void WeighInPlace(int64_t row, int64_t pairs, const float* corrections, float* sums) {
    int64_t line = row / kBlockRows * (head_dim_ / kWideElements) * kTileKeys / 2 * kLines;
    int64_t d = 0;
    for (; d + kWideElements <= head_dim_; d += kWideElements) {
      const ValuesInPlace<kLines> values = {places_.values, stride_, d, while_weighing_, line};
      WeighColumns<kVectors>(row, pairs, d, values, corrections, sums);
      line += kTileKeys / 2 * kLines;
    }
    for (; d < width_; d += kBlockElements) {
      const ValuesBlock values = {places_.values, stride_, d,
                                  Smaller(head_dim_ - d, kBlockElements)};
      WeighColumns<2>(row, pairs, d, values, corrections, sums);
    }
  }

  void WeighTurned(int64_t row, int64_t pairs, const float* corrections, float* sums) {
    int64_t d = 0;
    for (; d + kWideElements <= width_; d += kWideElements) {
      const TurnedValues<kVectors> values = {turned_ + d, width_};
      WeighColumns<kVectors>(row, pairs, d, values, corrections, sums);
    }
    for (; d < width_; d += kBlockElements) {
      const TurnedValues<2> values = {turned_ + d, width_};
      WeighColumns<2>(row, pairs, d, values, corrections, sums);
    }
  }

  const int64_t head_dim_, stride_, width_, query_words_;
  uint32_t* const q_;            // [group][two words][row][word]
  uint32_t* const weights_;      // [group][kTileKeys / 2][row]
  uint32_t* const turned_;       // [kTileKeys / 2][width], of values
  TilePlaces<BFloat16> places_;  // of this tile
  int64_t count_ = 0;
  Ahead while_scoring_, while_weighing_;
};

}  // namespace

int64_t DotAttentionWorkspaceBytes(const AttentionShape& shape, int threads) {
  return WorkspaceBytesWith<DotMath>(shape, threads);
}

void DotAttention(const AttentionArgs& args, ThreadPool& pool) {
  AttendPaired<DotMath>(args, pool);
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
