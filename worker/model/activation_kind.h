// A model's activation as ops know it. Pure.
#pragma once

#include "kernels/ops.h"
#include "proto/model.pb.h"

namespace tessera::worker {

inline kernels::Activation ActivationOf(v1::ActivationKind kind) {
  switch (kind) {
    case v1::ACTIVATION_KIND_GELU_ERF: return kernels::Activation::kGeluErf;
    case v1::ACTIVATION_KIND_GELU_TANH: return kernels::Activation::kGeluTanh;
    case v1::ACTIVATION_KIND_RELU: return kernels::Activation::kRelu;
    case v1::ACTIVATION_KIND_RELU2: return kernels::Activation::kRelu2;
    case v1::ACTIVATION_KIND_RELU6: return kernels::Activation::kRelu6;
    case v1::ACTIVATION_KIND_LEAKY_RELU: return kernels::Activation::kLeakyRelu;
    case v1::ACTIVATION_KIND_SIGMOID: return kernels::Activation::kSigmoid;
    case v1::ACTIVATION_KIND_TANH: return kernels::Activation::kTanh;
    case v1::ACTIVATION_KIND_LINEAR: return kernels::Activation::kLinear;
    case v1::ACTIVATION_KIND_HARDSWISH: return kernels::Activation::kHardSwish;
    case v1::ACTIVATION_KIND_MISH: return kernels::Activation::kMish;
    case v1::ACTIVATION_KIND_LAPLACE: return kernels::Activation::kLaplace;
    case v1::ACTIVATION_KIND_QUICK_GELU: return kernels::Activation::kQuickGelu;
    case v1::ACTIVATION_KIND_GELU_10: return kernels::Activation::kGelu10;
    case v1::ACTIVATION_KIND_SQRT_SOFTPLUS: return kernels::Activation::kSqrtSoftplus;
    default: return kernels::Activation::kSilu;
  }
}

}  // namespace tessera::worker
