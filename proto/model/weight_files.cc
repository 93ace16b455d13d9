#include "proto/model/weight_files.h"

#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/gguf_header.h"
#include "proto/model/gguf_parts.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

// An index of unknown origin must not make us read files elsewhere.
bool IsPlainName(const std::string& name) {
  return name.size() <= 255 && name.ends_with(".safetensors") &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

absl::Status NoWeights(const fs::path& folder) {
  std::string instead;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".gguf") {
      instead = entry.path().filename().string();
      break;
    }
  }
  return absl::NotFoundError(
      StrCat(folder.string(), ": no ", kWeightsFile, " and no ", kWeightsIndexFile,
             instead.empty() ? "; the download may be incomplete"
                             : StrCat(", only ", instead,
                                      instead.ends_with(".gguf")
                                          ? "; give that file in place of the folder"
                                          : "; weights are read from safetensors and GGUF only: "
                                            "convert it, or download the safetensors files")));
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseWeightIndex(std::string_view text,
                                                                    std::string_view file) {
  absl::StatusOr<nlohmann::json> document = ParseJsonObject(text, file, kMaxIndexBytes);
  if (!document.ok()) return document.status();
  const auto map = document->find("weight_map");
  if (map == document->end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(
        StrCat(file, ": weight_map must be an object of tensor names and files"));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, name] : map->items()) {
    if (!name.is_string() || !IsPlainName(name.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          StrCat(file, ": weight_map of tensor '", tensor.substr(0, 200),
                 "' must be the name of a .safetensors file beside it"));
    }
    files.emplace(tensor, name.get<std::string>());
  }
  return files;
}

absl::StatusOr<std::vector<fs::path>> WeightFiles(const fs::path& folder) {
  if (HasGgufName(folder.string())) return GgufPartFiles(folder);
  std::error_code error;
  const fs::path index = folder / kWeightsIndexFile;
  if (!fs::exists(index, error)) {
    if (!fs::exists(folder / kWeightsFile, error)) return NoWeights(folder);
    return std::vector<fs::path>{folder / kWeightsFile};
  }
  absl::StatusOr<std::string> text = ReadFileText(index, kMaxIndexBytes);
  if (!text.ok()) return text.status();
  auto map = ParseWeightIndex(*text, index.string());
  if (!map.ok()) return map.status();
  std::set<fs::path> paths;
  for (const auto& [tensor, name] : *map) paths.insert(folder / name);
  return std::vector<fs::path>(paths.begin(), paths.end());
}

}  // namespace tessera
