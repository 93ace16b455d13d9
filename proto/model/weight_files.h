// Which safetensors files of a Hugging Face folder hold its weights: model.safetensors, or the
// shards that model.safetensors.index.json names. Thread-safe.
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

// File names within the folder, sorted. NotFound, saying what is there instead (a pickle, GGUF),
// where there are none; InvalidArgument for a damaged index.
absl::StatusOr<std::vector<std::string>> WeightFiles(const std::filesystem::path& folder);

// The index's weight_map: tensor -> file name. `file` is the path errors name.
absl::StatusOr<std::map<std::string, std::string>> ParseWeightIndex(std::string_view text,
                                                                    std::string_view file);

}  // namespace tessera
