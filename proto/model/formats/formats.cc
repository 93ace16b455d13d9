#include "proto/model/formats/formats.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "proto/model/formats/format.h"
#include "proto/model/formats/methods.h"
#include "third_party/absl/str_cat.h"

namespace tessera {

// Defined in the file of their format.
extern const MatrixFormat kBitsAndBytesFormat;
extern const MatrixFormat kEightBitsFormat;
extern const MatrixFormat kFourBitFloatsFormat;
extern const MatrixFormat kGgufFormat;
extern const MatrixFormat kMxfp4Format;
extern const MatrixFormat kPackedWordsFormat;
extern const MatrixFormat kPackQuantizedFormat;

namespace {

constexpr std::array kMethods = {
    QuantizationMethod{.name = "awq", .text = "AWQ (gemm), 4 bits", .read = ReadAwq},
    QuantizationMethod{
        .name = "gptq", .text = "GPTQ, 2 to 8 bits, with act-order or without", .read = ReadGptq},
    QuantizationMethod{
        .name = "auto-round", .text = "AutoRound, packed as GPTQ or AWQ", .read = ReadAutoRound},
    QuantizationMethod{.name = "intel/auto-round", .text = "", .read = ReadAutoRound},
    QuantizationMethod{
        .name = "fp8", .text = "FP8 (e4m3), scales per tensor, output or block", .read = ReadFp8},
    QuantizationMethod{.name = "fbgemm_fp8", .text = "FP8 of FBGEMM", .read = ReadFbgemmFp8},
    QuantizationMethod{
        .name = "modelopt", .text = "FP8 and NVFP4 of ModelOpt", .read = ReadModelOpt},
    QuantizationMethod{.name = "modelopt_fp4", .text = "", .read = ReadModelOpt},
    QuantizationMethod{
        .name = "compressed-tensors",
        .text = "compressed-tensors: pack-, int-, float-, nvfp4- and mxfp4-quantized",
        .read = ReadCompressedTensors},
    QuantizationMethod{.name = "bitsandbytes",
                       .text = "bitsandbytes, 4 bits (NF4, FP4)",
                       .read = ReadBitsAndBytes},
    QuantizationMethod{.name = "mxfp4", .text = "MXFP4 of gpt-oss", .read = ReadMxfp4}};

// The first that a matrix is held in.
constexpr std::array kMatrixFormats = {
    &kPackedWordsFormat,  &kFourBitFloatsFormat, &kPackQuantizedFormat, &kEightBitsFormat,
    &kBitsAndBytesFormat, &kGgufFormat,          &kMxfp4Format};

// Some tools leave the method out.
std::string MethodOf(JsonReader& reader) {
  if (reader.Has("quant_method")) return reader.StringOr("quant_method", "");
  if (reader.Has("config_groups")) return "compressed-tensors";
  return reader.Has("quant_algo") ? "modelopt" : "";
}

}  // namespace

std::vector<std::string_view> FormatTexts() {
  std::vector<std::string_view> texts;
  for (const QuantizationMethod& method : kMethods) {
    if (*method.text != '\0') texts.push_back(method.text);
  }
  return texts;
}

std::string_view FormatName(const v1::Quantization& quantization) {
  switch (quantization.format()) {
    case v1::WEIGHT_FORMAT_AWQ: return "AWQ";
    case v1::WEIGHT_FORMAT_GPTQ: return "GPTQ";
    case v1::WEIGHT_FORMAT_FP8: return "FP8";
    case v1::WEIGHT_FORMAT_COMPRESSED_TENSORS:
      // Groups of what is decoded have no other use.
      if (!quantization.decoded() || quantization.group_size() == 0) return "compressed-tensors";
      return quantization.group_size() == kMxfp4Inputs ? "MXFP4" : "NVFP4";
    case v1::WEIGHT_FORMAT_BITSANDBYTES: return "bitsandbytes";
    case v1::WEIGHT_FORMAT_MXFP4: return "MXFP4";
    case v1::WEIGHT_FORMAT_GGUF: return "GGUF";
    default: return "plain";
  }
}

void ReadQuantization(JsonReader& config, v1::Model* model) {
  // The second is what compressed-tensors wrote at first.
  const char* key =
      config.Has("quantization_config") ? "quantization_config" : "compression_config";
  if (!config.Has(key)) return;
  if (!config.At(key).is_object()) {
    config.Fail(key, "must be an object");
    return;
  }
  JsonReader reader(config.At(key), config.file(), StrCat(key, "."));
  const std::string name = MethodOf(reader);
  const QuantizationMethod* found = nullptr;
  for (const QuantizationMethod& method : kMethods) {
    if (name == method.name) found = &method;
  }
  v1::Quantization quantization;
  if (found != nullptr) {
    found->read(reader, &quantization);
  } else {
    reader.Fail("quant_method",
                StrCat("'", name.substr(0, 60), "' is not supported", kOtherCheckpoint));
  }
  config.Adopt(reader.status());
  if (config.ok()) *model->mutable_quantization() = quantization;
}

absl::StatusOr<StoredMatrix> FindMatrix(const TensorDirectory& tensors,
                                        const v1::Quantization* quantization,
                                        const std::string& name, int64_t rows, int64_t columns) {
  StoredMatrix matrix;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.codes = name + ".weight";
  const auto weight = tensors.FindTensor(matrix.codes);
  const bool plain = weight.has_value() && IsFloat(weight->dtype);
  for (const MatrixFormat* format : kMatrixFormats) {
    if (plain || !format->holds(tensors, name)) continue;
    if (quantization != nullptr) return format->find(tensors, *quantization, name, matrix);
    for (const std::string& codes : {matrix.codes, name + ".qweight", name + ".weight_packed"}) {
      const auto tensor = tensors.FindTensor(codes);
      if (!tensor.has_value()) continue;
      return absl::InvalidArgumentError(
          StrCat(tensors.DescribeTensor(codes), " is ", tensor->dtype, NotFloat(false)));
    }
  }
  const auto found = ExpectFloat(tensors, matrix.codes, {rows, columns}, quantization != nullptr);
  if (!found.ok()) return found.status();
  return matrix;
}

}  // namespace tessera
