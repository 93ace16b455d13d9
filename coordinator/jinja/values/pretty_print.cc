#include "coordinator/jinja/values/pretty_print.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "coordinator/jinja/values/unicode.h"

namespace tessera::coordinator::jinja {
namespace {

constexpr Int kColumns = 80;

Int Columns(std::string_view text) { return static_cast<Int>(CountCodePoints(text)); }

// groupby's tuples have a repr of their own, which pprint takes as it is.
bool IsSequence(const Value& value) { return value.is_sequence() && !value.sequence().grouped; }

// Where a value is printed: behind `indent` columns, with `allowance` columns needed after it;
// `level` counts the containers around it, this one included.
struct Place {
  Int indent = 0;
  Int allowance = 0;
  int level = 0;
};

class PrettyPrinter {
 public:
  explicit PrettyPrinter(Runtime& runtime) : runtime_(runtime) {}

  absl::Status Format(const Value& value, Place place) {
    const Runtime::Level level(runtime_);
    if (!level.ok()) return Runtime::TooDeep();
    std::string line;
    JINJA_RETURN_IF_ERROR(AppendLine(value, line));
    const bool fits = Columns(line) <= kColumns - place.indent - place.allowance;
    ++place.level;
    if (!fits && value.is_dict()) return FormatDict(value.dict(), place);
    if (!fits && IsSequence(value)) return FormatSequence(value, place);
    if (!fits && value.is_string() && !value.bytes().empty())
      return FormatString(value.bytes(), place);
    return Write(line);
  }

  std::string Take() { return std::move(out_); }

 private:
  using Entry = Dict::Entry;

  absl::Status Write(std::string_view text) {
    JINJA_RETURN_IF_ERROR(runtime_.CheckSize(out_.size() + text.size()));
    JINJA_RETURN_IF_ERROR(runtime_.Touch(text.size()));
    out_.append(text);
    return absl::OkStatus();
  }
  absl::Status WriteBreak(std::string_view before, Int indent) {
    JINJA_RETURN_IF_ERROR(Write(before));
    return Write("\n" + std::string(static_cast<size_t>(indent), ' '));
  }

  // Entries by key, as Python sorts keys of any types: what has no order goes by its type's name.
  absl::StatusOr<std::vector<Entry>> Sorted(const Dict& dict) {
    JINJA_RETURN_IF_ERROR(runtime_.Step(static_cast<int64_t>(dict.size()) * 8));
    std::vector<Entry> entries = dict.entries();
    std::stable_sort(entries.begin(), entries.end(), [this](const Entry& a, const Entry& b) {
      const absl::StatusOr<Order> order = Compare(runtime_, a.first, b.first);
      return order.ok() ? *order == Order::kLess : a.first.TypeName() < b.first.TypeName();
    });
    return entries;
  }

  // The value in one line: repr, but for the order of keys.
  absl::Status AppendLine(const Value& value, std::string& out) {
    const Runtime::Level level(runtime_);
    if (!level.ok()) return Runtime::TooDeep();
    JINJA_RETURN_IF_ERROR(runtime_.Step());
    if (value.is_dict()) {
      JINJA_ASSIGN_OR_RETURN(const auto entries, Sorted(value.dict()));
      out.push_back('{');
      for (size_t i = 0; i < entries.size(); ++i) {
        out.append(i == 0 ? "" : ", ");
        JINJA_RETURN_IF_ERROR(AppendLine(entries[i].first, out));
        out.append(": ");
        JINJA_RETURN_IF_ERROR(AppendLine(entries[i].second, out));
      }
      out.push_back('}');
    } else if (IsSequence(value)) {
      out.push_back(value.is_tuple() ? '(' : '[');
      for (size_t i = 0; i < value.items().size(); ++i) {
        out.append(i == 0 ? "" : ", ");
        JINJA_RETURN_IF_ERROR(AppendLine(value.items()[i], out));
      }
      out.append(value.is_list() ? "]" : value.items().size() == 1 ? ",)" : ")");
    } else {
      JINJA_ASSIGN_OR_RETURN(const Text text, Repr(runtime_, value));
      out.append(text.bytes());
      JINJA_RETURN_IF_ERROR(runtime_.Touch(text.size()));
    }
    return runtime_.CheckSize(out.size());
  }

  absl::Status FormatDict(const Dict& dict, Place place) {
    JINJA_ASSIGN_OR_RETURN(const auto entries, Sorted(dict));
    JINJA_RETURN_IF_ERROR(Write("{"));
    const Int indent = place.indent + 1;
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool last = i + 1 == entries.size();
      std::string key;
      JINJA_RETURN_IF_ERROR(AppendLine(entries[i].first, key));
      JINJA_RETURN_IF_ERROR(Write(key + ": "));
      JINJA_RETURN_IF_ERROR(
          Format(entries[i].second,
                 {indent + Columns(key) + 2, last ? place.allowance + 1 : 1, place.level}));
      if (!last) JINJA_RETURN_IF_ERROR(WriteBreak(",", indent));
    }
    return Write("}");
  }

  absl::Status FormatSequence(const Value& value, Place place) {
    const std::string_view end = value.is_list() ? "]" : value.items().size() == 1 ? ",)" : ")";
    JINJA_RETURN_IF_ERROR(Write(value.is_list() ? "[" : "("));
    const Int indent = place.indent + 1;
    for (size_t i = 0; i < value.items().size(); ++i) {
      const bool last = i + 1 == value.items().size();
      const Int allowance = last ? place.allowance + static_cast<Int>(end.size()) : 1;
      JINJA_RETURN_IF_ERROR(Format(value.items()[i], {indent, allowance, place.level}));
      if (!last) JINJA_RETURN_IF_ERROR(WriteBreak(",", indent));
    }
    return Write(end);
  }

  // A string that is too long for its line: its lines, those cut behind white space.
  absl::Status FormatString(std::string_view text, Place place) {
    JINJA_RETURN_IF_ERROR(runtime_.Touch(kCharacterWork * text.size()));
    if (place.level == 1) {
      ++place.indent;
      ++place.allowance;
    }
    std::vector<std::string> chunks;
    std::string quoted;
    const std::vector<Line> lines = SplitLines(text);
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string_view line = text.substr(lines[i].begin, lines[i].next - lines[i].begin);
      const bool last = i + 1 == lines.size();
      quoted = QuoteString(line);
      if (Columns(quoted) <= kColumns - place.indent - (last ? place.allowance : 0)) {
        chunks.push_back(quoted);
      } else {
        JINJA_RETURN_IF_ERROR(
            CutLine(line, kColumns - place.indent, last ? place.allowance : 0, chunks));
      }
    }
    // As in Python, a single chunk is written as the whole last line.
    if (chunks.size() == 1) return Write(quoted);
    JINJA_RETURN_IF_ERROR(Write(place.level == 1 ? "(" : ""));
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) JINJA_RETURN_IF_ERROR(WriteBreak("", place.indent));
      JINJA_RETURN_IF_ERROR(Write(chunks[i]));
    }
    return Write(place.level == 1 ? ")" : "");
  }

  // Appends the quoted pieces of one line. `allowance` narrows the last piece.
  absl::Status CutLine(std::string_view line, Int width, Int allowance,
                       std::vector<std::string>& chunks) {
    std::string current;
    for (size_t at = 0; at < line.size();) {
      const size_t begin = at;
      at = SkipWhile(line, at, false);
      at = SkipWhile(line, at, true);
      const std::string_view part = line.substr(begin, at - begin);
      if (at == line.size()) width -= allowance;
      const std::string candidate = current + std::string(part);
      JINJA_RETURN_IF_ERROR(runtime_.Touch(candidate.size()));
      if (Columns(QuoteString(candidate)) <= width) {
        current = candidate;
        continue;
      }
      if (!current.empty()) chunks.push_back(QuoteString(current));
      current = part;
    }
    if (!current.empty()) chunks.push_back(QuoteString(current));
    return absl::OkStatus();
  }

  static size_t SkipWhile(std::string_view text, size_t at, bool space) {
    while (at < text.size()) {
      size_t next = at;
      if (IsSpace(NextCodePoint(text, next)) != space) break;
      at = next;
    }
    return at;
  }

  Runtime& runtime_;
  std::string out_;
};

}  // namespace

absl::StatusOr<Text> PrettyPrint(Runtime& runtime, const Value& value) {
  PrettyPrinter printer(runtime);
  JINJA_RETURN_IF_ERROR(printer.Format(value, {}));
  return Text(printer.Take(), !HoldsClientText(value));
}

}  // namespace tessera::coordinator::jinja
