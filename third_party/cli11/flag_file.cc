#include "third_party/cli11/flag_file.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

// Throws what CLI11 throws for a value that does not fit.
void Give(const YAML::Node& value, CLI::Option& option) {
  if (value.IsSequence()) {
    for (const auto& item : value) option.add_result(item.as<std::string>());
  } else {
    option.add_result(value.as<std::string>());
  }
  option.run_callback();
}

}  // namespace

std::string EnvironmentName(std::string_view flag) {
  std::string name = "TESSERA_" + std::string(flag);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

void NameEnvironment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames()[0];
    if (name != "help" && name != "version") option->envname(EnvironmentName(name));
  }
}

absl::Status ApplyFlagFile(const std::string& path, CLI::App& app) {
  std::string key;
  try {
    const YAML::Node file = YAML::LoadFile(path);
    if (!file.IsMap()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": flags as \"key: value\" are expected"));
    }
    for (const auto& entry : file) {
      key = entry.first.as<std::string>();
      CLI::Option* option = app.get_option_no_throw("--" + key);
      if (option == nullptr) option = app.get_option_no_throw(key);
      const bool flag = option != nullptr && key != "config" && key != "help" && key != "version";
      if (!flag) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": ", key, " is not a flag (see --help)"));
      }
      if (option->count() == 0) Give(entry.second, *option);
    }
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", key, key.empty() ? "" : ": ", error.what()));
  }
}

}  // namespace tessera
