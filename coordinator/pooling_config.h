// What sentence-transformers' files beside a checkpoint say of its embeddings: modules.json, and
// config.json in the folder of its pooling, usually 1_Pooling. Thread rule: pure functions of the
// folder.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {

// Where the folder says nothing of embeddings: the last token's row, of length 1.
// `pooling`: "last", "mean" or "cls", in place of the files'; "": theirs. InvalidArgument: another.
absl::StatusOr<EmbeddingRecipe> ReadEmbeddingRecipe(const std::filesystem::path& model_folder,
                                                    const std::string& pooling);

}  // namespace tessera::coordinator
