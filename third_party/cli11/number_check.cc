#include "third_party/cli11/number_check.h"

#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

bool Read(const std::string& text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

}  // namespace

NumberCheck NonNegative() {
  return {[](const std::string& text) -> std::string {
            double value = 0;
            return Read(text, value) && value >= 0 ? "" : "\"" + text + "\" is no number from 0 up";
          },
          "NUMBER >= 0"};
}

NumberCheck Positive() {
  return {[](const std::string& text) -> std::string {
            double value = 0;
            return Read(text, value) && value > 0 ? "" : "\"" + text + "\" is no number above 0";
          },
          "NUMBER > 0"};
}

NumberCheck WholeFrom(long long least) {
  const std::string from = "from " + std::to_string(least) + " up";
  return {[least, from](const std::string& text) -> std::string {
            long long value = 0;
            const auto [end, error] =
                std::from_chars(text.data(), text.data() + text.size(), value);
            const bool whole = error == std::errc() && end == text.data() + text.size();
            return whole && value >= least ? "" : "\"" + text + "\" is no whole number " + from;
          },
          "WHOLE NUMBER " + from};
}

NumberCheck Between(double least, double most) {
  const std::string range = absl::StrCat(least, " to ", most);
  return {[least, most, range](const std::string& text) -> std::string {
            double value = 0;
            return Read(text, value) && value >= least && value <= most
                       ? ""
                       : "\"" + text + "\" is no number from " + range;
          },
          "NUMBER " + range};
}

}  // namespace tessera
