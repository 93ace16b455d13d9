// A GGUF file as a model: its shape, and its tensors under the names that the family's own
// checkpoints have, so that whoever reads weights finds them in either.
//
// A file may be in parts, of which the first is named. Reads headers, and the few small tensors
// that say how positions are rotated. Thread-safe. Errors name file, and key or tensor.
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/model.pb.h"
#include "proto/model/safetensors_header.h"

namespace tessera {

// Model.name is left empty. InvalidArgument for an architecture, a key or a type of a tensor that
// is not supported.
absl::StatusOr<v1::Model> ReadGgufModel(const std::filesystem::path& path);

// The tensors of one file, which may be any part of a model. Entries have GgufType::name for a
// dtype. A tensor of all experts of a layer is one entry an expert. Tensors that have no place in
// the family keep their names.
absl::StatusOr<std::vector<SafetensorsEntry>> ReadGgufTensors(const std::filesystem::path& path);

}  // namespace tessera
