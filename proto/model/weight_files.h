// Which files hold a model's weights: of a Hugging Face folder model.safetensors, or the shards
// that model.safetensors.index.json names; a GGUF file itself, or all its parts. Thread-safe.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kWeightsIndexFile[] = "model.safetensors.index.json";

// Sorted by name. NotFound, saying what is in the folder instead (a pickle, GGUF), where there are
// none; InvalidArgument for a damaged index.
absl::StatusOr<std::vector<std::filesystem::path>> WeightFiles(const std::filesystem::path& model);

// The index's weight_map: tensor -> file name. `file` is the path errors name.
absl::StatusOr<std::map<std::string, std::string>> ParseWeightIndex(std::string_view text,
                                                                    std::string_view file);

}  // namespace tessera
