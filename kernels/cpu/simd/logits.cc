// Loops over a row of logits, and the weighted sum of what experts made of a row.
#include "kernels/cpu/simd/row_tasks.h"
#include "kernels/cpu/simd/simd_kernels.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

constexpr float kLowest = -__builtin_inff();

// LoadUpTo, but lanes beyond the end are -infinity.
Vec LoadOrLowest(const float* p, int64_t count) {
  return Select(FirstLanes(count), LoadUpTo(p, count), Set(kLowest));
}

float RowMax(const float* values, int64_t count) {
  Vec largest = Set(kLowest);
  // Max(a, b) is b where either is not a number.
  ForVectors(count,
             [&](int64_t i, int64_t n) { largest = Max(LoadOrLowest(values + i, n), largest); });
  return ReduceMax(largest);
}

// x * 0 is 0 for every finite x, and NaN for all others; so is the sum.
bool AllFinite(const float* values, int64_t count) {
  Vec sum = Zero();
  ForVectors(count, [&](int64_t i, int64_t n) { sum = Fma(LoadUpTo(values + i, n), Zero(), sum); });
  return ReduceAdd(sum) == 0.0f;
}

int64_t FindEqual(const float* values, int64_t count, float value) {
  const Vec wanted = Set(value);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i < kLanes ? count - i : kLanes;
    const uint32_t inside = n == kLanes ? ~0u : (1u << n) - 1u;
    const uint32_t bits = Bits(Equal(LoadUpTo(values + i, n), wanted)) & inside;
    if (bits != 0) return i + __builtin_ctz(bits);
  }
  return count;
}

// Sums of 1024 terms in float lanes, those in double: exact enough for any vocabulary.
double SumExp(const float* values, int64_t count, float shift, float factor) {
  constexpr int64_t kRun = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t run = count - begin < kRun ? count - begin : kRun;
    Vec sum = Zero();
    ForVectors(run, [&](int64_t i, int64_t n) {
      const Vec x = Mul(Sub(LoadOrLowest(values + begin + i, n), Set(shift)), Set(factor));
      sum = Add(sum, Exp(x));
    });
    total += ReduceAddDouble(sum);
  }
  return total;
}

int64_t Collect(const float* values, int64_t count, float least, int32_t* indices) {
  const Vec limit = Set(least);
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t n = count - i < kLanes ? count - i : kLanes;
    const uint32_t inside = n == kLanes ? ~0u : (1u << n) - 1u;
    uint32_t bits = Bits(AtLeast(LoadUpTo(values + i, n), limit)) & inside;
    for (; bits != 0; bits &= bits - 1) {
      indices[found++] = static_cast<int32_t>(i + __builtin_ctz(bits));
    }
  }
  return found;
}

// Into the sorted lists of `filled` (at most k) entries.
int64_t Insert(float value, int32_t index, int64_t filled, int64_t k, float* largest,
               int32_t* indices) {
  int64_t place = filled < k ? filled : k - 1;
  for (; place > 0 && value > largest[place - 1]; --place) {
    largest[place] = largest[place - 1];
    indices[place] = indices[place - 1];
  }
  largest[place] = value;
  indices[place] = index;
  return filled < k ? filled + 1 : k;
}

void RowTopK(const float* values, int64_t count, int64_t k, float* largest, int32_t* indices) {
  int64_t filled = 0;
  for (; filled < k;) {
    filled = Insert(values[filled], static_cast<int32_t>(filled), filled, k, largest, indices);
  }
  for (int64_t i = k; i < count; i += kLanes) {
    const int64_t n = count - i < kLanes ? count - i : kLanes;
    const uint32_t inside = n == kLanes ? ~0u : (1u << n) - 1u;
    uint32_t bits = Bits(Above(LoadUpTo(values + i, n), Set(largest[k - 1]))) & inside;
    for (; bits != 0; bits &= bits - 1) {
      const int64_t j = i + __builtin_ctz(bits);
      if (values[j] > largest[k - 1]) {
        Insert(values[j], static_cast<int32_t>(j), k, k, largest, indices);
      }
    }
  }
}

}  // namespace

void LogSoftmax(const LogSoftmaxArgs& args, ThreadPool& pool) {
  const int64_t width = args.in.shape[1];
  ForRows(pool, args.in.rows(), width, [&](int64_t r) {
    const float* in = args.in.Row<const float>(r);
    float* out = args.out.Row<float>(r);
    const float largest = RowMax(in, width);
    const double total = SumExp(in, width, largest, 1.0f);
    const Vec shift = Set(static_cast<float>(largest + __builtin_log(total)));
    ForVectors(width, [&](int64_t i, int64_t n) {
      StoreUpTo(out + i, Sub(LoadUpTo(in + i, n), shift), n);
    });
  });
}

void ExpertBias(const ExpertBiasArgs& args, ThreadPool& pool) {
  const int64_t width = args.out.shape[1], experts = args.biases.rows();
  const int32_t* offsets = args.expert_offsets.As<int32_t>();
  const int64_t first = offsets[0];
  WithActivationType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, offsets[experts] - first, width, [&](int64_t r) {
      // The last expert that begins at or before the slot, of those with any.
      int64_t low = 0, high = experts;
      while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (offsets[middle] <= first + r ? low : high) = middle;
      }
      const float* bias = args.biases.Row<const float>(low);
      T* out = args.out.Row<T>(first + r);
      ForVectors(width, [&](int64_t i, int64_t n) {
        StoreUpTo(out + i, Add(LoadUpTo(out + i, n), LoadUpTo(bias + i, n)), n);
      });
    });
  });
}

void MoeCombine(const MoeCombineArgs& args, ThreadPool& pool) {
  const int64_t k = args.weights.shape[1], width = args.out.shape[1];
  const int32_t* held = args.held.empty() ? nullptr : args.held.As<int32_t>();
  const int32_t first = held == nullptr ? 0 : held[0];
  const int32_t end =
      held == nullptr ? static_cast<int32_t>(args.in.rows()) : held[args.held.rows() - 1];
  WithActivationType(args.in.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, args.out.rows(), k * width, [&](int64_t r) {
      const float* weights = args.weights.Row<float>(r);
      const int32_t* slots = args.slots.Row<int32_t>(r);
      Vec shared = Set(1.0f);
      if (!args.shared_gate.empty()) {
        const Vec gate = Set(*args.shared_gate.Row<float>(r));
        shared = Div(shared, Add(shared, Exp(Sub(Zero(), gate))));
      }
      ForVectors(width, [&](int64_t i, int64_t n) {
        Vec sum = Zero();
        if (!args.shared.empty()) {
          sum = Mul(LoadUpTo(args.shared.Row<const T>(r) + i, n), shared);
        }
        for (int64_t j = 0; j < k; ++j) {
          if (slots[j] < first || slots[j] >= end) continue;
          sum = Fma(LoadUpTo(args.in.Row<const T>(slots[j]) + i, n), Set(weights[j]), sum);
        }
        StoreUpTo(args.out.Row<T>(r) + i, sum, n);
      });
    });
  });
}

RowScan Scans() {
  return {.max = &RowMax,
          .finite = &AllFinite,
          .find = &FindEqual,
          .sum_exp = &SumExp,
          .collect = &Collect,
          .top_k = &RowTopK};
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
