// The non-linear functions between two linears.
#include "kernels/cpu/simd/row_tasks.h"
#include "kernels/cpu/simd/simd_kernels.h"
#include "kernels/cpu/simd/vector.h"

namespace tessera::kernels::TESSERA_SIMD_PATH {
namespace {

// x / (1 + e^-s): x * sigmoid(s)
Vec TimesSigmoid(Vec x, Vec s) { return Div(x, Add(Set(1.0f), Exp(Sub(Zero(), s)))); }

struct Silu {
  static Vec Apply(Vec x) { return TimesSigmoid(x, x); }
};

// (1 + tanh(u)) / 2 is sigmoid(2u).
struct GeluTanh {
  static Vec Apply(Vec x) {
    const Vec cubic = Fma(Mul(Mul(x, x), Set(0.044715f)), x, x);
    return TimesSigmoid(x, Mul(cubic, Set(2 * 0.79788456080286535588f)));
  }
};

// erf by Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7.
struct GeluErf {
  static Vec Apply(Vec x) {
    const Vec z = Mul(Abs(x), Set(0.70710678118654752440f));
    const Vec t = Div(Set(1.0f), Fma(z, Set(0.3275911f), Set(1.0f)));
    Vec p = Set(1.061405429f);
    p = Fma(p, t, Set(-1.453152027f));
    p = Fma(p, t, Set(1.421413741f));
    p = Fma(p, t, Set(-0.284496736f));
    p = Fma(p, t, Set(0.254829592f));
    const Vec tail = Mul(Mul(p, t), Exp(Sub(Zero(), Mul(z, z))));
    const Vec erf = CopySign(Sub(Set(1.0f), tail), x);
    return Mul(Mul(x, Set(0.5f)), Add(Set(1.0f), erf));
  }
};

struct Relu {
  static Vec Apply(Vec x) { return Max(Zero(), x); }
};

template <typename Fn>
void WithFunction(Activation kind, const Fn& fn) {
  switch (kind) {
    case Activation::kSilu: return fn(Silu{});
    case Activation::kGeluErf: return fn(GeluErf{});
    case Activation::kGeluTanh: return fn(GeluTanh{});
    case Activation::kRelu: return fn(Relu{});
  }
}

}  // namespace

void Activate(const ActivationArgs& args, ThreadPool& pool) {
  const int64_t width = args.out.shape[1];
  WithActivationType(args.in.dtype, [&](auto type) {
    WithFunction(args.kind, [&](auto function) {
      using T = decltype(type);
      using Function = decltype(function);
      ForRows(pool, args.out.rows(), width, [&](int64_t r) {
        const T* in = args.in.Row<const T>(r);
        T* out = args.out.Row<T>(r);
        ForVectors(width, [&](int64_t i, int64_t n) {
          StoreUpTo(out + i, Function::Apply(LoadUpTo(in + i, n)), n);
        });
      });
    });
  });
}

void GatedActivate(const GatedActivationArgs& args, ThreadPool& pool) {
  const int64_t width = args.out.shape[1];
  WithActivationType(args.out.dtype, [&](auto type) {
    WithFunction(args.kind, [&](auto function) {
      using T = decltype(type);
      using Function = decltype(function);
      ForRows(pool, args.out.rows(), width, [&](int64_t r) {
        const T* gate = args.gate_up.Row<const T>(r);
        const T* up = gate + width;
        T* out = args.out.Row<T>(r);
        ForVectors(width, [&](int64_t i, int64_t n) {
          AskAhead(gate + i);
          AskAhead(up + i);
          AskAhead(out + i);
          const Vec active = Function::Apply(LoadUpTo(gate + i, n));
          StoreUpTo(out + i, Mul(active, LoadUpTo(up + i, n)), n);
        });
      });
    });
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
