// Which types a model computes in: what was asked for, what the checkpoint holds, and what the
// device can do, made into one choice with its reason. Pure, thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "proto/layers/layer_sizes.h"
#include "proto/model.pb.h"

namespace tessera::worker {

// In which 16-bit types the device computes (Ops::ComputesIn); by default as CPUs do.
struct HalfTypes {
  bool float16 = false, bfloat16 = true;
};

struct ResolvedDTypes {
  kernels::DType weight_dtype = kernels::DType::kF32;   // f32, f16, bf16, i8
  kernels::DType kv_dtype = kernels::DType::kF32;       // f32, f16, bf16, i8, f8
  kernels::DType product_dtype = kernels::DType::kF32;  // f32, f16, bf16: see ModelOptions
  std::string reason;                                   // one line for the log: choice and why
};

// How the numbers of a cache of this type are kept.
KvElement KvElementOf(kernels::DType dtype);

// UNSPECIFIED is "auto": the checkpoint's own type. Where the device does not compute in float16,
// it is float32, which holds every float16 exactly; bfloat16, which does not, only where it is
// asked for. Where the device does not compute in bfloat16, "auto" of a bfloat16 checkpoint is
// float16, and loading refuses a weight beyond it. INT8 quantises weights only.
//
// KV on auto and products have 16 bits where weights have them. Beside int8 weights they have them
// where the checkpoint is bfloat16, and on a device that computes in float16 (a GPU) whatever it
// is: float16 for a float16 one, else bfloat16 where the device computes in it. All other products
// are float32: int8 weights of a float32 or float16 checkpoint on a CPU meet activations that are
// not rounded. KV of int8 and float8 are what is asked for (kernels/kv_rows.h), whatever products
// are. InvalidArgument for float16 KV where the device does not compute in it, and for weights of
// FP8, which are no type that a checkpoint's can be quantised to.
absl::StatusOr<ResolvedDTypes> ResolveDTypes(const v1::Model& model, v1::DataType requested_weights,
                                             v1::DataType requested_kv,
                                             const HalfTypes& computed = {});

}  // namespace tessera::worker
