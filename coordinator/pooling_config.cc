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
constexpr char kPooling[] = "1_Pooling/config.json";
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

}  // namespace

std::string PoolingRefusal(const std::filesystem::path& model_folder) {
  const std::string mode = ModeOf(ReadJson(model_folder / kPooling));
  if (!mode.empty() && mode != "lasttoken") {
    return absl::StrCat("its ", kPooling, " asks for the pooling ", mode,
                        "; only that of the last token is supported yet");
  }
  const Json modules = ReadJson(model_folder / kModules);
  for (const Json& module : modules) {
    const Json type = module.is_object() ? module.value("type", Json()) : Json();
    if (!type.is_string()) continue;
    const std::string name = type.get<std::string>();
    const std::string kind = name.substr(name.rfind('.') + 1);
    if (kind != "Transformer" && kind != "Pooling" && kind != "Normalize") {
      return absl::StrCat("its ", kModules, " has a module ", kind,
                          " behind the model, which is not supported yet");
    }
  }
  return "";
}

}  // namespace tessera::coordinator
