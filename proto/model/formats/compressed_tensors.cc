// compressed-tensors (llm-compressor, RedHat): the groups of its quantization_config, and matrices
// of its pack-quantized; float-quantized and int-quantized are codes of a byte (eight_bits.cc),
// nvfp4- and mxfp4-pack-quantized floats of four bits (four_bit_floats.cc).
//
// NAME.weight_packed [out, in * bits / 32] has the codes of an output's inputs, from the lowest
// bits of a word on, stored with 2^(bits - 1) added; NAME.weight_scale [out, groups] the scales;
// NAME.weight_zero_point [out * bits / 32, groups] zeros of neighbouring outputs, packed alike,
// else they are 2^(bits - 1); NAME.weight_g_idx [in] the group of each input. Source: the package
// compressed-tensors 0.20 (pack_quantized/helpers.py).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/numbers.h"
#include "proto/model/formats/format.h"
#include "proto/model/formats/methods.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kWordBits = 32, kMaxKeptBits = 4;
constexpr int64_t kGroupUnit = 8, kMaxGroup = int64_t{1} << 22;
constexpr std::string_view kWords[] = {"I32"};
constexpr std::string_view kScaleTypes[] = {"F32", "F16", "BF16"};
constexpr const char* kWordsWhy = "; packed weights must be I32";

bool HoldsPacked(const TensorDirectory& tensors, const std::string& name) {
  return tensors.FindTensor(name + ".weight_packed").has_value();
}

// Bits of a code by the words of a row; 4 where they fit none: the check of shapes then fails.
int64_t PackedBits(const StoredTensor& words, int64_t columns) {
  for (int64_t bits = 2; bits <= 8; ++bits) {
    if (words.shape.size() == 2 && words.shape[1] == CeilOf(columns * bits, kWordBits)) return bits;
  }
  return 4;
}

absl::StatusOr<StoredMatrix> FindPacked(const TensorDirectory& tensors,
                                        const v1::Quantization& /*quantization*/,
                                        const std::string& name, StoredMatrix matrix) {
  const int64_t rows = matrix.rows, columns = matrix.columns;
  matrix.as = StoredAs::kPacked;
  matrix.codes = name + ".weight_packed";
  matrix.scales = name + ".weight_scale";
  matrix.further.push_back(name + ".weight_shape");
  matrix.bits = PackedBits(*tensors.FindTensor(matrix.codes), columns);
  auto found = ExpectTensor(tensors, matrix.codes, {rows, CeilOf(columns * matrix.bits, kWordBits)},
                            kWords, kWordsWhy);
  if (!found.ok()) return found.status();
  const auto scales = tensors.FindTensor(matrix.scales);
  int64_t groups = scales.has_value() && scales->shape.size() == 2 ? scales->shape[1] : 1;
  if (groups < 1 || columns % groups != 0) groups = 1;
  matrix.scaled_columns = columns / groups;
  found = ExpectTensor(tensors, matrix.scales, {rows, groups}, kScaleTypes,
                       "; scales must be F32, F16 or BF16");
  if (!found.ok()) return found.status();
  const bool exact = found->dtype != "F32";  // in a word of kernels/int4_rows.h
  if (const std::string zeros = name + ".weight_zero_point"; tensors.FindTensor(zeros)) {
    matrix.zeros = zeros;
    found = ExpectTensor(tensors, zeros, {CeilOf(rows * matrix.bits, kWordBits), groups}, kWords,
                         kWordsWhy);
    if (!found.ok()) return found.status();
  }
  if (const std::string order = name + ".weight_g_idx"; tensors.FindTensor(order)) {
    matrix.order = order;
    found = ExpectTensor(tensors, order, {columns}, kWords, "; numbers of groups must be I32");
    if (!found.ok()) return found.status();
  }
  matrix.keeps_codes = matrix.bits <= kMaxKeptBits && matrix.order.empty() && exact &&
                       (groups == 1 || matrix.scaled_columns % kGroupUnit == 0);
  return matrix;
}

// What is known of the groups of one config: whether any is kept as int4, and the widest of those;
// whether all are FP8, and the narrowest of floats of four bits.
struct Groups {
  bool has_weights = false;
  bool keeps_codes = false;
  bool all_float = true;
  int32_t float_group = 0;  // inputs that share a scale of floats of four bits; 0: has none
  int64_t widest = 0;       // inputs that share a scale; 0: all, in every group
  void Keep(int64_t group) {
    keeps_codes = true;
    widest = std::max(widest, group);
  }
};

// Outputs and inputs of a block: a list of two, or "128x128" as older files have it.
std::vector<int64_t> BlockSizes(JsonReader& weights) {
  constexpr const char* kKey = "block_structure";
  if (!weights.Has(kKey) || !weights.At(kKey).is_string()) {
    return weights.Integers(kKey, 1, kMaxGroup);
  }
  const std::string text = weights.StringOr(kKey, "");
  const size_t mark = std::min(text.find('x'), text.size());
  int64_t rows = 0, columns = 0;
  const bool read = absl::SimpleAtoi(text.substr(0, mark), &rows) && mark < text.size() &&
                    absl::SimpleAtoi(text.substr(mark + 1), &columns);
  if (!read || std::min(rows, columns) < 1 || std::max(rows, columns) > kMaxGroup) return {};
  return {rows, columns};
}

void ReadBlockStructure(JsonReader& weights, v1::Quantization* quantization) {
  const std::vector<int64_t> sizes = BlockSizes(weights);
  if (!weights.ok()) return;
  if (sizes.size() != 2) {
    weights.Fail("block_structure", "must be two numbers: outputs and inputs of a block");
    return;
  }
  const auto rows = static_cast<int32_t>(sizes[0]), columns = static_cast<int32_t>(sizes[1]);
  if (quantization->block_rows() != 0 &&
      (quantization->block_rows() != rows || quantization->block_columns() != columns)) {
    weights.Fail("block_structure", "of unlike sizes in unlike groups is not supported");
    return;
  }
  quantization->set_block_rows(rows);
  quantization->set_block_columns(columns);
}

// The keys of config_groups.NAME.weights.
void ReadWeights(JsonReader& weights, Groups* groups, v1::Quantization* quantization) {
  const std::string type = weights.StringOr("type", "int");
  const int64_t bits = weights.IntegerOr("num_bits", 8, 1, 64);
  const bool is_float = type == "float";
  if (!is_float && type != "int") {
    weights.Fail("type", StrCat("'", type.substr(0, 60), "' is not supported", kOtherCheckpoint));
  } else if (is_float ? bits != 8 && bits != 4 : bits < 2 || bits > 8) {
    weights.Fail("num_bits", StrCat(bits, " of type ", type, " is not supported; known are ",
                                    is_float ? "4 and 8" : "2 to 8", kOtherCheckpoint));
  }
  const std::string strategy = weights.StringOr("strategy", "");
  if (strategy == "block") {
    ReadBlockStructure(weights, quantization);
  } else if (strategy != "tensor" && strategy != "channel" && strategy != "group" &&
             strategy != "tensor_group" && !strategy.empty()) {
    weights.Fail("strategy", StrCat("'", strategy.substr(0, 60),
                                    "' is not supported; known are tensor, channel, group, ",
                                    "tensor_group and block", kOtherCheckpoint));
  }
  const int64_t group = weights.IntegerOr("group_size", -1, -1, kMaxGroup);
  if (is_float && bits == 4 && groups->float_group != kNvfp4Inputs) {
    groups->float_group = group == kMxfp4Inputs ? kMxfp4Inputs : kNvfp4Inputs;
  }
  // Without a kept order of groups, inputs that share a scale are neighbours.
  const bool ordered = weights.Has("actorder") && weights.At("actorder").is_string() &&
                       (weights.StringOr("actorder", "") == "group" ||
                        weights.StringOr("actorder", "") == "dynamic");
  const bool fits = group < 1 || group % kGroupUnit == 0;
  groups->all_float = groups->all_float && is_float;
  if (!is_float && bits <= kMaxKeptBits && !ordered && fits) groups->Keep(group < 1 ? 0 : group);
}

void ReadGroup(JsonReader& reader, const std::string& name, const nlohmann::json& value,
               Groups* groups, v1::Quantization* quantization) {
  const std::string place = StrCat("config_groups.", name.substr(0, 60));
  if (!value.is_object()) {
    reader.Fail(place, "must be an object: named schemes are not supported");
    return;
  }
  JsonReader group(value, reader.file(), StrCat("quantization_config.", place, "."));
  RefuseKey(group, "output_activations", "rounded outputs are not supported");
  if (group.Has("weights") && group.At("weights").is_object()) {
    JsonReader weights(group.At("weights"), reader.file(),
                       StrCat("quantization_config.", place, ".weights."));
    ReadWeights(weights, groups, quantization);
    group.Adopt(weights.status());
    groups->has_weights = true;
  } else if (!group.Has("input_activations")) {
    // Else activations alone are rounded, which is not done here.
    group.Fail("weights", "is missing");
  }
  reader.Adopt(group.status());
}

void CheckFormatName(JsonReader& reader) {
  const std::string format = reader.StringOr("format", "pack-quantized");
  for (const char* known :
       {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
        "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision", "dense"}) {
    if (format == known) return;
  }
  reader.Fail("format", StrCat("'", format.substr(0, 60),
                               "' is not supported; known are pack-quantized, int-quantized, ",
                               "float-quantized, naive-quantized, nvfp4-pack-quantized and ",
                               "mxfp4-pack-quantized", kOtherCheckpoint));
}

}  // namespace

void ReadCompressedTensors(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_COMPRESSED_TENSORS);
  CheckFormatName(reader);
  RefuseKey(reader, "transform_config", "rotated weights are not supported");
  if (reader.Has("sparsity_config") && reader.At("sparsity_config").is_object()) {
    JsonReader sparsity(reader.At("sparsity_config"), reader.file(),
                        "quantization_config.sparsity_config.");
    const std::string format = sparsity.StringOr("format", "dense");
    if (format != "dense") {
      sparsity.Fail("format", StrCat("'", format.substr(0, 60), "' is not supported: dense is"));
    }
    reader.Adopt(sparsity.status());
  }
  if (!reader.Has("config_groups") || !reader.At("config_groups").is_object()) {
    reader.Fail("config_groups", "must be an object");
    return;
  }
  Groups groups;
  for (const auto& [name, group] : reader.At("config_groups").items()) {
    ReadGroup(reader, name, group, &groups, quantization);
  }
  if (groups.float_group > 0 && !groups.keeps_codes) {
    PlanFourBitFloats(groups.float_group, quantization);
    return;
  }
  if (groups.all_float && groups.has_weights) PlanFp8(quantization);
  quantization->set_decoded(!groups.keeps_codes);
  quantization->set_group_size(static_cast<int32_t>(groups.widest));
}

extern const MatrixFormat kPackQuantizedFormat = {.holds = HoldsPacked, .find = FindPacked};

}  // namespace tessera
