#include "coordinator/tokenizer/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

// PCRE2's \s and \w differ from Oniguruma's in a few code points (U+180E; marks and connectors).
constexpr std::string_view kSpace = "\\t-\\r\\x{85}\\p{Z}";
constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}";
constexpr size_t kJitStackStartBytes = 32 << 10;
constexpr size_t kJitStackMaxBytes = 16 << 20;
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr size_t kMaxPatternBytes = 64 << 10;

absl::Status Unsupported(std::string_view what, size_t offset) {
  return absl::InvalidArgumentError(
      StrCat("regular expression: ", what, " at byte ", offset, " is not supported"));
}

// Rewrites an Oniguruma pattern for PCRE2.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (i_ < in_.size()) {
      absl::Status status;
      if (in_[i_] == '\\') {
        status = Escape();
      } else if (in_class_) {
        status = InClass();
      } else {
        status = Outside();
      }
      if (!status.ok()) return status;
    }
    return std::move(out_);
  }

 private:
  void Copy(size_t length) {
    out_.append(in_.substr(i_, length));
    i_ += length;
  }

  absl::Status Escape() {
    if (i_ + 1 >= in_.size()) return Unsupported("a lone backslash", i_);
    const char c = in_[i_ + 1];
    switch (c) {
      case 's': return Set(kSpace, false);
      case 'w': return Set(kWord, false);
      case 'S': return Set(kSpace, true);
      case 'W': return Set(kWord, true);
      case 'b':
      case 'B':
        if (in_class_) break;
        return Unsupported(StrCat("\\", c), i_);
      case 'h':
      case 'H':
      case 'R':
      case 'X':
      case 'K':
      case 'k':
      case 'g':
      case 'y':
      case 'Y':
      case 'N':
      case 'O':
      case 'C':
      case 'M':
      case 'c':
      case 'Q':
      case 'E':
      case 'G': return Unsupported(StrCat("\\", c), i_);
      case 'u':  // \uHHHH is \x{HHHH}
        if (i_ + 6 > in_.size()) return Unsupported("a short \\u", i_);
        out_ += StrCat("\\x{", in_.substr(i_ + 2, 4), "}");
        i_ += 6;
        return absl::OkStatus();
      default: break;
    }
    Copy(2);
    return absl::OkStatus();
  }

  // A set of classes, bare inside brackets and in its own brackets outside.
  absl::Status Set(std::string_view members, bool negated) {
    if (in_class_ && negated) {
      Copy(2);  // has no spelling inside a class; differs in the few code points named above
      return absl::OkStatus();
    }
    if (in_class_) {
      out_.append(members);
    } else {
      out_ += StrCat(negated ? "[^" : "[", members, "]");
    }
    i_ += 2;
    return absl::OkStatus();
  }

  absl::Status InClass() {
    const char c = in_[i_];
    if (c == '[') {
      if (in_.substr(i_, 2) != "[:") return Unsupported("a set inside a set", i_);
      const size_t end = in_.find(":]", i_);
      if (end == std::string_view::npos) return Unsupported("'[:' without ':]'", i_);
      Copy(end + 2 - i_);
      return absl::OkStatus();
    }
    if (c == '&' && in_.substr(i_, 2) == "&&") return Unsupported("'&&' in a set", i_);
    if (c == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status Outside() {
    const char c = in_[i_];
    if (c == '[') {
      in_class_ = true;
      Copy(in_.substr(i_, 2) == "[^" ? 2 : 1);
      if (i_ < in_.size() && in_[i_] == ']') return Unsupported("']' at the head of a set", i_);
      return absl::OkStatus();
    }
    if (in_.substr(i_, 2) == "(?") return GroupHead();
    if (in_.substr(i_, 2) == "(*") return Unsupported("'(*'", i_);
    Copy(1);
    return absl::OkStatus();
  }

  // Ruby's (?m) lets '.' match a newline: PCRE2's s. Its (?i), (?x), look-arounds and plain groups
  // are the same.
  absl::Status GroupHead() {
    const size_t start = i_;
    Copy(2);
    if (i_ >= in_.size()) return Unsupported("'(?'", start);
    if (std::string_view(":=!>#").find(in_[i_]) != std::string_view::npos) {
      if (in_[i_] == '#') return Unsupported("'(?#'", start);
      Copy(1);
      return absl::OkStatus();
    }
    if (in_[i_] == '<' && i_ + 1 < in_.size() && (in_[i_ + 1] == '=' || in_[i_ + 1] == '!')) {
      Copy(2);
      return absl::OkStatus();
    }
    for (; i_ < in_.size() && in_[i_] != ':' && in_[i_] != ')'; ++i_) {
      if (std::string_view("imx-").find(in_[i_]) == std::string_view::npos) {
        return Unsupported(StrCat("the group '", in_.substr(start, i_ + 1 - start), "'"), start);
      }
      out_.push_back(in_[i_] == 'm' ? 's' : in_[i_]);
    }
    if (i_ < in_.size()) Copy(1);
    return absl::OkStatus();
  }

  std::string_view in_;
  size_t i_ = 0;
  bool in_class_ = false;
  std::string out_;
};

// What one thread needs to match; made once per thread.
struct MatchScratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr);

  MatchScratch() {
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, kMatchLimit);
  }
  ~MatchScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
};

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

std::string ErrorText(int code) {
  unsigned char buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof(buffer));
  return length < 0 ? StrCat("PCRE2 error ", code)
                    : std::string(reinterpret_cast<const char*>(buffer), length);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code;
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(StrCat("regular expression of ", pattern.size(),
                                             " bytes; the limit is ", kMaxPatternBytes));
  }
  auto translated = Translator(pattern).Run();
  if (!translated.ok()) return translated.status();
  int error = 0;
  size_t offset = 0;
  // Ruby's '^' and '$' stand at every line; a newline is \n alone.
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return absl::InvalidArgumentError(StrCat("regular expression: ", ErrorText(error), " at byte ",
                                             offset, " of \"", *translated, "\""));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter does the same
  return Regex(std::make_shared<const Code>(code));
}

absl::Status Regex::FindAll(std::string_view text, std::vector<ByteSpan>* matches) const {
  if (text.empty()) return absl::OkStatus();
  thread_local MatchScratch scratch;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t start = 0;
  size_t last_end = std::string_view::npos;  // of the match before
  while (start <= text.size()) {
    const int result = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK,
                                   scratch.data, scratch.context);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return absl::ResourceExhaustedError(StrCat("regular expression gave up at byte ", start,
                                                 " of the text: ", ErrorText(result)));
    }
    const size_t* ends = pcre2_get_ovector_pointer(scratch.data);
    if (ends[0] == ends[1] && ends[1] == last_end) {
      // A place right behind a match is not matched again: on to the next character.
      for (++start; start < text.size() && IsContinuation(text[start]);) ++start;
      continue;
    }
    matches->push_back({ends[0], ends[1]});
    start = last_end = ends[1];
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
