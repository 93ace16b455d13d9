// Blocks of GGUF files: consecutive inputs of an output, with the scales that they share.
//
// NAME.weight [out, in] is of one of the types below; layouts: worker/weights/gguf_blocks.
#include <algorithm>
#include <array>
#include <string>

#include "proto/model/formats/format.h"
#include "proto/model/formats/formats.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

struct BlockType {
  std::string_view name;  // GgufType::name
  int64_t bits = 0;       // of a value, rounded up
  int64_t inputs = 0;     // of a block
  bool keeps_codes = true;
};

constexpr std::array kBlockTypes = {
    BlockType{"Q4_0", 5, 32},        BlockType{"Q4_1", 5, 32},   BlockType{"Q5_0", 6, 32},
    BlockType{"Q5_1", 6, 32, false}, BlockType{"Q8_0", 9, 32},   BlockType{"Q2_K", 3, 256},
    BlockType{"Q3_K", 4, 256},       BlockType{"Q4_K", 5, 256},  BlockType{"Q5_K", 6, 256, false},
    BlockType{"Q6_K", 7, 256},       BlockType{"IQ4_NL", 5, 32}, BlockType{"IQ4_XS", 5, 256},
    BlockType{"MXFP4", 5, 32}};

const BlockType* FindBlockType(std::string_view dtype) {
  const auto found = std::find_if(kBlockTypes.begin(), kBlockTypes.end(),
                                  [&](const BlockType& type) { return type.name == dtype; });
  return found == kBlockTypes.end() ? nullptr : &*found;
}

bool HoldsGguf(const TensorDirectory& tensors, const std::string& name) {
  const auto codes = tensors.FindTensor(name + ".weight");
  if (!codes.has_value()) return false;
  // The others are refused by name.
  return FindBlockType(codes->dtype) != nullptr || codes->dtype.find('Q') != std::string_view::npos;
}

absl::StatusOr<StoredMatrix> FindGguf(const TensorDirectory& tensors,
                                      const v1::Quantization& /*quantization*/,
                                      const std::string& name, StoredMatrix matrix) {
  matrix.as = StoredAs::kGguf;
  matrix.codes = name + ".weight";
  const std::string_view dtype = tensors.FindTensor(matrix.codes)->dtype;
  const BlockType* type = FindBlockType(dtype);
  if (type == nullptr) {
    return absl::InvalidArgumentError(
        StrCat(tensors.DescribeTensor(matrix.codes), " is ", dtype,
               ": not supported; matrices are read from ", GgufTypeTexts(),
               "; take another file of the model, such as one of Q4_K_M or Q8_0"));
  }
  const std::string_view types[] = {type->name};
  const auto found = ExpectTensor(tensors, matrix.codes, {matrix.rows, matrix.columns}, types, "");
  if (!found.ok()) return found.status();
  matrix.bits = type->bits;
  matrix.scaled_columns = type->inputs;
  matrix.keeps_codes = type->keeps_codes;
  return matrix;
}

}  // namespace

std::string GgufTypeTexts() {
  std::string text;
  for (const BlockType& type : kBlockTypes) text = StrCat(text, type.name, ", ");
  return StrCat(text, "F32, F16, BF16");
}

extern const MatrixFormat kGgufFormat = {.holds = HoldsGguf, .find = FindGguf};

}  // namespace tessera
