#include "coordinator/pooling_config.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/file_text.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxBytes = 1 << 20;
constexpr char kPoolingFolder[] = "1_Pooling";
constexpr char kModules[] = "modules.json";

// Null where there is none, or it is no JSON.
Json ReadJson(const std::filesystem::path& file) {
  const absl::StatusOr<std::string> text = ReadFileText(file, kMaxBytes);
  if (!text.ok()) return Json();
  return Json::parse(*text, nullptr, /*allow_exceptions=*/false);
}

// "mean", "cls", ...; "" where it says nothing.
std::string ModeOf(const Json& pooling) {
  if (!pooling.is_object()) return "";
  constexpr std::string_view kFlag = "pooling_mode_", kTokens = "_tokens", kToken = "_token";
  std::string modes;
  for (const auto& [name, value] : pooling.items()) {
    if (name == "pooling_mode" && value.is_string()) return value.get<std::string>();
    if (!name.starts_with(kFlag) || value != true) continue;
    std::string_view mode = std::string_view(name).substr(kFlag.size());
    if (mode.ends_with(kTokens)) mode.remove_suffix(kTokens.size());
    if (mode.ends_with(kToken)) mode.remove_suffix(kToken.size());
    absl::StrAppend(&modes, modes.empty() ? "" : " and ", std::string(mode));
  }
  return modes;
}

bool SetPooling(std::string_view mode, EmbeddingRecipe* recipe) {
  if (mode == "last" || mode == "lasttoken") {
    recipe->pooling = RowPooling::kLast;
  } else if (mode == "mean") {
    recipe->pooling = RowPooling::kMean;
  } else if (mode == "cls") {
    recipe->pooling = RowPooling::kFirst;
  } else {
    return false;
  }
  return true;
}

// Its text's value; "" where there is none.
std::string TextOf(const Json& object, const char* name) {
  const Json value = object.is_object() ? object.value(name, Json()) : Json();
  return value.is_string() ? value.get<std::string>() : "";
}

}  // namespace

absl::StatusOr<EmbeddingRecipe> ReadEmbeddingRecipe(const std::filesystem::path& model_folder,
                                                    const std::string& pooling) {
  EmbeddingRecipe recipe;
  std::string pooling_folder = kPoolingFolder;
  const Json modules = ReadJson(model_folder / kModules);
  if (modules.is_array() && !modules.empty()) recipe.normalized = false;
  for (const Json& module : modules) {
    const std::string type = TextOf(module, "type");
    if (type.empty()) continue;
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Normalize") recipe.normalized = true;
    if (kind == "Pooling" && !TextOf(module, "path").empty())
      pooling_folder = TextOf(module, "path");
    if (kind != "Transformer" && kind != "Pooling" && kind != "Normalize") {
      recipe.refusal = absl::StrCat("its ", kModules, " has a module ", kind,
                                    " behind the model, which is not supported yet");
    }
  }
  if (!pooling.empty()) {
    if (SetPooling(pooling, &recipe)) return recipe;
    return absl::InvalidArgumentError(
        absl::StrCat("--pooling: last, mean or cls is expected, not '", pooling, "'"));
  }
  const std::string mode = ModeOf(ReadJson(model_folder / pooling_folder / "config.json"));
  if (!mode.empty() && !SetPooling(mode, &recipe) && recipe.refusal.empty()) {
    recipe.refusal = absl::StrCat("its ", pooling_folder, "/config.json asks for the pooling ",
                                  mode, "; known are lasttoken, mean and cls (--pooling)");
  }
  return recipe;
}

}  // namespace tessera::coordinator
