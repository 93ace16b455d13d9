#include "coordinator/grammar/pattern_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::coordinator {
namespace {

// Beyond it xgrammar counts while it reads, and looks at tokens one by one.
constexpr int64_t kMaxRegexRepeat = 128;

}  // namespace

std::string PatternWriter::Nothing() const { return way_ == Way::kRules ? "\"\"" : "()"; }

std::string PatternWriter::OneOf(const CodePoints& set) const {
  if (way_ == Way::kRules) return in_json_ ? set.InJsonString() : set.AsClass();
  return in_json_ ? set.InJsonStringAsRegex() : set.AsRegexClass();
}

std::string PatternWriter::Joined(const std::vector<std::string>& parts) const {
  return absl::StrJoin(parts, way_ == Way::kRules ? " " : "");
}

std::string PatternWriter::Either(const std::vector<std::string>& ways) const {
  return ways.size() == 1 ? ways[0]
                          : Grouped(absl::StrJoin(ways, way_ == Way::kRules ? " | " : "|"));
}

std::string PatternWriter::Grouped(const std::string& part) { return absl::StrCat("(", part, ")"); }

std::string PatternWriter::Counted(const std::string& part, const PatternLengths& count) {
  const bool is_open = count.max < 0;
  if (way_ == Way::kRegex && std::max(count.min, count.max) > kMaxRegexRepeat) fits_ = false;
  const std::string max = is_open ? "" : absl::StrCat(count.max);
  return absl::StrCat(Grouped(part), "{", count.min, ",", max, "}");
}

}  // namespace tessera::coordinator
