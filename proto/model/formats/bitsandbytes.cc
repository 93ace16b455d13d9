// bitsandbytes of 4 bits: NF4, and FP4, whose codes are places in a table of 16 values.
//
// NAME.weight U8 [out * in / 2, 1] has the codes, row after row, the first weight in the upper half
// of a byte. NAME.weight.absmax has the scales of blocks of so many weights, wherever rows end, as
// the JSON text in NAME.weight.quant_state.bitsandbytes__nf4 says: F32, or codes of U8, which
// NAME.weight.nested_quant_map F32 [256] turns into numbers that NAME.weight.nested_absmax scales.
// NAME.weight.quant_map F32 [16] is the table. Source: bitsandbytes 0.50 (functional.py,
// QuantState).
#include <string>

#include "proto/model/formats/format.h"
#include "proto/model/formats/methods.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr std::string_view kBytes[] = {"U8"};
constexpr std::string_view kFloat32[] = {"F32"};
constexpr std::string_view kAbsmax[] = {"F32", "U8"};
constexpr int64_t kTableSize = 16, kNestedTableSize = 256;

bool HoldsBitsAndBytes(const TensorDirectory& tensors, const std::string& name) {
  return tensors.FindTensor(name + ".weight.quant_map").has_value();
}

absl::StatusOr<StoredMatrix> FindBitsAndBytes(const TensorDirectory& tensors,
                                              const v1::Quantization& /*quantization*/,
                                              const std::string& name, StoredMatrix matrix) {
  matrix.as = StoredAs::kTable;
  matrix.bits = 4;
  matrix.codes = name + ".weight";
  matrix.scales = matrix.codes + ".absmax";
  const int64_t weights = matrix.rows * matrix.columns;
  if (weights % 2 != 0) {
    return absl::InvalidArgumentError(StrCat("matrix '", name, "' has an odd number of weights"));
  }
  auto found = ExpectTensor(tensors, matrix.codes, {weights / 2, 1}, kBytes,
                            "; packed weights must be U8 (bnb_4bit_quant_storage uint8)");
  const auto expect = [&](const std::string& suffix, absl::Span<const int64_t> shape,
                          absl::Span<const std::string_view> types, const char* why) {
    if (found.ok()) found = ExpectTensor(tensors, matrix.codes + suffix, shape, types, why);
    matrix.further.push_back(matrix.codes + suffix);
  };
  const auto scales = tensors.FindTensor(matrix.scales);
  const int64_t blocks = scales.has_value() && scales->shape.size() == 1 ? scales->shape[0] : 0;
  expect(".absmax", {blocks}, kAbsmax, "; scales must be F32 or U8");
  expect(".quant_map", {kTableSize}, kFloat32, "; it must be F32");
  if (scales.has_value() && scales->dtype == "U8") {
    expect(".nested_quant_map", {kNestedTableSize}, kFloat32, "; it must be F32");
    const auto nested = tensors.FindTensor(matrix.codes + ".nested_absmax");
    const int64_t count = nested.has_value() && nested->shape.size() == 1 ? nested->shape[0] : 0;
    expect(".nested_absmax", {count}, kFloat32, "; it must be F32");
  }
  for (const char* kind : {"nf4", "fp4"}) {
    const std::string state = StrCat(matrix.codes, ".quant_state.bitsandbytes__", kind);
    if (tensors.FindTensor(state).has_value()) matrix.state = state;
  }
  if (found.ok() && matrix.state.empty()) {
    return absl::NotFoundError(StrCat(tensors.DescribeTensor(matrix.codes), " has no '",
                                      matrix.codes, ".quant_state.bitsandbytes__nf4' beside it"));
  }
  if (!found.ok()) return found.status();
  return matrix;
}

}  // namespace

void ReadBitsAndBytes(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_BITSANDBYTES);
  quantization->set_decoded(true);
  RefuseKey(reader, "load_in_8bit", "of bitsandbytes only 4 bits are supported");
  const std::string storage = reader.StringOr("bnb_4bit_quant_storage", "uint8");
  if (storage != "uint8") {
    reader.Fail("bnb_4bit_quant_storage", StrCat("'", storage.substr(0, 60),
                                                 "' is not supported: uint8 is", kOtherCheckpoint));
  }
}

extern const MatrixFormat kBitsAndBytesFormat = {.holds = HoldsBitsAndBytes,
                                                 .find = FindBitsAndBytes};

}  // namespace tessera
