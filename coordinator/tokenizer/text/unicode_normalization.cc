#include "coordinator/tokenizer/text/unicode_normalization.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "coordinator/tokenizer/text/utf8.h"

namespace tessera::coordinator {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr int kMaxDecomposition = 32;  // the longest is 18 (U+FDFA)

bool IsSurrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }
bool IsCompatibility(NormalizationForm form) {
  return form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
}
bool IsComposed(NormalizationForm form) {
  return form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
}

utf8proc_uint16_t CombiningClass(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

// The full decomposition of one code point; returns its length.
int Decompose(char32_t c, bool compatibility, utf8proc_int32_t* out) {
  int boundclass = 0;
  const int options = UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
  const auto length =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out, kMaxDecomposition,
                              static_cast<utf8proc_option_t>(options), &boundclass);
  return static_cast<int>(length);
}

// Which code points a form leaves alone wherever they stand: starters that do not change by
// themselves and never combine with what is before them.
class StableTable {
 public:
  explicit StableTable(NormalizationForm form) : stable_(kCodePoints / 8, 0) {
    std::vector<bool> combines(kCodePoints, false);
    utf8proc_int32_t buffer[kMaxDecomposition];
    for (char32_t c = 0; c < kCodePoints; ++c) {
      if (IsSurrogate(c)) continue;
      const int length = Decompose(c, IsCompatibility(form), buffer);
      bool same = length == 1 && buffer[0] == static_cast<utf8proc_int32_t>(c);
      if (!same && IsComposed(form)) {
        const int canonical = Decompose(c, false, buffer);
        for (int i = 1; i < canonical; ++i) combines[buffer[i]] = true;
        same = RecomposesToItself(c, form);
      }
      if (same && CombiningClass(c) == 0) stable_[c >> 3] |= 1 << (c & 7);
    }
    if (!IsComposed(form)) return;
    for (char32_t c = 0; c < kCodePoints; ++c) {
      if (combines[c]) stable_[c >> 3] &= ~(1 << (c & 7));
    }
  }

  bool Contains(char32_t c) const { return (stable_[c >> 3] >> (c & 7) & 1) != 0; }

 private:
  static bool RecomposesToItself(char32_t c, NormalizationForm form) {
    utf8proc_int32_t buffer[kMaxDecomposition];
    const int length = Decompose(c, IsCompatibility(form), buffer);
    const auto composed = utf8proc_normalize_utf32(
        buffer, length, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return composed == 1 && buffer[0] == static_cast<utf8proc_int32_t>(c);
  }

  std::vector<uint8_t> stable_;
};

const StableTable& StableOf(NormalizationForm form) {
  // Never destroyed: threads may outlive main.
  switch (form) {
    case NormalizationForm::kNfc: {
      static const auto* const table = new StableTable(form);
      return *table;
    }
    case NormalizationForm::kNfd: {
      static const auto* const table = new StableTable(form);
      return *table;
    }
    case NormalizationForm::kNfkc: {
      static const auto* const table = new StableTable(form);
      return *table;
    }
    default: {
      static const auto* const table = new StableTable(NormalizationForm::kNfkd);
      return *table;
    }
  }
}

// Decomposes a stretch, orders its marks and composes it again.
void AppendRewritten(NormalizationForm form, std::string_view stretch, std::string* out) {
  std::vector<utf8proc_int32_t> points;
  for (size_t i = 0; i < stretch.size();) {
    utf8proc_int32_t buffer[kMaxDecomposition];
    const int length = Decompose(NextCodePoint(stretch, &i), IsCompatibility(form), buffer);
    points.insert(points.end(), buffer, buffer + length);
  }
  const auto by_class = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return CombiningClass(a) < CombiningClass(b);
  };
  for (auto begin = points.begin(); begin != points.end();) {
    if (CombiningClass(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, points.end(),
                                  [](utf8proc_int32_t c) { return CombiningClass(c) == 0; });
    std::stable_sort(begin, end, by_class);
    begin = end;
  }
  if (IsComposed(form)) {
    const auto composed = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    points.resize(static_cast<size_t>(composed));
  }
  for (const utf8proc_int32_t c : points) AppendUtf8(static_cast<char32_t>(c), out);
}

}  // namespace

void AppendNormalized(NormalizationForm form, std::string_view text, std::string_view mask,
                      std::string* out, std::string* mask_out) {
  const StableTable& stable = StableOf(form);
  const bool composed = IsComposed(form);
  size_t copied = 0;        // text before this is in *out
  size_t last_starter = 0;  // the last stable character before i
  const auto copy_to = [&](size_t end) {
    out->append(text, copied, end - copied);
    if (!mask.empty()) mask_out->append(mask, copied, end - copied);
    copied = end;
  };
  for (size_t i = 0; i < text.size();) {
    size_t next = i;
    if (static_cast<uint8_t>(text[i]) < 0x80 || stable.Contains(NextCodePoint(text, &next))) {
      last_starter = i;
      i = std::max(next, i + 1);
      continue;
    }
    // A composed form may join the marks to the character before them.
    const size_t begin = composed ? std::max(last_starter, copied) : i;
    size_t end = next;
    for (size_t probe = end; end < text.size(); end = probe) {
      if (stable.Contains(NextCodePoint(text, &probe))) break;
    }
    copy_to(begin);
    const size_t size_before = out->size();
    AppendRewritten(form, text.substr(begin, end - begin), out);
    if (!mask.empty()) {
      const auto stretch = mask.substr(begin, end - begin);
      const bool all = stretch.find('\0') == std::string_view::npos;
      mask_out->append(out->size() - size_before, all ? '\1' : '\0');
    }
    copied = end;
    i = end;
    last_starter = end;
  }
  copy_to(text.size());
}

}  // namespace tessera::coordinator
