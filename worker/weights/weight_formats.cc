#include "worker/weights/weight_formats.h"

#include <array>
#include <string>

#include "proto/model/formats/stored_matrix.h"
#include "worker/weights/awq_gptq_rows.h"
#include "worker/weights/eight_bit_rows.h"
#include "worker/weights/four_bit_float_rows.h"
#include "worker/weights/gguf_rows.h"
#include "worker/weights/mxfp4_rows.h"
#include "worker/weights/packed_rows.h"
#include "worker/weights/plain_rows.h"
#include "worker/weights/table_rows.h"

namespace tessera::worker {
namespace {

struct WeightFormat {
  StoredAs as;
  absl::StatusOr<std::shared_ptr<const RowSource>> (*open)(const Checkpoint& checkpoint,
                                                           const v1::Quantization& quantization,
                                                           std::string_view name,
                                                           const StoredMatrix& matrix);
};

constexpr std::array kFormats = {
    WeightFormat{.as = StoredAs::kAwq, .open = OpenAwqGptq},
    WeightFormat{.as = StoredAs::kGptq, .open = OpenAwqGptq},
    WeightFormat{.as = StoredAs::kPacked, .open = OpenPacked},
    WeightFormat{.as = StoredAs::kEightBits, .open = OpenEightBits},
    WeightFormat{.as = StoredAs::kGguf, .open = OpenGguf},
    WeightFormat{.as = StoredAs::kMxfp4, .open = OpenMxfp4},
    WeightFormat{.as = StoredAs::kFourBitFloats, .open = OpenFourBitFloats},
    WeightFormat{.as = StoredAs::kTable, .open = OpenTable}};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenMatrix(const Checkpoint& checkpoint,
                                                            const v1::Model& model,
                                                            std::string_view name, int64_t rows,
                                                            int64_t columns) {
  const v1::Quantization* quantization = model.has_quantization() ? &model.quantization() : nullptr;
  const auto matrix = FindMatrix(checkpoint, quantization, std::string(name), rows, columns);
  if (!matrix.ok()) return matrix.status();
  for (const WeightFormat& format : kFormats) {
    if (format.as == matrix->as) return format.open(checkpoint, *quantization, name, *matrix);
  }
  return OpenPlain(checkpoint, matrix->codes, {rows, columns});
}

}  // namespace tessera::worker
