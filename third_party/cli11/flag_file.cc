#include "third_party/cli11/flag_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// Throws what yaml-cpp throws for a value that is no text.
std::vector<std::string> Texts(const YAML::Node& value) {
  if (!value.IsSequence()) return {value.as<std::string>()};
  std::vector<std::string> texts;
  for (const auto& item : value) texts.push_back(item.as<std::string>());
  return texts;
}

}  // namespace

std::string EnvironmentName(std::string_view flag) {
  std::string name = "TESSERA_" + std::string(flag);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

void NameEnvironment(const Command& command) {
  for (const Flag& flag : command.flags()) {
    const std::vector<std::string> names = flag.long_names();
    if (names.empty() || names[0] == "help" || names[0] == "version") continue;
    flag.ReadFrom(EnvironmentName(names[0]));
  }
}

absl::Status ApplyFlagFile(const std::string& path, const Command& command) {
  std::string key;
  try {
    const YAML::Node file = YAML::LoadFile(path);
    if (!file.IsMap()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": flags as \"key: value\" are expected"));
    }
    for (const auto& entry : file) {
      key = entry.first.as<std::string>();
      std::optional<Flag> flag = command.FindFlag("--" + key);
      if (!flag.has_value()) flag = command.FindFlag(key);
      if (!flag.has_value() || key == "config" || key == "help" || key == "version") {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": ", key, " is not a flag (see --help)"));
      }
      if (!flag->values().empty()) continue;
      if (const absl::Status set = flag->Set(Texts(entry.second)); !set.ok())
        return absl::InvalidArgumentError(absl::StrCat(path, ": ", key, ": ", set.message()));
    }
    return absl::OkStatus();
  } catch (const YAML::BadFile&) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no such file, or none that this user may read"));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", key, key.empty() ? "" : ": ", error.what()));
  }
}

}  // namespace tessera
