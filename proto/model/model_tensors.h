// The tensors in a folder's weight files, held against the shape that config.json gives: here what
// a worker would refuse, leave out or compute otherwise is seen before any worker starts.
//
// Reads the headers of the weight files and, where a model with tied embeddings has a head of its
// own, the bytes of both. Thread-safe.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/families/tensor_names.h"

namespace tessera {

// A model, and what its user should hear of its files.
struct CheckedModel {
  v1::Model model;
  std::vector<std::string> warnings;  // sentences
};

// ReadModelFolder, and its weight files where they are all there (a plan needs config.json alone).
// tied_embeddings becomes false, with a warning, where the head in the files is another matrix than
// the embedding, as in transformers. Another warning names tensors that nobody reads.
// InvalidArgument for a damaged header, and for a tensor that workers read and whose type they do
// not; names file, tensor and type.
absl::StatusOr<CheckedModel> ReadCheckedModel(std::string_view name_or_path);

// Names of all tensors that the workers of a model read, of matrices that may be int4 as without.
// `root` is one of names.roots.
std::set<std::string> TensorsOf(const v1::Model& model, const TensorNames& names,
                                std::string_view root);

}  // namespace tessera
