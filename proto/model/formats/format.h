// What a format of weights defines on the side of the checkpoint; formats.cc lists them. How its
// rows are read: worker/weights/row_source.h. Codes that workers keep as codes touch more:
// docs/adding.md.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/json_reader.h"
#include "proto/model.pb.h"
#include "proto/model/formats/stored_matrix.h"

namespace tessera {

// Ends what is said of a checkpoint that cannot be served.
inline constexpr const char* kOtherCheckpoint =
    "; use an AWQ or GPTQ checkpoint of 4 bits, an FP8 one, or the original one, with "
    "--quantization int8 if memory is short";

// Tensors in which a format holds matrices.
struct MatrixFormat {
  // Whether the checkpoint holds the matrix so.
  bool (*holds)(const TensorDirectory& tensors, const std::string& name);
  // Checks types and shapes; `matrix` has its size.
  absl::StatusOr<StoredMatrix> (*find)(const TensorDirectory& tensors,
                                       const v1::Quantization& quantization,
                                       const std::string& name, StoredMatrix matrix);
};

// A value of quant_method, and how its other keys are read; failures go to the reader.
struct QuantizationMethod {
  const char* name;
  const char* text;  // what a user reads of it; "": another spelling of the one before
  void (*read)(JsonReader& reader, v1::Quantization* quantization);
};

// Number of values `a` that `b` go into, rounded up.
constexpr int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool IsFloat(std::string_view dtype);
// What follows the type of a tensor that is not. `announced`: there is a quantization_config.
std::string NotFloat(bool announced);
std::string ShapeText(absl::Span<const int64_t> shape);

// Fails where the key has a value, unless it is false or an empty list or object.
void RefuseKey(JsonReader& reader, const char* key, std::string_view why);

}  // namespace tessera
