#include "worker/model/model_dtypes.h"

#include <string_view>

#include "kernels/kv_rows.h"
#include "proto/data_types.h"
#include "proto/layers/layers.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

using kernels::DType;

// Before how the weights are stored.
std::string_view MatricesText(const v1::Model& model) {
  if (!KeepsInt4(model)) return "weights ";
  switch (model.quantization().format()) {
    case v1::WEIGHT_FORMAT_GGUF:
      return "matrices quantised (GGUF), what is decoded of them and other weights ";
    case v1::WEIGHT_FORMAT_MXFP4: return "experts as codes of a byte (MXFP4), other weights ";
    default: return "matrices int4 as stored, other weights ";
  }
}

// What products with int8 weights of a checkpoint stored so round activations to, and KV on auto.
DType TypeBesideInt8(v1::DataType stored, const HalfTypes& computed) {
  const DType half = computed.float16 ? DType::kF16 : DType::kF32;
  // GPUs have tensor cores and fast attention for 16 bits alone; CPUs keep what was stored exactly.
  const bool rounds = stored == v1::DATA_TYPE_BFLOAT16 || computed.float16;
  if (stored == v1::DATA_TYPE_FLOAT16 || !rounds) return half;
  return computed.bfloat16 ? DType::kBF16 : half;
}

}  // namespace

static_assert(kKvScaleBytes == kernels::kKvScaleBytes);
KvElement KvElementOf(DType dtype) {
  return kernels::HasKvScales(dtype) ? KvCodeElement() : KvElement(kernels::SizeInBytes(dtype));
}

absl::StatusOr<ResolvedDTypes> ResolveDTypes(const v1::Model& model, v1::DataType requested_weights,
                                             v1::DataType requested_kv, const HalfTypes& computed) {
  const bool stored_f16 = model.dtype() == v1::DATA_TYPE_FLOAT16;
  const DType half = computed.float16 ? DType::kF16 : DType::kF32;
  const bool stored_bf16 = model.dtype() == v1::DATA_TYPE_BFLOAT16;
  if (KeepsInt4(model) && requested_weights == v1::DATA_TYPE_INT8) {
    return absl::InvalidArgumentError(
        "the checkpoint's weights are quantised already and are not quantised to int8: leave out "
        "the coordinator's --quantization int8, or use the original checkpoint");
  }
  ResolvedDTypes chosen;
  switch (requested_weights) {
    case v1::DATA_TYPE_FLOAT32: chosen.weight_dtype = DType::kF32; break;
    case v1::DATA_TYPE_FLOAT16: chosen.weight_dtype = half; break;
    case v1::DATA_TYPE_BFLOAT16: chosen.weight_dtype = DType::kBF16; break;
    case v1::DATA_TYPE_INT8: chosen.weight_dtype = DType::kI8; break;
    case v1::DATA_TYPE_UNSPECIFIED:
      chosen.weight_dtype = stored_f16 ? half : DType::kF32;
      if (stored_bf16) chosen.weight_dtype = computed.bfloat16 ? DType::kBF16 : half;
      break;
    default:
      return absl::InvalidArgumentError(StrCat("weights cannot be computed as type ",
                                               static_cast<int>(requested_weights),
                                               "; use auto, float32, float16, bfloat16 or int8"));
  }
  // f32 where weights are f32: products and KV are then as exact.
  DType activations = chosen.weight_dtype;
  if (chosen.weight_dtype == DType::kI8) activations = TypeBesideInt8(model.dtype(), computed);
  if (chosen.weight_dtype == DType::kBF16 && !computed.bfloat16) activations = half;
  switch (requested_kv) {
    case v1::DATA_TYPE_FLOAT32: chosen.kv_dtype = DType::kF32; break;
    case v1::DATA_TYPE_BFLOAT16: chosen.kv_dtype = DType::kBF16; break;
    case v1::DATA_TYPE_INT8: chosen.kv_dtype = DType::kI8; break;
    case v1::DATA_TYPE_FP8: chosen.kv_dtype = DType::kF8; break;
    case v1::DATA_TYPE_FLOAT16:
      if (!computed.float16) {
        return absl::InvalidArgumentError(
            "KV cannot be kept as float16 on this device; use auto, float32, bfloat16, int8 or "
            "fp8");
      }
      chosen.kv_dtype = DType::kF16;
      break;
    default: chosen.kv_dtype = activations;
  }
  chosen.product_dtype = activations;
  const bool decoded = model.quantization().format() == v1::WEIGHT_FORMAT_GGUF;
  const std::string stored =
      model.dtype() == v1::DATA_TYPE_UNSPECIFIED
          ? "of no type named in config.json"
          : StrCat(decoded ? "taken as " : "stored as ", NameOf(model.dtype()));
  const bool widened = chosen.weight_dtype == DType::kF32 &&
                       (requested_weights == v1::DATA_TYPE_FLOAT16 ||
                        (requested_weights == v1::DATA_TYPE_UNSPECIFIED && stored_f16));
  chosen.reason = StrCat(MatricesText(model), stored, ", asked for ", NameOf(requested_weights),
                         ": computed as ", Name(chosen.weight_dtype),
                         widened ? " (float16 has no arithmetic here; float32 is exact)" : "",
                         "; activations are multiplied as ", Name(chosen.product_dtype),
                         "; KV asked for ", NameOf(requested_kv), ": ", Name(chosen.kv_dtype));
  return chosen;
}

}  // namespace tessera::worker
