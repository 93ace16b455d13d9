#include "proto/api_keys.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace tessera {

namespace {

// Sets one term. Empty: done; else what is wrong with it.
std::string Set(const std::string& name, const std::string& value, ApiKey& key) {
  if (name == "name") {
    key.name = value;
    return value.empty() ? "name= is empty" : "";
  }
  if (name == "models") {
    key.models = absl::StrSplit(value, ',');
    const bool has_empty = std::find(key.models.begin(), key.models.end(), "") != key.models.end();
    return has_empty ? absl::StrCat("models=", value, ": names between commas are expected") : "";
  }
  const struct {
    const char* name;
    double* value;
  } numbers[] = {{"weight", &key.weight},
                 {"requests-per-minute", &key.requests_per_minute},
                 {"tokens-per-minute", &key.tokens_per_minute}};
  double number = 0;
  const bool is_number = absl::SimpleAtod(value, &number) && number > 0 && number <= 1e15;
  for (const auto& term : numbers) {
    if (name != term.name) continue;
    *term.value = number;
    return is_number ? "" : absl::StrCat(name, "=", value, ": a number above 0 is expected");
  }
  if (name != "concurrent") {
    return absl::StrCat(name,
                        "= is no term of a key: name, weight, requests-per-minute, "
                        "tokens-per-minute, concurrent and models are");
  }
  const bool is_count = absl::SimpleAtoi(value, &key.concurrent_requests);
  return is_count && key.concurrent_requests > 0
             ? ""
             : absl::StrCat("concurrent=", value, ": a number of requests is expected");
}

// A word such as weight=2; a key may hold "=" too, but is no such word behind a space.
bool IsTerm(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 &&
         word.substr(0, equals).find_first_not_of("abcdefghijklmnopqrstuvwxyz-") ==
             std::string_view::npos;
}

// Empty: done; else what is wrong with the line.
std::string ReadLine(std::string_view line, ApiKey& key) {
  for (size_t space; (space = line.find_last_of(" \t")) != std::string_view::npos;) {
    const std::string_view word = line.substr(space + 1);
    if (!IsTerm(word)) break;
    const size_t equals = word.find('=');
    const std::string wrong =
        Set(std::string(word.substr(0, equals)), std::string(word.substr(equals + 1)), key);
    if (!wrong.empty()) return wrong;
    line = line.substr(0, space);
    line = line.substr(0, line.find_last_not_of(" \t") + 1);
  }
  key.key = line;
  return "";
}

}  // namespace

absl::StatusOr<std::vector<ApiKey>> ReadApiKeyFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("--api-key-file ", path, " cannot be read"));
  std::vector<ApiKey> keys;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::string text(absl::StripAsciiWhitespace(line));
    if (text.empty() || text[0] == '#') continue;
    const std::string wrong = ReadLine(text, keys.emplace_back());
    if (wrong.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--api-key-file ", path, ", line ", number, ": ", wrong));
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
