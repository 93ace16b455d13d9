// Filters that lay text out: pprint and wordwrap.

#include <algorithm>

#include "coordinator/jinja/filters.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/pretty_print.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "coordinator/jinja/values/string_ops.h"
#include "coordinator/jinja/values/unicode.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// What wrapping is charged, in bytes for each of the text's: a word costs as much as a short
// string.
constexpr size_t kWrapWork = 32;

Result PrettyPrintFilter(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_RETURN_IF_ERROR(Bound::To("pprint", arguments, {}).status());
  JINJA_ASSIGN_OR_RETURN(Text text, PrettyPrint(runtime, value));
  return runtime.NewString(std::move(text));
}

// Cuts a line into words, runs of white space and parts of hyphenated words, as Python's textwrap
// does: "Look, goof-ball -- use the -b option!" is "Look,", " ", "goof-", "ball", " ", "--", ...
class Chunker {
 public:
  Chunker(std::string_view text, bool break_on_hyphens) : break_on_hyphens_(break_on_hyphens) {
    for (size_t at = 0; at < text.size();) {
      offsets_.push_back(at);
      characters_.push_back(NextCodePoint(text, at));
    }
    offsets_.push_back(text.size());
  }

  // Ends of the chunks, in characters.
  std::vector<size_t> Ends() const {
    std::vector<size_t> ends;
    for (size_t at = 0; at < characters_.size();) ends.push_back(at = EndFrom(at));
    return ends;
  }

  size_t OffsetOf(size_t index) const { return offsets_[index]; }
  uint32_t At(size_t index) const { return index < characters_.size() ? characters_[index] : 0; }

 private:
  // White space for textwrap is ASCII's alone.
  static bool IsBlank(uint32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  static bool IsWord(uint32_t c) { return c == '_' || IsAlpha(c) || IsNumeric(c); }
  static bool IsLetter(uint32_t c) { return IsWord(c) && !IsDecimal(c); }
  static bool IsWordOrMark(uint32_t c) {
    return IsWord(c) ||
           (c < 0x80 && c != 0 &&
            std::string_view("!\"'&.,?").find(static_cast<char>(c)) != std::string_view::npos);
  }

  bool Blank(size_t i) const { return i < characters_.size() && IsBlank(characters_[i]); }

  // End of a run of two or more dashes at `at` that a word follows and one precedes; else `at`.
  size_t DashEnd(size_t at) const {
    if (at == 0 || !IsWordOrMark(At(at - 1))) return at;
    size_t end = at;
    while (At(end) == '-') ++end;
    return end - at >= 2 && IsWord(At(end)) ? end : at;
  }

  // Whether the hyphen at `at` may end a line: letters stand on both sides.
  bool MayBreakBehind(size_t at) const {
    const bool two_letters = at >= 2 && IsLetter(At(at - 1)) && IsLetter(At(at - 2));
    const bool short_part =
        at >= 3 && IsWordOrMark(At(at - 1)) && At(at - 2) == '-' && IsLetter(At(at - 3));
    if (!two_letters && !short_part) return false;
    const size_t next = At(at + 2) == '-' ? at + 3 : at + 2;
    return IsLetter(At(at + 1)) && IsLetter(At(next));
  }

  size_t EndFrom(size_t begin) const {
    size_t at = begin;
    if (Blank(at)) {
      while (Blank(at)) ++at;
      return at;
    }
    if (break_on_hyphens_ && DashEnd(at) > at) return DashEnd(at);
    for (++at; at < characters_.size() && !Blank(at); ++at) {
      if (!break_on_hyphens_) continue;
      if (At(at) == '-' && MayBreakBehind(at)) return at + 1;
      if (DashEnd(at) > at) return at;
    }
    return at;
  }

  bool break_on_hyphens_;
  std::vector<uint32_t> characters_;
  std::vector<size_t> offsets_;  // of each character, and of the end
};

struct WrapOptions {
  size_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

// A line of text cut into lines of at most `width` characters: their byte ranges.
class Wrapper {
 public:
  Wrapper(std::string_view text, const WrapOptions& options)
      : options_(options), chunker_(text, options.break_on_hyphens) {}

  std::vector<ByteRange> Run() {
    size_t begin = 0;
    for (const size_t end : chunker_.Ends()) {
      chunks_.push_back({begin, end});
      begin = end;
    }
    size_t at = 0;
    while (at < chunks_.size()) {
      if (!lines_.empty() && IsBlank(chunks_[at]) && ++at == chunks_.size()) break;
      TakeLine(at);
    }
    return std::move(lines_);
  }

 private:
  struct Chunk {
    size_t begin;  // in characters
    size_t end;
    size_t size() const { return end - begin; }
  };

  bool IsBlank(const Chunk& chunk) const {
    for (size_t i = chunk.begin; i < chunk.end; ++i) {
      if (!IsSpace(chunker_.At(i))) return false;
    }
    return true;
  }

  // Moves the chunks of one line behind `at`, the last of them in part.
  void TakeLine(size_t& at) {
    std::vector<Chunk> line;
    size_t length = 0;
    while (at < chunks_.size() && length + chunks_[at].size() <= options_.width) {
      length += chunks_[at].size();
      line.push_back(chunks_[at++]);
    }
    if (at < chunks_.size() && chunks_[at].size() > options_.width)
      TakeLongWord(options_.width - length, at, line);
    if (!line.empty() && IsBlank(line.back())) line.pop_back();
    if (line.empty()) return;
    lines_.push_back({chunker_.OffsetOf(line.front().begin), chunker_.OffsetOf(line.back().end)});
  }

  void TakeLongWord(size_t space_left, size_t& at, std::vector<Chunk>& line) {
    Chunk& word = chunks_[at];
    if (!options_.break_long_words) {
      if (line.empty()) line.push_back(chunks_[at++]);
      return;
    }
    size_t end = word.begin + space_left;
    if (options_.break_on_hyphens) {
      size_t hyphen = end;
      while (hyphen > word.begin && chunker_.At(hyphen - 1) != '-') --hyphen;
      bool only_dashes = true;
      for (size_t i = word.begin; i + 1 < hyphen; ++i) only_dashes &= chunker_.At(i) == '-';
      if (!only_dashes) end = hyphen;
    }
    // Nothing of the word may fit; an empty piece counts as the line's last, as in Python.
    line.push_back({word.begin, end});
    word.begin = end;
  }

  WrapOptions options_;
  Chunker chunker_;
  std::vector<Chunk> chunks_;
  std::vector<ByteRange> lines_;
};

Result WordWrap(Runtime& runtime, const Value& value, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("wordwrap", arguments,
                                                      {"width", "break_long_words", "wrapstring",
                                                       "break_on_hyphens"}));
  JINJA_ASSIGN_OR_RETURN(const Int width, bound.Integer(0, 79));
  Text separator("\n", true);
  if (bound.Optional(2) != nullptr) {
    JINJA_ASSIGN_OR_RETURN(const Text* given, bound.String(2));
    separator = *given;
  }
  JINJA_RETURN_IF_ERROR(CheckDefined(value));
  if (!value.is_string()) {
    return RenderError(StrCat("wordwrap: expected a string, not ", value.TypeName()));
  }
  const Text& text = value.text();
  JINJA_RETURN_IF_ERROR(runtime.Touch(kWrapWork * text.size()));
  const WrapOptions options = {
      static_cast<size_t>(std::clamp<Int>(width, 0, static_cast<Int>(text.size()) + 1)),
      bound.Boolean(1, true), bound.Boolean(3, true)};
  Text result;
  bool first = true;
  for (const Line& line : SplitLines(text.bytes())) {
    if (!first) result.Append(separator);
    first = false;
    if (width <= 0) return RenderError("wordwrap: the width must be above 0");
    const std::string_view bytes =
        std::string_view(text.bytes()).substr(line.begin, line.end - line.begin);
    bool first_piece = true;
    for (const ByteRange& piece : Wrapper(bytes, options).Run()) {
      if (!first_piece) result.Append(separator);
      first_piece = false;
      result.AppendSlice(text, line.begin + piece.begin, line.begin + piece.end);
      JINJA_RETURN_IF_ERROR(runtime.CheckSize(result.size()));
    }
  }
  return runtime.NewString(std::move(result));
}

constexpr FilterEntry kFilters[] = {
    {"pprint", PrettyPrintFilter},
    {"wordwrap", WordWrap},
};

}  // namespace

std::span<const FilterEntry> LayoutFilters() { return kFilters; }

}  // namespace tessera::coordinator::jinja
