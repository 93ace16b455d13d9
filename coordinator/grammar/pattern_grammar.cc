#include "coordinator/grammar/pattern_grammar.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

constexpr size_t kMaxPatternBytes = 4096;
constexpr int kMaxDepth = 32;
constexpr int64_t kMaxRepeat = 1000;
constexpr int64_t kMaxExpanded = 60'000;  // copies of atoms
constexpr int64_t kNoLimit = -1;

// States of a regular expression that a compile may take the time for.
constexpr int64_t kMaxRegexCopies = 256;

// Part of a pattern, as a PatternWriter writes it.
struct Piece {
  std::string body = {};
  PatternLengths lengths = {};
  int64_t copies = 1;  // that a grammar makes of its atoms, each way to write one counted
  // A class with one quantifier: its class, whose count may be narrowed.
  std::string repeated = {};
  // Around `repeated`: what has a fixed length, and how much that is.
  std::vector<std::string> head = {}, tail = {};
  int64_t fixed = 0;
  std::optional<CodePoints> set = {};  // of one class
  // `body` without the empty text, where that is one of its texts; "": not known.
  std::string nonempty = {};

  const std::string& NonEmpty() const { return lengths.min > 0 ? body : nonempty; }
};

int64_t Times(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (a == kNoLimit || b == kNoLimit) return kNoLimit;
  return std::min<int64_t>(a * b, std::numeric_limits<int32_t>::max());
}

int64_t Plus(int64_t a, int64_t b) { return a == kNoLimit || b == kNoLimit ? kNoLimit : a + b; }

CodePoints AsciiOf(char letter) {
  CodePoints set;
  switch (letter) {
    case 'd': return CodePoints::Of('0', '9');
    case 'w':
      set = CodePoints::Of('0', '9');
      set.Add('A', 'Z');
      set.Add('a', 'z');
      set.Add('_', '_');
      return set;
    default:
      set = CodePoints::Of('\t', '\r');
      set.Add(' ', ' ');
      return set;
  }
}

// \d \w \s and their opposites. What is not ASCII belongs to them in some dialects and not in
// others, so none of it is written.
std::optional<CodePoints> ClassEscape(char32_t letter) {
  switch (letter) {
    case 'd':
    case 'w':
    case 's': return AsciiOf(static_cast<char>(letter));
    case 'D':
    case 'W':
    case 'S':
      return AsciiOf(static_cast<char>(letter - 'A' + 'a'))
          .Complement()
          .Within(CodePoints::Of(0, 0x7F));
    default: return std::nullopt;
  }
}

// Where a pattern's text stands.
struct PatternPlace {
  bool in_json = false;
  // Any characters, as a rule and as a regular expression, and where rules go. None: the pattern
  // matches all of the text.
  std::string characters = {}, characters_regex = {};
  GrammarText* text = nullptr;
  CodePoints allowed = CodePoints::All();  // outside of JSON
};

class PatternParser {
 public:
  PatternParser(std::string_view pattern, const PatternPlace& place, PatternWriter* writer)
      : pattern_(pattern), place_(place), writer_(*writer) {}

  absl::StatusOr<Piece> Whole() {
    std::vector<Piece> ways;
    if (!AddWays(0, &ways)) return Error();
    if (at_ < pattern_.size()) {
      if (error_.empty())
        error_ = absl::StrCat(Excerpt(pattern_.substr(at_)), " is not enforced there");
      return Error();
    }
    Piece whole = EitherOf(ways);
    if (whole.copies > kMaxExpanded) return absl::InvalidArgumentError("it repeats too much");
    return whole;
  }

 private:
  absl::Status Error() const {
    return absl::InvalidArgumentError(error_.empty() ? "it cannot be read" : error_);
  }
  std::nullopt_t Fail(std::string_view why) {
    if (error_.empty()) error_ = std::string(why);
    return std::nullopt;
  }

  // The alternatives of all of the text. A group that is one of them may have anchors in it.
  bool AddWays(int depth, std::vector<Piece>* ways) {
    if (depth > kMaxDepth) {
      Fail("its groups nest too deeply");
      return false;
    }
    do {
      if (IsAnchoredGroup()) {
        Take('(');
        TakeText("?:");
        if (!AddWays(depth + 1, ways) || !Take(')')) return false;
        continue;
      }
      const bool from_start = Take('^');
      std::optional<Piece> way = Sequence(0);
      if (!way.has_value()) return false;
      const bool to_end = Take('$');
      ways->push_back(Padded(*std::move(way), !from_start, !to_end));
    } while (Take('|'));
    return true;
  }

  // Whether a group begins here that is all of an alternative and has an anchor.
  bool IsAnchoredGroup() const {
    const std::string_view rest = pattern_.substr(at_);
    if (!rest.starts_with('(') || (rest.starts_with("(?") && !rest.starts_with("(?:")))
      return false;
    bool in_class = false, anchored = false;
    int open = 0;
    for (size_t i = 0; i < rest.size(); ++i) {
      if (rest[i] == '\\') {
        ++i;
      } else if (in_class) {
        in_class = rest[i] != ']';
      } else if (rest[i] == '[') {
        in_class = true;
      } else if (rest[i] == '^' || rest[i] == '$') {
        anchored = true;
      } else if (rest[i] == '(') {
        ++open;
      } else if (rest[i] == ')' && --open == 0) {
        return anchored && (i + 1 == rest.size() || rest[i + 1] == '|' || rest[i + 1] == ')');
      }
    }
    return false;
  }

  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek() const { return AtEnd() ? '\0' : pattern_[at_]; }
  bool Take(char c) {
    if (AtEnd() || pattern_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeText(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  Piece Padded(Piece piece, bool before, bool behind) const {
    if (place_.text == nullptr || (!before && !behind)) return piece;
    std::vector<std::string> parts = {PatternWriter::Grouped(piece.body)};
    const bool as_rules = writer_.way() == PatternWriter::Way::kRules;
    const std::string& any = as_rules ? place_.characters : place_.characters_regex;
    if (before) parts.insert(parts.begin(), any);
    if (behind) parts.push_back(any);
    piece.body = writer_.Joined(parts);
    piece.lengths.max = kNoLimit;
    piece.repeated.clear();
    piece.nonempty.clear();
    return piece;
  }

  Piece EitherOf(const std::vector<Piece>& ways) const {
    if (ways.size() == 1) return ways[0];
    Piece all = {.lengths = ways[0].lengths, .copies = 0};
    std::vector<std::string> bodies, nonempty;
    bool known = true;
    for (const Piece& way : ways) {
      bodies.push_back(way.body);
      nonempty.push_back(way.NonEmpty());
      known = known && !way.NonEmpty().empty();
      all.lengths.min = std::min(all.lengths.min, way.lengths.min);
      const bool limited = all.lengths.max != kNoLimit && way.lengths.max != kNoLimit;
      all.lengths.max = limited ? std::max(all.lengths.max, way.lengths.max) : kNoLimit;
      all.copies += way.copies;
    }
    all.body = writer_.Either(bodies);
    if (known) all.nonempty = writer_.Either(nonempty);
    return all;
  }

  std::optional<Piece> Alternatives(int depth) {
    std::vector<Piece> ways;
    do {
      std::optional<Piece> way = Sequence(depth);
      if (!way.has_value()) return std::nullopt;
      ways.push_back(*std::move(way));
    } while (Take('|'));
    return EitherOf(ways);
  }

  std::optional<Piece> Sequence(int depth) {
    if (depth > kMaxDepth) return Fail("its groups nest too deeply");
    std::vector<Piece> parts;
    while (!AtEnd() && Peek() != '|' && Peek() != ')' && Peek() != '$') {
      std::optional<Piece> part = Atom(depth);
      if (part.has_value()) part = Quantified(*std::move(part));
      if (!part.has_value()) return std::nullopt;
      parts.push_back(*std::move(part));
    }
    if (parts.size() == 1) return parts[0];
    Piece sequence = {.copies = 0};
    std::vector<std::string> bodies;
    for (const Piece& part : parts) {
      bodies.push_back(part.body);
      sequence.lengths.min += part.lengths.min;
      sequence.lengths.max = Plus(sequence.lengths.max, part.lengths.max);
      sequence.copies += part.copies;
    }
    sequence.body = bodies.empty() ? writer_.Nothing() : writer_.Joined(bodies);
    if (sequence.lengths.min == 0) sequence.nonempty = NonEmptyOf(parts);
    FindRepeated(parts, sequence);
    return sequence;
  }

  // One part that is not empty, those before it empty, and any of those behind it. All may be
  // empty.
  std::string NonEmptyOf(const std::vector<Piece>& parts) const {
    if (parts.empty()) return "";
    std::vector<std::string> ways, behind;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (part->nonempty.empty()) return "";
      std::vector<std::string> way = {part->nonempty};
      way.insert(way.end(), behind.begin(), behind.end());
      ways.push_back(writer_.Joined(way));
      behind.insert(behind.begin(), part->body);
    }
    return PatternWriter::Grouped(writer_.Either(ways));
  }

  // Where one part alone has no fixed length, and is a class with a quantifier: its count decides
  // the length of all.
  static void FindRepeated(const std::vector<Piece>& parts, Piece& sequence) {
    const auto is_free = [](const Piece& part) { return part.lengths.min != part.lengths.max; };
    const auto free = std::find_if(parts.begin(), parts.end(), is_free);
    if (free == parts.end() || free->repeated.empty() || !free->head.empty() ||
        !free->tail.empty() || std::find_if(free + 1, parts.end(), is_free) != parts.end()) {
      return;
    }
    for (auto part = parts.begin(); part != parts.end(); ++part) {
      if (part == free) continue;
      sequence.fixed += part->lengths.min;
      auto& side = part < free ? sequence.head : sequence.tail;
      side.push_back(PatternWriter::Grouped(part->body));
    }
    sequence.repeated = free->repeated;
  }

  std::optional<Piece> Quantified(Piece atom) {
    PatternLengths count = {1, 1};
    if (Take('*')) {
      count = {0, kNoLimit};
    } else if (Take('+')) {
      count = {1, kNoLimit};
    } else if (Take('?')) {
      count = {0, 1};
    } else if (Peek() == '{') {
      const std::optional<PatternLengths> read = Braces();
      if (!read.has_value()) return Fail("{ that begins no count must be written \\{");
      count = *read;
    } else {
      return atom;
    }
    Take('?');  // lazy: the same texts
    if (Peek() == '+' || Peek() == '*') return Fail("a quantifier follows a quantifier");
    if (count.min > kMaxRepeat || count.max > kMaxRepeat)
      return Fail(absl::StrCat("it repeats more than ", kMaxRepeat, " times"));
    Piece piece;
    piece.repeated = atom.repeated;
    if (atom.lengths.min != 1 || atom.lengths.max != 1) piece.repeated.clear();
    piece.lengths = {Times(atom.lengths.min, count.min), Times(atom.lengths.max, count.max)};
    piece.copies = Times(atom.copies, std::max<int64_t>({1, count.min, count.max}));
    const bool runs = atom.set.has_value() && place_.text != nullptr &&
                      writer_.way() == PatternWriter::Way::kRules;
    const auto counted = [&](const PatternLengths& times) {
      return runs ? Run(*atom.set, times) : writer_.Counted(atom.body, times);
    };
    piece.body = counted(count);
    if (count.min == 0 && count.max != 0 && atom.lengths.min > 0)
      piece.nonempty = counted({1, count.max});
    return piece;
  }

  // A rule for each character: tokens that run over the end of a rule are looked at for each mask.
  std::string Run(const CodePoints& set, const PatternLengths& count) const {
    std::string then = "\"\"";
    int64_t at = count.max;
    if (count.max == kNoLimit) {
      then = place_.text->AddRecursive(absl::StrCat("\"\" | ", OneThen(set, "REST")), "REST");
      at = count.min;
    }
    for (int64_t i = at - 1; i >= 0; --i) {
      then = place_.text->Add(absl::StrCat(i >= count.min ? "\"\" | " : "", OneThen(set, then)));
    }
    return then;
  }

  std::optional<int64_t> Number() {
    int64_t value = 0;
    const size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9') {
      value = std::min<int64_t>(value * 10 + (pattern_[at_++] - '0'), 1 << 20);
    }
    if (at_ == begin) return std::nullopt;
    return value;
  }

  std::optional<PatternLengths> Braces() {
    if (!Take('{')) return std::nullopt;
    const std::optional<int64_t> min = Number();
    if (!min.has_value()) return std::nullopt;
    PatternLengths count = {*min, *min};
    if (Take(',')) count.max = Number().value_or(kNoLimit);
    if (!Take('}') || (count.max != kNoLimit && count.max < count.min)) return std::nullopt;
    return count;
  }

  std::string OneThen(const CodePoints& set, const std::string& rule) const {
    return place_.in_json ? set.InJsonStringThen(rule) : absl::StrCat(set.AsClass(), " ", rule);
  }

  std::optional<Piece> OneOf(const CodePoints& asked) {
    const CodePoints set = place_.in_json ? asked : asked.Within(place_.allowed);
    if (set.empty()) return Fail("it needs a character that may end the value");
    if (place_.in_json && set.CountWaysInJsonString() == 0)
      return Fail("it needs a control character, which answers do not have");
    Piece piece;
    piece.body = writer_.OneOf(set);
    piece.lengths = {1, 1};
    piece.repeated = piece.body;
    piece.copies = place_.in_json ? set.CountWaysInJsonString() : 1;
    piece.set = set;
    return piece;
  }

  std::optional<Piece> Atom(int depth) {
    if (Take('(')) return Group(depth);
    if (Take('[')) return Class();
    if (Take('.')) {
      CodePoints ends = CodePoints::Of('\n', '\n');
      for (const char32_t c : {U'\r', U'\u0085', U'\u2028', U'\u2029'}) ends.Add(c, c);
      return OneOf(ends.Complement());
    }
    if (Peek() == '^') return Fail("^ is enforced only at the start");
    if (Peek() == '*' || Peek() == '+' || Peek() == '?')
      return Fail("nothing is before a quantifier");
    if (Take('\\')) {
      if (const auto set = ClassEscape(static_cast<unsigned char>(Peek()))) {
        ++at_;
        return OneOf(*set);
      }
      const std::optional<char32_t> escaped = Escaped();
      if (!escaped.has_value()) return std::nullopt;
      return OneOf(CodePoints::Of(*escaped, *escaped));
    }
    const char32_t c = NextCodePoint(pattern_, &at_);
    return OneOf(CodePoints::Of(c, c));
  }

  std::optional<Piece> Group(int depth) {
    if (Peek() == '?' && !TakeText("?:")) {
      if (TakeText("?=") || TakeText("?!") || TakeText("?<=") || TakeText("?<!"))
        return Fail("lookaround is not enforced");
      if (!TakeText("?<") && !TakeText("?P<")) return Fail("a group begins with an unknown (?");
      while (!AtEnd() && Peek() != '>') ++at_;
      if (!Take('>')) return Fail("a group's name has no end");
    }
    std::optional<Piece> group = Alternatives(depth + 1);
    if (!group.has_value()) return std::nullopt;
    if (Peek() == '$') return Fail("$ is enforced only at the end");
    if (!Take(')')) return Fail("a group has no end");
    group->body = PatternWriter::Grouped(group->body);
    if (!group->nonempty.empty()) group->nonempty = PatternWriter::Grouped(group->nonempty);
    if (group->lengths.min != 1 || group->lengths.max != 1) group->repeated.clear();
    return group;
  }

  // Behind a backslash.
  std::optional<char32_t> Escaped() {
    if (AtEnd()) return Fail("it ends with a backslash");
    const char32_t letter = NextCodePoint(pattern_, &at_);
    switch (letter) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'f': return '\f';
      case 'v': return '\v';
      case '0': return '\0';
      case 'x': return Hex(2);
      case 'u': return Hex(4);
      default: break;
    }
    const bool is_word = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                         (letter >= 'A' && letter <= 'Z');
    if (is_word)
      return Fail(
          absl::StrCat("\\", std::string(1, static_cast<char>(letter)), " is not enforced"));
    return letter;
  }

  std::optional<char32_t> Hex(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = Peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + (c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + (lower - 'a' + 10);
      } else {
        return Fail("an escape has too few digits");
      }
      ++at_;
    }
    if (value >= 0xD800 && value <= 0xDFFF) return Fail("surrogates are not enforced");
    return value;
  }

  std::optional<Piece> Class() {
    const bool negated = Take('^');
    CodePoints set;
    bool ascii_only = false;
    for (bool first = true; first || Peek() != ']'; first = false) {
      if (AtEnd()) return Fail("a class has no end");
      if (Peek() == ']' && first) break;  // empty: nothing, or with ^ anything
      std::optional<char32_t> low;
      if (Take('\\')) {
        if (const auto escaped = ClassEscape(static_cast<unsigned char>(Peek()))) {
          ++at_;
          set.Add(*escaped);
          ascii_only = true;
          continue;
        }
        low = Take('b') ? std::optional<char32_t>('\b') : Escaped();
      } else {
        low = NextCodePoint(pattern_, &at_);
      }
      if (!low.has_value()) return std::nullopt;
      char32_t high = *low;
      const bool is_range = Peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (is_range) {
        ++at_;
        const std::optional<char32_t> end =
            Take('\\') ? Escaped() : std::optional<char32_t>(NextCodePoint(pattern_, &at_));
        if (!end.has_value()) return std::nullopt;
        if (*end < *low) return Fail("a range of a class ends before it begins");
        high = *end;
      }
      set.Add(*low, high);
    }
    Take(']');
    if (negated) set = set.Complement();
    if (negated && ascii_only) set = set.Within(CodePoints::Of(0, 0x7F));
    set = set.Within(CodePoints::All());
    if (set.empty()) return Fail("a class has no character");
    return OneOf(set);
  }

  const std::string_view pattern_;
  const PatternPlace& place_;
  PatternWriter& writer_;
  size_t at_ = 0;
  std::string error_;
};

bool Keeps(const PatternLengths& lengths, const PatternLengths& asked) {
  if (lengths.min < asked.min) return false;
  return asked.max == kNoLimit || (lengths.max != kNoLimit && lengths.max <= asked.max);
}

absl::Status CheckPattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is longer than ", kMaxPatternBytes, " bytes"));
  }
  if (FindInvalidUtf8(pattern) != std::string_view::npos ||
      pattern.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError("it is not a text");
  }
  return absl::OkStatus();
}

// What `writer` writes of the pattern; adds its copies to `copies`.
absl::StatusOr<std::string> Written(std::string_view pattern, const PatternPlace& place,
                                    const std::optional<PatternLengths>& asked,
                                    PatternWriter& writer, int64_t* copies) {
  absl::StatusOr<Piece> whole = PatternParser(pattern, place, &writer).Whole();
  if (!whole.ok()) return whole.status();
  *copies += whole->copies;
  if (!asked.has_value() || Keeps(whole->lengths, *asked)) return whole->body;
  if (whole->lengths.min == 0 && !whole->nonempty.empty() &&
      Keeps({1, whole->lengths.max}, *asked)) {
    return whole->nonempty;
  }
  PatternLengths count = whole->lengths;
  count.min = std::max(count.min, asked->min);
  if (asked->max != kNoLimit && (count.max == kNoLimit || count.max > asked->max)) {
    count.max = asked->max;
  }
  const bool possible = count.max == kNoLimit || count.min <= count.max;
  if (!whole->repeated.empty() && possible) {
    count.min -= whole->fixed;
    if (count.max != kNoLimit) count.max -= whole->fixed;
    *copies += std::max(count.min, count.max);
    std::vector<std::string> parts = std::move(whole->head);
    parts.push_back(writer.Counted(whole->repeated, count));
    parts.insert(parts.end(), whole->tail.begin(), whole->tail.end());
    return writer.Joined(parts);
  }
  return absl::InvalidArgumentError("it is enforced only without minLength and maxLength");
}

// As one regular expression, where that is small enough, else as rules.
absl::StatusOr<std::string> BodyOf(std::string_view pattern, const PatternPlace& place,
                                   const std::optional<PatternLengths>& asked) {
  if (absl::Status s = CheckPattern(pattern); !s.ok()) return s;
  PatternWriter regex(PatternWriter::Way::kRegex, place.in_json);
  int64_t copies = 0;
  const absl::StatusOr<std::string> body = Written(pattern, place, asked, regex, &copies);
  if (!body.ok()) return body.status();
  if (regex.fits() && copies <= kMaxRegexCopies)
    return absl::StrCat("Regex(", GrammarText::Quoted(*body), ")");
  PatternWriter rules(PatternWriter::Way::kRules, place.in_json);
  return Written(pattern, place, asked, rules, &copies);
}

}  // namespace

absl::StatusOr<std::string> PatternBody(std::string_view pattern, const std::string& characters,
                                        const std::optional<PatternLengths>& lengths,
                                        GrammarText* text) {
  return BodyOf(pattern,
                {.in_json = true,
                 .characters = characters,
                 .characters_regex = absl::StrCat(kJsonCharacterRegex, "*"),
                 .text = text},
                lengths);
}

absl::StatusOr<std::string> RawPatternBody(std::string_view pattern, char32_t without,
                                           const std::optional<PatternLengths>& lengths,
                                           GrammarText* text) {
  const CodePoints allowed =
      CodePoints::Of(without, without).Complement().Within(CodePoints::All());
  const std::string characters = text->Add(absl::StrCat(allowed.AsClass(), "*"));
  return BodyOf(pattern,
                {.characters = characters,
                 .characters_regex = absl::StrCat(allowed.AsRegexClass(), "*"),
                 .text = text,
                 .allowed = allowed},
                lengths);
}

absl::StatusOr<std::string> PlainPatternBody(std::string_view pattern) {
  return BodyOf(pattern, {}, std::nullopt);
}

std::optional<CodePoints> CharacterOfPattern(std::string_view pattern) {
  if (!CheckPattern(pattern).ok()) return std::nullopt;
  PatternWriter writer(PatternWriter::Way::kRules, /*in_json=*/false);
  const absl::StatusOr<Piece> whole = PatternParser(pattern, {}, &writer).Whole();
  const bool is_one = whole.ok() && whole->lengths.min == 1 && whole->lengths.max == 1;
  return is_one ? whole->set : std::nullopt;
}

}  // namespace tessera::coordinator
