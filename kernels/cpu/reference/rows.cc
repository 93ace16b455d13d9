// Ops whose rows do not know each other.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/reference/element.h"
#include "kernels/cpu/reference/reference_kernels.h"

namespace tessera::kernels::reference {
namespace {

// [tokens, heads, width] is heads vectors in each row; [rows, width] is one.
struct NormShape {
  int64_t rows, vectors, width;
};

NormShape ShapeOfNorm(const TensorView& in) {
  return {in.shape[0], in.rank == 3 ? in.shape[1] : 1, in.shape[in.rank - 1]};
}

// Adds into the residual, where there is one, and says where the values to normalise stand.
TensorView NormInput(const NormArgs& args, int64_t row, int64_t begin, int64_t width) {
  if (args.residual.empty()) return args.in;
  for (int64_t i = begin; i < begin + width; ++i) {
    Set(args.residual, row, i, Get(args.residual, row, i) + Get(args.in, row, i));
  }
  return args.residual;
}

// The weights of the vector that begins at element `begin` of a row.
const float* WeightOf(const NormArgs& args, int64_t begin, int64_t width) {
  return args.weight.rank == 2 ? args.weight.Row<float>(begin / width) : args.weight.As<float>();
}

void RmsNormVector(const NormArgs& args, int64_t row, int64_t begin, int64_t width) {
  const TensorView in = NormInput(args, row, begin, width);
  double squares = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double x = Get(in, row, begin + i);
    squares += x * x;
  }
  double mean = squares / static_cast<double>(width);
  if (!args.squares.empty()) {
    mean = args.squares.Row<float>(row)[0] / static_cast<double>(args.whole_width);
  }
  const double scale = 1.0 / std::sqrt(mean + args.epsilon);
  const float* weight = WeightOf(args, begin, width);
  for (int64_t i = 0; i < width; ++i) {
    Set(args.out, row, begin + i, Get(in, row, begin + i) * scale * weight[i]);
  }
}

void LayerNormVector(const NormArgs& args, int64_t row, int64_t begin, int64_t width) {
  const TensorView in = NormInput(args, row, begin, width);
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += Get(in, row, begin + i);
  const double mean = sum / static_cast<double>(width);
  double squares = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double x = Get(in, row, begin + i) - mean;
    squares += x * x;
  }
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + args.epsilon);
  const float* weight = WeightOf(args, begin, width);
  for (int64_t i = 0; i < width; ++i) {
    const double bias = args.bias.empty() ? 0.0 : args.bias.As<float>()[i];
    const double x = (Get(in, row, begin + i) - mean) * scale;
    Set(args.out, row, begin + i, x * weight[i] + bias);
  }
}

double GeluErf(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }
double Softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

double Apply(Activation kind, double x) {
  switch (kind) {
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
    case Activation::kGeluErf: return GeluErf(x);
    case Activation::kGeluTanh:
      return 0.5 * x *
             (1.0 +
              std::tanh(std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu: return x > 0 ? x : 0.0;
    case Activation::kRelu2: return x > 0 ? x * x : 0.0;
    case Activation::kRelu6: return std::clamp(x, 0.0, 6.0);
    case Activation::kLeakyRelu: return x > 0 ? x : 0.01 * x;
    case Activation::kSigmoid: return 1.0 / (1.0 + std::exp(-x));
    case Activation::kTanh: return std::tanh(x);
    case Activation::kLinear: return x;
    case Activation::kHardSwish: return x * std::clamp(x + 3.0, 0.0, 6.0) / 6.0;
    case Activation::kMish: return x * std::tanh(Softplus(x));
    case Activation::kLaplace:
      return 0.5 * (1.0 + std::erf((x - 0.707107) / (0.282095 * std::sqrt(2.0))));
    case Activation::kQuickGelu: return x / (1.0 + std::exp(-1.702 * x));
    case Activation::kGelu10: return std::clamp(GeluErf(x), -10.0, 10.0);
    case Activation::kSqrtSoftplus: return std::sqrt(Softplus(x));
  }
  return 0;
}

double FactorOf(const ScaleArgs& args, int64_t row) {
  if (args.positions.empty()) return args.factor;
  const int32_t position = args.positions.As<int32_t>()[row];
  if (position < 0) return args.factor;
  const int64_t periods = (int64_t{position} + args.position_offset) / args.position_period;
  return args.factor * (1.0 + args.position_gain * std::log(1.0 + static_cast<double>(periods)));
}

}  // namespace

void Embedding(const EmbeddingArgs& args, ThreadPool&) {
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    const int64_t row = args.ids.As<int32_t>()[t] - args.vocabulary_begin;
    const bool present = row >= 0 && row < args.table.rows();
    for (int64_t i = 0; i < args.out.shape[1]; ++i) {
      const float value = present ? Get(args.table, row, i) : 0.0f;
      Set(args.out, t, i, args.accumulate ? Get(args.out, t, i) + value : value);
    }
  }
}

void RmsNorm(const NormArgs& args, ThreadPool&) {
  const NormShape shape = ShapeOfNorm(args.in);
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t v = 0; v < shape.vectors; ++v) {
      RmsNormVector(args, row, v * shape.width, shape.width);
    }
  }
}

void LayerNorm(const NormArgs& args, ThreadPool&) {
  const NormShape shape = ShapeOfNorm(args.in);
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t v = 0; v < shape.vectors; ++v) {
      LayerNormVector(args, row, v * shape.width, shape.width);
    }
  }
}

void SumSquares(const SumSquaresArgs& args, ThreadPool&) {
  for (int64_t row = 0; row < args.in.rows(); ++row) {
    double squares = 0;
    for (int64_t i = 0; i < args.in.shape[1]; ++i) {
      const double x = Get(args.in, row, i);
      squares += x * x;
    }
    args.out.Row<float>(row)[0] = static_cast<float>(squares);
  }
}

void Scale(const ScaleArgs& args, ThreadPool&) {
  const double cap = args.soft_cap, limit = args.limit;
  for (int64_t row = 0; row < args.rows.rows(); ++row) {
    const double factor = FactorOf(args, row);
    for (int64_t i = 0; i < args.rows.shape[1]; ++i) {
      const double x = Get(args.rows, row, i) * factor;
      const double capped = cap > 0 ? cap * std::tanh(x / cap) : x;
      Set(args.rows, row, i, limit > 0 ? std::clamp(capped, -limit, limit) : capped);
    }
  }
}

void GatherRows(const GatherRowsArgs& args, ThreadPool&) {
  for (int64_t r = 0; r < args.out.rows(); ++r) {
    const int64_t source = args.rows.As<int32_t>()[r];
    const bool present = source >= 0 && source < args.in.rows();
    for (int64_t i = 0; i < args.out.shape[1]; ++i) {
      Set(args.out, r, i, present ? Get(args.in, source, i) : 0.0f);
    }
  }
}

void FeedTokens(const FeedTokensArgs& args, ThreadPool&) {
  for (int64_t i = 0; i < args.ids.rows(); ++i) {
    int32_t& id = args.ids.As<int32_t>()[i];
    if (id > kFedToken) continue;
    const int64_t row = int64_t{kFedToken} - id;
    id = row < args.drawn.rows() ? std::max(-1, args.drawn.As<int32_t>()[row]) : -1;
  }
}

void Add(const AddArgs& args, ThreadPool&) {
  for (int64_t r = 0; r < args.out.rows(); ++r) {
    for (int64_t i = 0; i < args.out.shape[1]; ++i) {
      Set(args.out, r, i, Get(args.out, r, i) + Get(args.in, r, i));
    }
  }
}

void Activate(const ActivationArgs& args, ThreadPool&) {
  for (int64_t r = 0; r < args.out.rows(); ++r) {
    for (int64_t i = 0; i < args.out.shape[1]; ++i) {
      Set(args.out, r, i, Apply(args.kind, Get(args.in, r, i)));
    }
  }
}

void GatedActivate(const GatedActivationArgs& args, ThreadPool&) {
  const int64_t n = args.out.shape[1];
  for (int64_t r = 0; r < args.out.rows(); ++r) {
    for (int64_t i = 0; i < n; ++i) {
      const double up = Get(args.gate_up, r, n + i);
      Set(args.out, r, i, Apply(args.kind, Get(args.gate_up, r, i)) * up);
    }
  }
}

void ClampedGate(const ClampedGateArgs& args, ThreadPool&) {
  const int64_t n = args.out.shape[1];
  const double limit = args.limit;
  for (int64_t r = 0; r < args.out.rows(); ++r) {
    for (int64_t i = 0; i < n; ++i) {
      const double gate = std::min<double>(Get(args.gate_up, r, i), limit);
      const double up = std::clamp<double>(Get(args.gate_up, r, n + i), -limit, limit);
      Set(args.out, r, i, (up + 1) * gate / (1 + std::exp(-args.alpha * gate)));
    }
  }
}

}  // namespace tessera::kernels::reference
