#include "coordinator/jinja/values/string_ops.h"

#include <algorithm>
#include <cstring>

#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

constexpr uint32_t kCapitalSigma = 0x3A3;
constexpr uint32_t kFinalSigma = 0x3C2;

// Calls convert(code point, begin, end, out) for every character and keeps its mark.
template <typename Convert>
Text MapCharacters(const Text& text, Convert convert) {
  Text result;
  std::string piece;
  const std::string& bytes = text.bytes();
  bool from_template = text.FromTemplateAt(0);
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const uint32_t c = NextCodePoint(bytes, &at);
    // Marks change rarely; pieces of one mark are appended together.
    if (const bool mark = text.FromTemplateAt(begin); mark != from_template) {
      result.Append(piece, from_template);
      piece.clear();
      from_template = mark;
    }
    convert(c, begin, at, piece);
  }
  result.Append(piece, from_template);
  result.set_markup(text.markup());
  return result;
}

void AppendLower(const Text& text, uint32_t c, size_t begin, size_t end, std::string& out) {
  if (c == kCapitalSigma && IsFinalSigma(text.bytes(), begin, end)) {
    AppendUtf8(kFinalSigma, &out);
  } else {
    AppendCase(c, Case::kLower, out);
  }
}

std::vector<uint32_t> SortedCodePoints(std::string_view text) {
  std::vector<uint32_t> code_points;
  for (size_t at = 0; at < text.size();) {
    code_points.push_back(NextCodePoint(text, &at));
  }
  std::sort(code_points.begin(), code_points.end());
  return code_points;
}

// Where `needle` starts, searched from the end, without overlaps; ascending. Linear time.
std::vector<size_t> FindAllFromRight(std::string_view text, std::string_view needle) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  std::vector<size_t> found;
  for (size_t at = 0; (at = FindBytes(reversed_text, reversed_needle, at)) != std::string::npos;) {
    at += needle.size();
    found.push_back(text.size() - at);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

std::vector<size_t> FindAll(std::string_view text, std::string_view needle) {
  std::vector<size_t> found;
  for (size_t at = 0; (at = FindBytes(text, needle, at)) != std::string::npos;) {
    found.push_back(at);
    at += needle.size();
  }
  return found;
}

class Splitter {
 public:
  Splitter(Runtime& runtime, const Text& text) : runtime_(runtime), text_(text) {}

  absl::Status Add(size_t begin, size_t end) {
    JINJA_ASSIGN_OR_RETURN(Value piece, runtime_.NewString(text_.Slice(begin, end)));
    JINJA_RETURN_IF_ERROR(runtime_.Touch(sizeof(Value) + sizeof(Text)));
    pieces_.push_back(std::move(piece));
    return absl::OkStatus();
  }

  std::vector<Value> Take(bool reversed) {
    if (reversed) {
      std::reverse(pieces_.begin(), pieces_.end());
    }
    return std::move(pieces_);
  }

 private:
  Runtime& runtime_;
  const Text& text_;
  std::vector<Value> pieces_;
};

// Skips characters for which IsSpace is `space`; the offset of the first other one.
size_t Skip(std::string_view text, size_t at, bool space) {
  while (at < text.size()) {
    size_t next = at;
    if (IsSpace(NextCodePoint(text, &next)) != space) {
      break;
    }
    at = next;
  }
  return at;
}

size_t SkipBack(std::string_view text, size_t at, bool space) {
  while (at > 0) {
    const size_t start = PreviousCharacter(text, at);
    size_t next = start;
    if (IsSpace(NextCodePoint(text, &next)) != space) {
      break;
    }
    at = start;
  }
  return at;
}

absl::StatusOr<std::vector<Value>> SplitAtSpace(Runtime& runtime, const Text& text, Int max_splits,
                                                bool from_right) {
  const std::string& bytes = text.bytes();
  Splitter splitter(runtime, text);
  if (from_right) {
    for (size_t end = SkipBack(bytes, bytes.size(), true); end > 0;) {
      const size_t begin = max_splits-- == 0 ? Skip(bytes, 0, true) : SkipBack(bytes, end, false);
      // What is left after the last cut keeps its leading space, as Python leaves it.
      JINJA_RETURN_IF_ERROR(splitter.Add(max_splits == -1 ? 0 : begin, end));
      end = max_splits == -1 ? 0 : SkipBack(bytes, begin, true);
    }
    return splitter.Take(true);
  }
  for (size_t begin = Skip(bytes, 0, true); begin < bytes.size();) {
    const bool last = max_splits-- == 0;
    const size_t end = last ? bytes.size() : Skip(bytes, begin, false);
    JINJA_RETURN_IF_ERROR(splitter.Add(begin, end));
    begin = Skip(bytes, end, true);
  }
  return splitter.Take(false);
}

absl::StatusOr<std::vector<Value>> SplitAtSeparator(Runtime& runtime, const Text& text,
                                                    const std::string& separator, Int max_splits,
                                                    bool from_right) {
  const std::string& bytes = text.bytes();
  // Where separators overlap, the side they are searched from decides.
  std::vector<size_t> cuts =
      from_right ? FindAllFromRight(bytes, separator) : FindAll(bytes, separator);
  if (max_splits >= 0 && static_cast<Int>(cuts.size()) > max_splits) {
    const auto excess = static_cast<std::ptrdiff_t>(cuts.size() - static_cast<size_t>(max_splits));
    if (from_right) {
      cuts.erase(cuts.begin(), cuts.begin() + excess);
    } else {
      cuts.erase(cuts.end() - excess, cuts.end());
    }
  }
  Splitter splitter(runtime, text);
  size_t begin = 0;
  for (const size_t cut : cuts) {
    JINJA_RETURN_IF_ERROR(splitter.Add(begin, cut));
    begin = cut + separator.size();
  }
  JINJA_RETURN_IF_ERROR(splitter.Add(begin, bytes.size()));
  return splitter.Take(false);
}

}  // namespace

Text ChangeCase(const Text& text, Case to) {
  return MapCharacters(text, [&](uint32_t c, size_t begin, size_t end, std::string& out) {
    if (to == Case::kLower) {
      AppendLower(text, c, begin, end, out);
    } else {
      AppendCase(c, to, out);
    }
  });
}

Text Capitalize(const Text& text) {
  return MapCharacters(text, [&](uint32_t c, size_t begin, size_t end, std::string& out) {
    if (begin == 0) {
      AppendCase(c, Case::kTitle, out);
    } else {
      AppendLower(text, c, begin, end, out);
    }
  });
}

Text TitleCase(const Text& text) {
  bool in_word = false;
  return MapCharacters(text, [&](uint32_t c, size_t begin, size_t end, std::string& out) {
    if (in_word) {
      AppendLower(text, c, begin, end, out);
    } else {
      AppendCase(c, Case::kTitle, out);
    }
    in_word = IsLower(c) || IsUpper(c) || (c >= 0x1C4 && c <= 0x1F2);
  });
}

Text Strip(const Text& text, const Text* chars, bool left, bool right) {
  const std::string& bytes = text.bytes();
  if (chars == nullptr) {
    const ByteRange kept = TrimSpace(bytes, left, right);
    return text.Slice(kept.begin, kept.end);
  }
  const std::vector<uint32_t> set = SortedCodePoints(chars->bytes());
  const auto in_set = [&set](uint32_t c) { return std::binary_search(set.begin(), set.end(), c); };
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!in_set(NextCodePoint(bytes, &next))) {
      break;
    }
    begin = next;
  }
  while (right && end > begin) {
    const size_t start = PreviousCharacter(bytes, end);
    size_t next = start;
    if (!in_set(NextCodePoint(bytes, &next))) {
      break;
    }
    end = start;
  }
  return text.Slice(begin, end);
}

size_t FindBytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

absl::StatusOr<Text> Replace(Runtime& runtime, const Text& text, const Text& old_text,
                             const Text& new_text, Int count) {
  JINJA_RETURN_IF_ERROR(runtime.Touch(text.size()));
  const std::string& bytes = text.bytes();
  Text result;
  size_t copied = 0;
  for (size_t at = 0; count != 0; --count) {
    // An empty needle is found before every character and at the end.
    const size_t found = FindBytes(bytes, old_text.bytes(), at);
    if (found == std::string_view::npos) {
      break;
    }
    result.AppendSlice(text, copied, found);
    result.Append(new_text);
    JINJA_RETURN_IF_ERROR(runtime.CheckSize(result.size()));
    copied = found + old_text.size();
    at = copied;
    if (old_text.empty()) {
      if (at >= bytes.size()) {
        break;
      }
      NextCodePoint(bytes, &at);
    }
  }
  result.AppendSlice(text, copied, bytes.size());
  result.set_markup(text.markup());
  return result;
}

absl::StatusOr<std::vector<Value>> Split(Runtime& runtime, const Text& text, const Text* separator,
                                         Int max_splits, bool from_right) {
  JINJA_RETURN_IF_ERROR(runtime.Touch(text.size()));
  if (separator == nullptr) {
    return SplitAtSpace(runtime, text, max_splits, from_right);
  }
  if (separator->empty()) {
    return RenderError("empty separator");
  }
  return SplitAtSeparator(runtime, text, separator->bytes(), max_splits, from_right);
}

std::vector<Line> SplitLines(std::string_view text) {
  std::vector<Line> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const uint32_t c = NextCodePoint(text, &at);
    if (!IsLineBreak(c)) {
      continue;
    }
    if (c == '\r' && at < text.size() && text[at] == '\n') {
      ++at;
    }
    lines.push_back({begin, end, at});
    begin = at;
  }
  if (begin < text.size()) {
    lines.push_back({begin, text.size(), text.size()});
  }
  return lines;
}

absl::StatusOr<Text> Pad(Runtime& runtime, const Text& text, Int left, const Text& fill,
                         Int right) {
  constexpr Int kLargest = Int{1} << 40;
  left = std::clamp<Int>(left, 0, kLargest);
  right = std::clamp<Int>(right, 0, kLargest);
  JINJA_RETURN_IF_ERROR(
      runtime.CheckSize(text.size() + static_cast<size_t>(left + right) * fill.size()));
  Text result;
  for (; left > 0; --left) {
    result.Append(fill);
  }
  result.Append(text);
  for (; right > 0; --right) {
    result.Append(fill);
  }
  return result;
}

absl::StatusOr<Text> Join(Runtime& runtime, const Text& separator,
                          const std::vector<Value>& items) {
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return RenderError(
          StrCat("sequence item ", i, ": expected str instance, ", items[i].TypeName(), " found"));
    }
    if (i != 0) {
      result.Append(separator);
    }
    const Text& item = items[i].text();
    result.Append(separator.markup() && !item.markup() ? EscapeHtml(item) : item);
    JINJA_RETURN_IF_ERROR(runtime.CheckSize(result.size()));
  }
  result.set_markup(separator.markup());
  return result;
}

}  // namespace tessera::coordinator::jinja
