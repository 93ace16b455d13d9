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

// Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7.
Vec Erf(Vec x) {
  const Vec z = Abs(x);
  const Vec t = Div(Set(1.0f), Fma(z, Set(0.3275911f), Set(1.0f)));
  Vec p = Set(1.061405429f);
  p = Fma(p, t, Set(-1.453152027f));
  p = Fma(p, t, Set(1.421413741f));
  p = Fma(p, t, Set(-0.284496736f));
  p = Fma(p, t, Set(0.254829592f));
  const Vec tail = Mul(Mul(p, t), Exp(Sub(Zero(), Mul(z, z))));
  return CopySign(Sub(Set(1.0f), tail), x);
}

struct GeluErf {
  static Vec Apply(Vec x) {
    const Vec erf = Erf(Mul(x, Set(0.70710678118654752440f)));
    return Mul(Mul(x, Set(0.5f)), Add(Set(1.0f), erf));
  }
};

struct Relu {
  static Vec Apply(Vec x) { return Max(Zero(), x); }
};

struct Relu2 {
  static Vec Apply(Vec x) { return Mul(Relu::Apply(x), Relu::Apply(x)); }
};

struct Relu6 {
  static Vec Apply(Vec x) { return Min(Set(6.0f), Max(Zero(), x)); }
};

struct LeakyRelu {
  static Vec Apply(Vec x) { return Select(Above(x, Zero()), x, Mul(x, Set(0.01f))); }
};

struct Sigmoid {
  static Vec Apply(Vec x) { return TimesSigmoid(Set(1.0f), x); }
};

struct HyperbolicTangent {
  static Vec Apply(Vec x) { return Tanh(x); }
};

struct Linear {
  static Vec Apply(Vec x) { return x; }
};

struct HardSwish {
  static Vec Apply(Vec x) { return Mul(x, Mul(Relu6::Apply(Add(x, Set(3.0f))), Set(1.0f / 6))); }
};

// With e = e^x, tanh(ln(1 + e)) is e (e + 2) / (e (e + 2) + 2), and 1 from x = 20 on.
struct Mish {
  static Vec Apply(Vec x) {
    const Vec e = Exp(Min(Set(20.0f), x));
    const Vec product = Mul(e, Add(e, Set(2.0f)));
    return Mul(x, Div(product, Add(product, Set(2.0f))));
  }
};

struct Laplace {
  static Vec Apply(Vec x) {
    constexpr float kInverse = 1 / (0.282095f * 1.41421356237309504880f);
    const Vec erf = Erf(Mul(Sub(x, Set(0.707107f)), Set(kInverse)));
    return Mul(Set(0.5f), Add(Set(1.0f), erf));
  }
};

struct QuickGelu {
  static Vec Apply(Vec x) { return TimesSigmoid(x, Mul(x, Set(1.702f))); }
};

struct Gelu10 {
  static Vec Apply(Vec x) { return Max(Set(-10.0f), Min(Set(10.0f), GeluErf::Apply(x))); }
};

// There is no logarithm of vectors: few models have this one.
struct SqrtSoftplus {
  static Vec Apply(Vec x) {
    alignas(64) float lanes[kLanes];
    Store(lanes, x);
    for (float& lane : lanes) {
      const float softplus = lane > 20 ? lane : __builtin_log1pf(__builtin_expf(lane));
      lane = __builtin_sqrtf(softplus);
    }
    return Load(lanes);
  }
};

// The factor of a row; the logarithm in double, as few rows have one.
float FactorOf(const ScaleArgs& args, int64_t row) {
  const int32_t position = args.positions.empty() ? -1 : args.positions.As<int32_t>()[row];
  if (position < 0) return args.factor;
  const int64_t periods = (int64_t{position} + args.position_offset) / args.position_period;
  const double grown = __builtin_log(1.0 + static_cast<double>(periods));
  return args.factor * static_cast<float>(1.0 + static_cast<double>(args.position_gain) * grown);
}

template <typename Fn>
void WithFunction(Activation kind, const Fn& fn) {
  switch (kind) {
    case Activation::kSilu: return fn(Silu{});
    case Activation::kGeluErf: return fn(GeluErf{});
    case Activation::kGeluTanh: return fn(GeluTanh{});
    case Activation::kRelu: return fn(Relu{});
    case Activation::kRelu2: return fn(Relu2{});
    case Activation::kRelu6: return fn(Relu6{});
    case Activation::kLeakyRelu: return fn(LeakyRelu{});
    case Activation::kSigmoid: return fn(Sigmoid{});
    case Activation::kTanh: return fn(HyperbolicTangent{});
    case Activation::kLinear: return fn(Linear{});
    case Activation::kHardSwish: return fn(HardSwish{});
    case Activation::kMish: return fn(Mish{});
    case Activation::kLaplace: return fn(Laplace{});
    case Activation::kQuickGelu: return fn(QuickGelu{});
    case Activation::kGelu10: return fn(Gelu10{});
    case Activation::kSqrtSoftplus: return fn(SqrtSoftplus{});
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

void Scale(const ScaleArgs& args, ThreadPool& pool) {
  const int64_t width = args.rows.shape[1];
  WithActivationType(args.rows.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, args.rows.rows(), width, [&](int64_t r) {
      T* row = args.rows.Row<T>(r);
      const Vec factor = Set(FactorOf(args, r)), cap = Set(args.soft_cap);
      const Vec most = Set(args.limit), least = Set(-args.limit);
      const bool capped = args.soft_cap > 0, limited = args.limit > 0;
      ForVectors(width, [&](int64_t i, int64_t n) {
        Vec x = Mul(LoadUpTo(row + i, n), factor);
        if (capped) x = Mul(Tanh(Div(x, cap)), cap);
        StoreUpTo(row + i, limited ? Max(Min(x, most), least) : x, n);
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

void ClampedGate(const ClampedGateArgs& args, ThreadPool& pool) {
  const int64_t width = args.out.shape[1];
  const Vec most = Set(args.limit), least = Set(-args.limit), alpha = Set(args.alpha);
  WithActivationType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    ForRows(pool, args.out.rows(), width, [&](int64_t r) {
      const T* gate = args.gate_up.Row<const T>(r);
      const T* up = gate + width;
      T* out = args.out.Row<T>(r);
      ForVectors(width, [&](int64_t i, int64_t n) {
        const Vec g = Min(LoadUpTo(gate + i, n), most);
        const Vec u = Max(Min(LoadUpTo(up + i, n), most), least);
        StoreUpTo(out + i, Mul(Add(u, Set(1.0f)), TimesSigmoid(g, Mul(g, alpha))), n);
      });
    });
  });
}

}  // namespace tessera::kernels::TESSERA_SIMD_PATH
