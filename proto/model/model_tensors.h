// The tensors in a folder's weight files, held against the shape that config.json gives: here what
// a worker would refuse, leave out or compute otherwise is seen before any worker starts.
//
// Reads the headers of the weight files and, where a model with tied embeddings has a head of its
// own, the bytes of both. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"

namespace tessera {

// Matrices that the files have as codes.
struct QuantisedMatrices {
  int64_t kept = 0;                // matrices whose codes workers compute with
  int64_t decoded = 0;             // matrices that are decoded when they are read
  int64_t decoded_weights = 0;     // their elements
  int64_t decoded_code_bytes = 0;  // without scales
};

// A model, and what its user should hear of its files.
struct CheckedModel {
  v1::Model model;
  std::vector<std::string> warnings;  // sentences
  QuantisedMatrices quantised;
  QuantisedMatrices quantised_on_cpus;  // which keep more of them
};

// ReadModelFolder, and its weight files where they are all there (a plan needs config.json alone).
// tied_embeddings becomes false, with a warning, where the head in the files is another matrix than
// the embedding, as in transformers. Where a checkpoint of int4 codes holds some matrices
// otherwise, quantization says how many. Another warning names tensors that are not read.
// InvalidArgument for a damaged header, for a tensor that workers read and whose type they do not,
// or whose shape is another than config.json asks for, and for one of a GGUF file that is not read;
// NotFound for one that is not there. Names file and tensor.
absl::StatusOr<CheckedModel> ReadCheckedModel(std::string_view name_or_path);

}  // namespace tessera
