// Patterns of JSON Schema's formats. Each gives only texts of its format, not all of them.
#include <map>

#include "absl/strings/str_cat.h"
#include "coordinator/grammar/pattern_grammar.h"

namespace tessera::coordinator {
namespace {

constexpr char kDate[] =
    "[1-9]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)"
    "|"
    "02-(?:0[1-9]|1\\d|2[0-8]))";
constexpr char kTime[] =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr char kDuration[] =
    "P(?:\\d{1,4}W|\\d{1,4}D(?:T\\d{1,4}H)?|\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|"
    "\\d{1,4}M(?:\\d{1,4}D)?|T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|"
    "\\d{1,4}S))";
// A label of a host's name: at most 61 characters.
constexpr char kLabel[] = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}";
// Parts have any length: each character that is counted is a state of the automaton, and a
// compile takes milliseconds for one.
constexpr char kEmail[] =
    "[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
    "(?:\\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+";
constexpr char kOctet[] = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
constexpr char kUuid[] =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
constexpr char kUri[] =
    "[A-Za-z][A-Za-z0-9+.-]{0,15}://[A-Za-z0-9.-]+(?::\\d{1,5})?(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*"
    "(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?";

std::string Ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string ways = absl::StrCat("(?:", group, ":){7}", group);
  // With `left` groups before the gap there are at most 6 - left behind it.
  for (int left = 0; left <= 6; ++left) {
    absl::StrAppend(&ways, "|");
    if (left > 0) absl::StrAppend(&ways, group, "(?::", group, "){", left - 1, "}");
    absl::StrAppend(&ways, "::");
    if (left < 6) absl::StrAppend(&ways, "(?:", group, "(?::", group, "){0,", 5 - left, "})?");
  }
  return ways;
}

const std::map<std::string, std::string, std::less<>>& Patterns() {
  static const auto& patterns = *new std::map<std::string, std::string, std::less<>>{
      {"date", kDate},
      {"time", kTime},
      {"date-time", absl::StrCat(kDate, "T", kTime)},
      {"duration", kDuration},
      {"email", kEmail},
      {"hostname", absl::StrCat(kLabel, "(?:\\.", kLabel, "){0,3}")},
      {"ipv4", absl::StrCat(kOctet, "(?:\\.", kOctet, "){3}")},
      {"ipv6", Ipv6()},
      {"uuid", kUuid},
      {"uri", kUri},
  };
  return patterns;
}

}  // namespace

std::optional<std::string> PatternOfFormat(std::string_view format) {
  const auto found = Patterns().find(format);
  if (found == Patterns().end()) return std::nullopt;
  return absl::StrCat("^(?:", found->second, ")$");
}

}  // namespace tessera::coordinator
