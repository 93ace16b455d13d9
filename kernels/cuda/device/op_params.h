// An op's arguments as its plain kernels take them. Pure functions; pointers stay the caller's.
#pragma once

#include <cstdint>

#include "kernels/cuda/kv/kv_kernels.h"
#include "kernels/cuda/plain/attention_kernels.h"
#include "kernels/cuda/plain/delta_net_kernels.h"
#include "kernels/cuda/plain/plain_kernels.h"
#include "kernels/ops.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

inline ActivationKind KindOf(Activation kind) {
  switch (kind) {
    case Activation::kSilu: return ActivationKind::kSilu;
    case Activation::kGeluErf: return ActivationKind::kGeluErf;
    case Activation::kGeluTanh: return ActivationKind::kGeluTanh;
    case Activation::kRelu: return ActivationKind::kRelu;
    case Activation::kRelu2: return ActivationKind::kRelu2;
    case Activation::kRelu6: return ActivationKind::kRelu6;
    case Activation::kLeakyRelu: return ActivationKind::kLeakyRelu;
    case Activation::kSigmoid: return ActivationKind::kSigmoid;
    case Activation::kTanh: return ActivationKind::kTanh;
    case Activation::kLinear: return ActivationKind::kLinear;
    case Activation::kHardSwish: return ActivationKind::kHardSwish;
    case Activation::kMish: return ActivationKind::kMish;
    case Activation::kLaplace: return ActivationKind::kLaplace;
    case Activation::kQuickGelu: return ActivationKind::kQuickGelu;
    case Activation::kGelu10: return ActivationKind::kGelu10;
    case Activation::kSqrtSoftplus: return ActivationKind::kSqrtSoftplus;
  }
  return ActivationKind::kRelu;
}

inline KvWireParams ParamsOf(const KvWireArgs& args) {
  return {.cache = args.cache.data,
          .slots = args.slots.As<int32_t>(),
          .wire = args.wire.As<unsigned char>(),
          .planes = args.cache.shape[0],
          .kv_heads = args.cache.shape[1],
          .tokens = args.slots.rows(),
          .head_dim = args.cache.shape[3],
          .plane_stride = args.cache.row_stride,
          .head_stride = args.cache.shape[2] * args.cache.shape[3],
          .values_first = args.values_first,
          .coding = args.coding,
          .dtype = args.cache.dtype,
          .wire_dtype = args.wire_dtype};
}

inline AttentionParams ParamsOf(const AttentionArgs& args) {
  return {.out = args.out.data,
          .q = args.q.data,
          .keys = args.cache.keys.data,
          .values = args.cache.values.data,
          .query_starts = args.query_starts.As<int32_t>(),
          .context_lengths = args.context_lengths.As<int32_t>(),
          .block_tables = args.block_tables.As<int32_t>(),
          .sinks = args.sinks.As<float>(),
          .rows = args.q.rows(),
          .sequences = args.context_lengths.rows(),
          .heads = args.q.shape[1],
          .kv_heads = args.cache.keys.shape[0],
          .head_dim = args.q.shape[2],
          .block_tokens = args.cache.keys.shape[2],
          .window = args.window,
          .chunked = args.chunked,
          .out_stride = args.out.row_stride,
          .q_stride = args.q.row_stride,
          .keys_stride = args.cache.keys.row_stride,
          .values_stride = args.cache.values.row_stride,
          .table_stride = args.block_tables.row_stride,
          .scale = args.scale,
          .soft_cap = args.soft_cap,
          .cache_dtype = args.cache.keys.dtype,
          .dtype = args.q.dtype,
          .out_dtype = args.out.dtype};
}

inline SeatParams ParamsOf(const SeatArgs& args) {
  return {.query_starts = args.query_starts.As<int32_t>(),
          .context_lengths = args.context_lengths.As<int32_t>(),
          .seats = args.seats.As<int32_t>(),
          .draft_rows = args.draft_rows.As<int32_t>(),
          .sequences = args.seats.rows()};
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
