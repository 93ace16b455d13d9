// How a checkpoint holds a matrix: plain, or as codes with scales, in one of several formats.
//
// A format is a file here, which knows the keys of quantization_config and the tensors of a matrix,
// a file in worker/weights, which reads rows, and a line in the table of either. The tensors of the
// file decide how each matrix is held, whatever lists of modules config.json has: unlike matrices
// of one checkpoint may be held unlike. Thread rule: pure functions of plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/model.pb.h"

namespace tessera {

// A tensor of a checkpoint, as its file's header has it.
struct StoredTensor {
  std::string_view dtype;  // "F32", "F8_E4M3", "I32", ...
  absl::Span<const int64_t> shape;
};

// The tensors of a checkpoint, by name.
class TensorDirectory {
 public:
  virtual ~TensorDirectory() = default;
  // nullopt where no file has it.
  virtual std::optional<StoredTensor> FindTensor(const std::string& name) const = 0;
  // For errors: "<file>: tensor '<name>'" of one that is there, and where all of them are.
  virtual std::string DescribeTensor(const std::string& name) const = 0;
  virtual std::string Place() const = 0;
};

enum class StoredAs {
  kPlain,      // elements of F32, F16 or BF16
  kAwq,        // packed codes, eight outputs of an input in a word
  kGptq,       // packed codes, neighbouring inputs of an output in a word
  kPacked,     // packed codes, neighbouring inputs of an output in a word, a row after the other
  kEightBits,  // codes of a byte: FP8 (e4m3), or int8
  kTable,      // codes of four bits that are places in a table: NF4, FP4
  kMxfp4,      // codes of four bits with scales that are powers of two
  kFourBitFloats,  // the same of one matrix, or with scales of a byte and one of the matrix: NVFP4
  kGguf,           // blocks of inputs of a row, of the type that the tensor names
};

// A matrix [rows, columns] = (outputs, inputs). Of codes, a weight is scale * (code - zero).
struct StoredMatrix {
  StoredAs as = StoredAs::kPlain;
  int64_t rows = 0, columns = 0;
  int64_t bits = 16;  // of a code
  // Outputs and inputs that share a scale.
  int64_t scaled_rows = 1, scaled_columns = 1;
  // Workers compute with the codes as they are (kernels/int4_rows.h); else they are decoded when
  // they are read.
  bool keeps_codes = false;
  // CPUs do, though not every device: plans count it as decoded.
  bool cpus_keep_codes = false;
  // Then: bytes of a weight with its part of what a group shares; 0: as int4.
  double held_bytes = 0;
  // Names of tensors; "" where there is none. `order`: the group of each input; `state`: text that
  // says the rest.
  std::string codes, scales, zeros, order, state;
  // A number that all scales are multiplied by, or divided.
  std::string matrix_scale;
  bool divides_scales = false;
  // Further tensors of the same matrix: what its reader finds by itself, and what changes nothing.
  std::vector<std::string> further;
};

// How the checkpoint holds the matrix `name` ("model.layers.0.mlp.up_proj"). NotFound where it has
// no tensor of it, InvalidArgument for types, shapes and sizes that cannot be; names the tensor.
absl::StatusOr<StoredMatrix> FindMatrix(const TensorDirectory& tensors,
                                        const v1::Quantization* quantization,
                                        const std::string& name, int64_t rows, int64_t columns);

// A tensor of that shape and of one of these types. NotFound, or InvalidArgument: `why` follows a
// wrong type.
absl::StatusOr<StoredTensor> ExpectTensor(const TensorDirectory& tensors, const std::string& name,
                                          absl::Span<const int64_t> shape,
                                          absl::Span<const std::string_view> dtypes,
                                          std::string_view why);
// The same of F32, F16 or BF16. `announced`: config.json has a quantization_config.
absl::StatusOr<StoredTensor> ExpectFloat(const TensorDirectory& tensors, const std::string& name,
                                         absl::Span<const int64_t> shape, bool announced);

}  // namespace tessera
