// Embedding, gather, add and the two norms: rows that do not know each other.
#include <cmath>

#include "kernels/cpu/simd/row_tasks.h"
#include "kernels/cpu/simd/simd_kernels.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

template <typename T>
void Clear(T* out, int64_t count) {
  ForVectors(count, [&](int64_t i, int64_t n) { StoreUpTo(out + i, Zero(), n); });
}

template <typename From, typename To>
void CopyRow(const From* in, int64_t count, To* out) {
  ForVectors(count, [&](int64_t i, int64_t n) { StoreUpTo(out + i, LoadUpTo(in + i, n), n); });
}

// each(i, n) is called after out[i, i + n) was added to.
template <typename From, typename To, typename Each>
void AddRow(const From* in, int64_t count, To* out, const Each& each) {
  ForVectors(count, [&](int64_t i, int64_t n) {
    AskAhead(in + i);
    AskAhead(out + i);
    StoreUpTo(out + i, Add(LoadUpTo(out + i, n), LoadUpTo(in + i, n)), n);
    each(i, n);
  });
}
template <typename From, typename To>
void AddRow(const From* in, int64_t count, To* out) {
  AddRow(in, count, out, [](int64_t, int64_t) {});
}

// Calls each(vector) for the vectors of what is to be normalised, and returns it: `in`, or the
// residual after in was added to it.
template <typename T, typename Each>
const T* NormInput(const T* in, T* residual, int64_t width, const Each& each) {
  if (residual == nullptr) {
    ForVectors(width, [&](int64_t i, int64_t n) { each(LoadUpTo(in + i, n)); });
    return in;
  }
  AddRow(in, width, residual, [&](int64_t i, int64_t n) { each(LoadUpTo(residual + i, n)); });
  return residual;
}

// A vector of a row that is normalised.
template <typename T>
struct NormVector {
  const T* in;
  T* residual;  // or null
  int64_t width;
  const float* weight;
  const float* squares;  // or null: those of the vector
  T* out;
};

template <typename T>
void RmsNormVector(const NormArgs& args, const NormVector<T>& vector) {
  const auto [in, residual, width, weight, whole_squares, out] = vector;
  Vec squares = Zero();
  const T* x = NormInput(in, residual, width, [&](Vec v) { squares = Fma(v, v, squares); });
  const float mean = whole_squares == nullptr
                         ? ReduceAdd(squares) / static_cast<float>(width)
                         : *whole_squares / static_cast<float>(args.whole_width);
  const Vec scale = Set(1.0f / __builtin_sqrtf(mean + args.epsilon));
  ForVectors(width, [&](int64_t i, int64_t n) {
    const Vec v = Mul(LoadUpTo(x + i, n), scale);
    AskAhead(out + i);
    StoreUpTo(out + i, Mul(v, LoadUpTo(weight + i, n)), n);
  });
}

template <typename T>
void LayerNormVector(const NormArgs& args, const NormVector<T>& vector) {
  const auto [in, residual, width, weight, unused, out] = vector;
  Vec sum = Zero();
  const T* x = NormInput(in, residual, width, [&](Vec v) { sum = Add(sum, v); });
  const Vec mean = Set(ReduceAdd(sum) / static_cast<float>(width));
  Vec squares = Zero();
  ForVectors(width, [&](int64_t i, int64_t n) {
    const Vec v = Select(FirstLanes(n), Sub(LoadUpTo(x + i, n), mean), Zero());
    squares = Fma(v, v, squares);
  });
  const float variance = ReduceAdd(squares) / static_cast<float>(width);
  const Vec scale = Set(1.0f / __builtin_sqrtf(variance + args.epsilon));
  const float* bias = args.bias.As<float>();
  ForVectors(width, [&](int64_t i, int64_t n) {
    const Vec v = Mul(Sub(LoadUpTo(x + i, n), mean), scale);
    const Vec b = bias == nullptr ? Zero() : LoadUpTo(bias + i, n);
    StoreUpTo(out + i, Fma(v, LoadUpTo(weight + i, n), b), n);
  });
}

// [tokens, heads, width] is `heads` vectors in a row; [rows, width] is one.
template <typename T, typename Norm>
void NormRows(const NormArgs& args, ThreadPool& pool, const Norm& norm) {
  const int64_t vectors = args.in.rank == 3 ? args.in.shape[1] : 1;
  const int64_t width = args.in.shape[args.in.rank - 1];
  const int64_t weight_stride = args.weight.rank == 2 ? width : 0;
  ForRows(pool, args.in.rows(), vectors * width, [&](int64_t row) {
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t begin = v * width;
      norm(args,
           NormVector<T>{
               .in = args.in.Row<const T>(row) + begin,
               .residual = args.residual.empty() ? nullptr : args.residual.Row<T>(row) + begin,
               .width = width,
               .weight = args.weight.As<float>() + v * weight_stride,
               .squares = args.squares.empty() ? nullptr : args.squares.Row<float>(row),
               .out = args.out.Row<T>(row) + begin});
    }
  });
}

}  // namespace

void Embedding(const EmbeddingArgs& args, ThreadPool& pool) {
  const int64_t width = args.out.shape[1];
  WithType(args.table.dtype, [&](auto from) {
    WithActivationType(args.out.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      ForRows(pool, args.out.rows(), width, [&](int64_t token) {
        const int64_t row = args.ids.As<int32_t>()[token] - args.vocabulary_begin;
        const bool present = row >= 0 && row < args.table.rows();
        To* out = args.out.Row<To>(token);
        if (present && args.accumulate) {
          AddRow(args.table.Row<const From>(row), width, out);
        } else if (present) {
          CopyRow(args.table.Row<const From>(row), width, out);
        } else if (!args.accumulate) {
          Clear(out, width);
        }
      });
    });
  });
}

void RmsNorm(const NormArgs& args, ThreadPool& pool) {
  WithActivationType(args.in.dtype, [&](auto type) {
    using T = decltype(type);
    NormRows<T>(args, pool, [](auto&&... a) { RmsNormVector<T>(a...); });
  });
}

void LayerNorm(const NormArgs& args, ThreadPool& pool) {
  WithActivationType(args.in.dtype, [&](auto type) {
    using T = decltype(type);
    NormRows<T>(args, pool, [](auto&&... a) { LayerNormVector<T>(a...); });
  });
}

void SumSquares(const SumSquaresArgs& args, ThreadPool& pool) {
  const int64_t width = args.in.shape[1];
  WithActivationType(args.in.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, args.in.rows(), width, [&](int64_t row) {
      const T* in = args.in.Row<const T>(row);
      Vec squares = Zero();
      ForVectors(width, [&](int64_t i, int64_t n) {
        const Vec v = LoadUpTo(in + i, n);
        squares = Fma(v, v, squares);
      });
      args.out.Row<float>(row)[0] = ReduceAdd(squares);
    });
  });
}

void GatherRows(const GatherRowsArgs& args, ThreadPool& pool) {
  const int64_t width = args.out.shape[1];
  WithActivationType(args.in.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, args.out.rows(), width, [&](int64_t r) {
      const int64_t source = args.rows.As<int32_t>()[r];
      if (source >= 0 && source < args.in.rows()) {
        CopyRow(args.in.Row<const T>(source), width, args.out.Row<T>(r));
      } else {
        Clear(args.out.Row<T>(r), width);
      }
    });
  });
}

void Add(const AddArgs& args, ThreadPool& pool) {
  const int64_t width = args.out.shape[1];
  WithActivationType(args.in.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, args.out.rows(), width,
            [&](int64_t r) { AddRow(args.in.Row<const T>(r), width, args.out.Row<T>(r)); });
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
