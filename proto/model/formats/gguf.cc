// Blocks of GGUF files: consecutive inputs of an output, with the scales that they share.
//
// NAME.weight [out, in] is of one of the types below; layouts: worker/weights/gguf_blocks.
#include <algorithm>
#include <array>

#include "proto/model/formats/format.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

struct BlockType {
  std::string_view name;  // GgufType::name
  int64_t bits = 0;       // of a value, rounded up
  int64_t inputs = 0;     // of a block
};

constexpr std::array kBlockTypes = {BlockType{"Q4_0", 5, 32}, BlockType{"Q8_0", 9, 32},
                                    BlockType{"Q4_1", 5, 32}, BlockType{"Q4_K", 5, 256},
                                    BlockType{"Q6_K", 7, 256}};

const BlockType* FindBlockType(std::string_view dtype) {
  const auto found = std::find_if(kBlockTypes.begin(), kBlockTypes.end(),
                                  [&](const BlockType& type) { return type.name == dtype; });
  return found == kBlockTypes.end() ? nullptr : &*found;
}

bool HoldsGguf(const TensorDirectory& tensors, const std::string& name) {
  const auto codes = tensors.FindTensor(name + ".weight");
  if (!codes.has_value()) return false;
  // The others are refused by name.
  return FindBlockType(codes->dtype) != nullptr ||
         codes->dtype.find('Q') != std::string_view::npos || codes->dtype == "MXFP4";
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
               ": not supported; matrices are read from Q8_0, Q4_0, Q4_1, Q4_K, Q6_K, F32, F16 and "
               "BF16, as in files named Q8_0, Q4_0, Q4_1, Q6_K or Q4_K_S"));
  }
  const std::string_view types[] = {type->name};
  const auto found = ExpectTensor(tensors, matrix.codes, {matrix.rows, matrix.columns}, types, "");
  if (!found.ok()) return found.status();
  matrix.bits = type->bits;
  matrix.scaled_columns = type->inputs;
  matrix.keeps_codes = true;
  return matrix;
}

}  // namespace

extern const MatrixFormat kGgufFormat = {.holds = HoldsGguf, .find = FindGguf};

}  // namespace tessera
