// Codes of a byte with scales: FP8 (e4m3) as DeepSeek, Qwen, FBGEMM and ModelOpt write it, and the
// float-quantized and int-quantized of compressed-tensors.
//
// NAME.weight [out, in] has the codes. NAME.weight_scale_inv or NAME.weight_scale has the scales,
// which multiply whatever their name says: one, one an output, one for each group of an output's
// inputs, or one for each block, which quantization_config names the size of; blocks at the edges
// are smaller. NAME.weight_zero_point is of int8 alone.
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "proto/activations.h"
#include "proto/model/formats/format.h"
#include "proto/model/formats/methods.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr std::string_view kCodes[] = {"F8_E4M3", "I8"};
constexpr std::string_view kZeros[] = {"I8"};
constexpr int64_t kMaxBlock = int64_t{1} << 20;
constexpr int64_t kMinKeptGroup = 32;
constexpr int64_t kBlock = 128;  // where quantization_config names none
constexpr const char *kAlgorithm = "quant_algo", *kLayers = "quantized_layers";

// Whether kernels have groups of so many inputs.
bool KeepsFp8(int64_t scaled_columns) { return scaled_columns % kMinKeptGroup == 0; }

// Bytes of a weight with its part of the scale, an f32 for at most 128 inputs as workers hold it; 0
// columns: all of an output's inputs share one.
double HeldFp8Bytes(int64_t scaled_columns) {
  return 1 + 4.0 / static_cast<double>(Int4GroupInputs(scaled_columns));
}

bool HoldsEightBits(const TensorDirectory& tensors, const std::string& name) {
  const auto codes = tensors.FindTensor(name + ".weight");
  return codes.has_value() && (codes->dtype == kCodes[0] || codes->dtype == kCodes[1]);
}

bool IsScaleType(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F8_E8M0" || dtype == "U8";
}

// Outputs and inputs that share a scale, by the shape of the scales. False: it fits nothing.
bool FindBlock(absl::Span<const int64_t> shape, const v1::Quantization& quantization,
               StoredMatrix* matrix) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  matrix->scaled_rows = matrix->rows;
  matrix->scaled_columns = matrix->columns;
  if (count == 1) return true;
  const bool column = shape.size() == 1 || (shape.size() == 2 && shape[1] == 1);
  const int64_t block_rows = quantization.block_rows(),
                block_columns = quantization.block_columns();
  const bool in_blocks = block_rows > 0 && shape.size() == 2 &&
                         shape[0] == CeilOf(matrix->rows, block_rows) &&
                         shape[1] == CeilOf(matrix->columns, block_columns);
  if (in_blocks) {
    matrix->scaled_rows = block_rows;
    matrix->scaled_columns = block_columns;
    return true;
  }
  if (shape.empty() || shape.size() > 2 || shape[0] != matrix->rows) return false;
  matrix->scaled_rows = 1;
  if (column) return true;
  matrix->scaled_columns = matrix->columns / shape[1];
  return matrix->columns % shape[1] == 0;
}

absl::StatusOr<StoredMatrix> FindEightBits(const TensorDirectory& tensors,
                                           const v1::Quantization& quantization,
                                           const std::string& name, StoredMatrix matrix) {
  matrix.as = StoredAs::kEightBits;
  matrix.bits = 8;
  matrix.codes = name + ".weight";
  auto found = ExpectTensor(tensors, matrix.codes, {matrix.rows, matrix.columns}, kCodes, "");
  if (!found.ok()) return found.status();
  matrix.scales = name + ".weight_scale_inv";
  if (!tensors.FindTensor(matrix.scales).has_value()) matrix.scales = name + ".weight_scale";
  const auto scales = tensors.FindTensor(matrix.scales);
  if (!scales.has_value()) {
    return absl::NotFoundError(StrCat(tensors.DescribeTensor(matrix.codes), " is ", found->dtype,
                                      ", and no file has its scales '", matrix.scales, "'"));
  }
  if (!IsScaleType(scales->dtype)) {
    return absl::InvalidArgumentError(StrCat(tensors.DescribeTensor(matrix.scales), " is ",
                                             scales->dtype,
                                             "; scales must be F32, F16, BF16 or F8_E8M0"));
  }
  if (!FindBlock(scales->shape, quantization, &matrix)) {
    return absl::InvalidArgumentError(
        StrCat(tensors.DescribeTensor(matrix.scales), " has the shape ", ShapeText(scales->shape),
               ", which is neither one scale, nor one for each of ", matrix.rows,
               " outputs, nor one for each block",
               quantization.block_rows() == 0 ? std::string(": config.json names no size of blocks")
                                              : StrCat(" of ", quantization.block_rows(), " x ",
                                                       quantization.block_columns(), " weights")));
  }
  const bool is_float = found->dtype == kCodes[0];
  const std::string zeros = name + ".weight_zero_point";
  if (!is_float && tensors.FindTensor(zeros).has_value()) {
    found =
        ExpectTensor(tensors, zeros, scales->shape, kZeros, "; zeros of int8 weights must be I8");
    if (!found.ok()) return found.status();
    matrix.zeros = zeros;
  } else {
    matrix.further.push_back(zeros);
  }
  // As FP8 in groups that kernels have; int8 may have the code -128, which they do not.
  const bool cut = matrix.scaled_columns < matrix.columns;
  matrix.keeps_codes = is_float && (!cut || KeepsFp8(matrix.scaled_columns));
  if (matrix.keeps_codes) matrix.held_bytes = HeldFp8Bytes(cut ? matrix.scaled_columns : 0);
  // Activations keep their type.
  for (const char* other : {".input_scale", ".activation_scale", ".input_zero_point"}) {
    matrix.further.push_back(name + other);
  }
  return matrix;
}

// Notes a value of quant_algo. True: it is one of four bits.
bool AddAlgorithm(JsonReader& reader, const std::string& algorithm,
                  v1::Quantization* quantization) {
  if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4") return true;
  if (algorithm == "FP8_PB_WO") {
    quantization->set_block_rows(kBlock);
    quantization->set_block_columns(kBlock);
  } else if (algorithm != "FP8" && algorithm != "FP8_PER_CHANNEL_PER_TOKEN") {
    reader.Fail(
        kAlgorithm,
        StrCat("'", algorithm.substr(0, 60), "' is not supported; known are FP8, ",
               "FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4 and W4A16_NVFP4", kOtherCheckpoint));
  }
  return false;
}

void SetBlock(JsonReader& reader, const char* key, v1::Quantization* quantization) {
  const std::vector<int64_t> sizes = reader.Integers(key, 1, kMaxBlock);
  if (!reader.ok()) return;
  if (sizes.size() != 2) {
    reader.Fail(key, "must be two numbers: outputs and inputs of a block");
    return;
  }
  quantization->set_block_rows(static_cast<int32_t>(sizes[0]));
  quantization->set_block_columns(static_cast<int32_t>(sizes[1]));
}

}  // namespace

void PlanFp8(v1::Quantization* quantization) {
  quantization->set_decoded(true);  // none is int4
  const int64_t columns = quantization->block_columns();
  if (columns == 0 || KeepsFp8(columns)) quantization->set_code_bytes(HeldFp8Bytes(columns));
}

void ReadFp8(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_FP8);
  for (const auto& [key, known] : {std::pair("fmt", "e4m3"), std::pair("expert_dtype", "fp8")}) {
    const std::string value = reader.StringOr(key, known);
    if (value == known || value == "float8_e4m3fn") continue;  // as torch calls it
    reader.Fail(key, StrCat("'", value.substr(0, 60), "' is not supported: ", known, " is",
                            kOtherCheckpoint));
  }
  if (reader.Has("weight_block_size")) {
    SetBlock(reader, "weight_block_size", quantization);
  } else if (!reader.HasKey("weight_block_size")) {
    quantization->set_block_rows(kBlock);
    quantization->set_block_columns(kBlock);
  }
  PlanFp8(quantization);
}

// A scale for each output; the bound of activations' scales has no use where they are not rounded.
void ReadFbgemmFp8(JsonReader&, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_FP8);
  PlanFp8(quantization);
}

void ReadModelOpt(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_FP8);
  const std::string algorithm = reader.StringOr(kAlgorithm, "");
  bool four_bits = false;
  if (algorithm != "MIXED_PRECISION") {
    four_bits = AddAlgorithm(reader, algorithm, quantization);
  } else if (reader.Has(kLayers) && reader.At(kLayers).is_object()) {
    for (const auto& [name, layer] : reader.At(kLayers).items()) {
      const std::string key = StrCat(kLayers, ".", name.substr(0, 120));
      if (!layer.is_object()) {
        reader.Fail(key, "must be an object");
        return;
      }
      JsonReader own(layer, reader.file(), StrCat("quantization_config.", key, "."));
      four_bits |= AddAlgorithm(own, own.StringOr(kAlgorithm, ""), quantization);
      reader.Adopt(own.status());
    }
  } else {
    reader.Fail(kLayers, StrCat("is missing: with MIXED_PRECISION it names the algorithm of each ",
                                "layer", kOtherCheckpoint));
  }
  // Which matrices are FP8 among those of four bits the tensors say.
  four_bits ? PlanFourBitFloats(kNvfp4Inputs, quantization) : PlanFp8(quantization);
}

extern const MatrixFormat kEightBitsFormat = {.holds = HoldsEightBits, .find = FindEightBits};

}  // namespace tessera
