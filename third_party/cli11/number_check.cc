#include "third_party/cli11/number_check.h"

#include <charconv>
#include <string>

namespace tessera {
namespace {

bool Read(const std::string& text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

CLI::Validator NonNegative() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double value = 0;
        return Read(text, value) && value >= 0 ? "" : "\"" + text + "\" is no number from 0 up";
      },
      "NUMBER >= 0", "non-negative");
}

CLI::Validator Positive() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        double value = 0;
        return Read(text, value) && value > 0 ? "" : "\"" + text + "\" is no number above 0";
      },
      "NUMBER > 0", "positive");
}

}  // namespace tessera
