// MXFP4 as gpt-oss has it: of a matrix NAME, or of NAME with those of all experts of a layer,
// NAME_blocks [.., out, in / 32, 16] of U8 holds codes of 4 bits, NAME_scales [.., out, in / 32] of
// U8 the exponents of their scales.
#include <string>
#include <vector>

#include "proto/model/formats/format.h"
#include "proto/model/formats/methods.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr std::string_view kBytes[] = {"U8"};
constexpr int64_t kBlock = 32;  // inputs of a scale
// Workers hold a code in a byte, a scale in four.
constexpr double kHeldBytes = 1 + 4.0 / kBlock;

bool HoldsMxfp4(const TensorDirectory& tensors, const std::string& name) {
  return tensors.FindTensor(name + "_blocks").has_value();
}

// [outputs, inputs / 32] behind as many experts as the tensor has, whose outputs are numbered
// through.
std::vector<int64_t> ShapeOfScales(const TensorDirectory& tensors, const StoredMatrix& matrix) {
  std::vector<int64_t> shape = {matrix.rows, matrix.columns / kBlock};
  const auto codes = tensors.FindTensor(matrix.codes);
  if (!codes.has_value() || codes->shape.size() != 4 || codes->shape[0] < 1) return shape;
  if (matrix.rows % codes->shape[0] != 0) return shape;
  shape[0] = matrix.rows / codes->shape[0];
  shape.insert(shape.begin(), codes->shape[0]);
  return shape;
}

absl::StatusOr<StoredMatrix> FindMxfp4(const TensorDirectory& tensors,
                                       const v1::Quantization& /*quantization*/,
                                       const std::string& name, StoredMatrix matrix) {
  matrix.as = StoredAs::kMxfp4;
  matrix.bits = 4;
  matrix.keeps_codes = true;
  matrix.held_bytes = kHeldBytes;
  matrix.scaled_columns = kBlock;
  matrix.codes = name + "_blocks";
  matrix.scales = name + "_scales";
  if (matrix.columns % kBlock != 0) {
    return absl::InvalidArgumentError(
        StrCat(tensors.DescribeTensor(matrix.codes), " is of a matrix with ", matrix.columns,
               " inputs, which are no multiple of ", kBlock, ", as MXFP4 needs"));
  }
  std::vector<int64_t> shape = ShapeOfScales(tensors, matrix);
  constexpr const char* kWhy = "; MXFP4 is read as U8";
  auto found = ExpectTensor(tensors, matrix.scales, shape, kBytes, kWhy);
  if (!found.ok()) return found.status();
  shape.push_back(kBlock / 2);
  found = ExpectTensor(tensors, matrix.codes, shape, kBytes, kWhy);
  if (!found.ok()) return found.status();
  return matrix;
}

}  // namespace

void ReadMxfp4(JsonReader& /*reader*/, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_MXFP4);
  quantization->set_group_size(kBlock);
  // Until the tensors say which matrices are quantised: nearly all are of experts.
  quantization->set_code_bytes(kHeldBytes);
}

extern const MatrixFormat kMxfp4Format = {.holds = HoldsMxfp4, .find = FindMxfp4};

}  // namespace tessera
