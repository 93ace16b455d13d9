// Codes of e2m1, two in a byte, the even input in the low bits: NVFP4 (a scale of e4m3 for 16
// inputs, and one number for the matrix) of ModelOpt and compressed-tensors, and the MXFP4 of
// compressed-tensors (a power of two for 32 inputs).
//
// compressed-tensors: NAME.weight_packed [out, in / 2] of U8, NAME.weight_scale [out, in / 16 or
// 32], of F8_E4M3 or U8; NVFP4's scales are divided by NAME.weight_global_scale. ModelOpt:
// NAME.weight, NAME.weight_scale, and NAME.weight_scale_2, which multiplies. Sources: the package
// compressed-tensors 0.20 (compressors/nvfp4, mxfp4), ModelOpt's NVFP4QTensor.
#include <string>
#include <vector>

#include "proto/model/formats/format.h"
#include "proto/model/formats/methods.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr std::string_view kBytes[] = {"U8"};
constexpr std::string_view kScaleTypes[] = {"F8_E4M3", "U8"};
constexpr std::string_view kNumbers[] = {"F32"};

bool IsBytes(const TensorDirectory& tensors, const std::string& name) {
  const auto tensor = tensors.FindTensor(name);
  return tensor.has_value() && tensor->dtype == kBytes[0];
}

bool IsPackedFloats(const TensorDirectory& tensors, const std::string& name) {
  return IsBytes(tensors, name + ".weight_packed");
}

bool HoldsFourBitFloats(const TensorDirectory& tensors, const std::string& name) {
  return IsPackedFloats(tensors, name) || (IsBytes(tensors, name + ".weight") &&
                                           tensors.FindTensor(name + ".weight_scale").has_value());
}

absl::StatusOr<StoredMatrix> FindFourBitFloats(const TensorDirectory& tensors,
                                               const v1::Quantization& /*quantization*/,
                                               const std::string& name, StoredMatrix matrix) {
  const bool packed = IsPackedFloats(tensors, name);
  matrix.as = StoredAs::kFourBitFloats;
  matrix.bits = 4;
  if (packed) matrix.codes = name + ".weight_packed";
  matrix.scales = name + ".weight_scale";
  // What NVFP4_AWQ adds, and groups that are not symmetric.
  for (const char* other : {".pre_quant_scale", ".weight_zero_point"}) {
    if (!tensors.FindTensor(name + other).has_value()) continue;
    return absl::InvalidArgumentError(StrCat(tensors.DescribeTensor(name + other),
                                             " beside codes of FP4 is not supported",
                                             kOtherCheckpoint));
  }
  const auto scales = tensors.FindTensor(matrix.scales);
  const bool powers = scales.has_value() && scales->dtype == kScaleTypes[1];
  matrix.scaled_columns = powers ? kMxfp4Inputs : kNvfp4Inputs;
  if (matrix.columns % matrix.scaled_columns != 0) {
    return absl::InvalidArgumentError(
        StrCat(tensors.DescribeTensor(matrix.codes), " is of a matrix with ", matrix.columns,
               " inputs, which are no multiple of ", matrix.scaled_columns, ", as ",
               powers ? "MXFP4" : "NVFP4", " needs"));
  }
  auto found = ExpectTensor(tensors, matrix.codes, {matrix.rows, matrix.columns / 2}, kBytes, "");
  if (!found.ok()) return found.status();
  found =
      ExpectTensor(tensors, matrix.scales, {matrix.rows, matrix.columns / matrix.scaled_columns},
                   kScaleTypes, "; scales must be F8_E4M3, or U8 for powers of two");
  if (!found.ok()) return found.status();
  if (!powers) {
    matrix.matrix_scale = StrCat(name, packed ? ".weight_global_scale" : ".weight_scale_2");
    matrix.divides_scales = packed;
    const auto number = tensors.FindTensor(matrix.matrix_scale);
    const bool is_scalar = number.has_value() && number->shape.empty();
    found = ExpectTensor(tensors, matrix.matrix_scale, std::vector<int64_t>(is_scalar ? 0 : 1, 1),
                         kNumbers, "; it must be F32");
    if (!found.ok()) return found.status();
    matrix.further.push_back(matrix.matrix_scale);
  }
  // In codes of a byte. GPUs have no kernel for groups of 16.
  matrix.cpus_keep_codes = true;
  // Activations keep their type.
  for (const char* other : {".input_scale", ".input_global_scale"}) {
    matrix.further.push_back(name + other);
  }
  return matrix;
}

}  // namespace

void PlanFourBitFloats(int32_t scaled_inputs, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_COMPRESSED_TENSORS);
  quantization->set_group_size(scaled_inputs);
  quantization->set_decoded(true);
}

extern const MatrixFormat kFourBitFloatsFormat = {.holds = HoldsFourBitFloats,
                                                  .find = FindFourBitFloats};

}  // namespace tessera
