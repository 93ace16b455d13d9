#include "proto/api_keys.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera {

absl::StatusOr<std::vector<std::string>> ReadApiKeyFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("--api-key-file ", path, " cannot be read"));
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string key(absl::StripAsciiWhitespace(line));
    if (!key.empty()) keys.push_back(key);
  }
  if (!keys.empty()) return keys;
  return absl::InvalidArgumentError(
      absl::StrCat("--api-key-file ", path,
                   " holds no key: one a line is expected (for example: openssl rand "
                   "-hex 32 > ",
                   path, ")"));
}

std::string KeyFileWarning(const std::string& path) {
  struct stat about {};
  if (path.empty() || stat(path.c_str(), &about) != 0 || (about.st_mode & 077) == 0) return "";
  return absl::StrFormat("%s may be read by other users (mode %o): chmod 600 %s", path,
                         about.st_mode & 0777, path);
}

void HideKeys(int argc, char** argv) {
  constexpr std::string_view kFlag = "--api-key";
  const auto hide = [](char* value) { std::fill(value, value + std::strlen(value), '*'); };
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == kFlag && i + 1 < argc) {
      hide(argv[++i]);
    } else if (argument.starts_with(kFlag) && argument.substr(kFlag.size()).starts_with('=')) {
      hide(argv[i] + kFlag.size() + 1);
    }
  }
}

}  // namespace tessera
