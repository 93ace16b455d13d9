// What sentence-transformers' files beside a checkpoint say of its embeddings:
// 1_Pooling/config.json and modules.json. Thread rule: pure functions of the folder.
#pragma once

#include <filesystem>
#include <string>

namespace tessera::coordinator {

// Why the last token's row, of length 1, would be another vector than the model's own; empty: it is
// that, or the folder says nothing of embeddings.
std::string PoolingRefusal(const std::filesystem::path& model_folder);

}  // namespace tessera::coordinator
