// `tessera models`: which families of models can be served, and what one checkpoint is.
// Pure but for reading the model folder.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::deploy {

// Families, formats of weights and devices, a line each.
std::string ListModels();

// The families as a table of docs/models.md.
std::string ModelsMarkdown();

// Describes a checkpoint: its family, its layers by kind, the bytes of its weights as they are
// stored, the bytes of KV per token by kind, in which types devices compute, and what its user
// should hear. InvalidArgument naming the first key or tensor that is not understood.
absl::StatusOr<std::string> DescribeModel(std::string_view name_or_path);

}  // namespace tessera::deploy
