// Writes the parts of a pattern in one of two ways: as bodies of a grammar's rules, or as one
// regular expression of xgrammar's, Regex("...").
//
// xgrammar makes one automaton of an expression and knows the mask of each of its states from the
// compile on. Tokens that run over the end of a rule that stands in several places are looked at
// for each mask instead, which takes some hundred times as long. But an expression has a state for
// each of its characters, repeated ones too, and a compile looks at all tokens in each of them.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/grammar/code_points.h"

namespace tessera::coordinator {

struct PatternLengths {
  int64_t min = 0;  // characters
  int64_t max = 0;  // -1: no limit
};

class PatternWriter {
 public:
  enum class Way { kRules, kRegex };

  PatternWriter(Way way, bool in_json) : way_(way), in_json_(in_json) {}

  Way way() const { return way_; }
  // Whether all that was written can be said this way.
  bool fits() const { return fits_; }

  std::string Nothing() const;  // the empty text
  std::string OneOf(const CodePoints& set) const;
  std::string Joined(const std::vector<std::string>& parts) const;
  std::string Either(const std::vector<std::string>& ways) const;  // grouped, if several
  static std::string Grouped(const std::string& part);
  std::string Counted(const std::string& part, const PatternLengths& count);

 private:
  const Way way_;
  const bool in_json_;
  bool fits_ = true;
};

}  // namespace tessera::coordinator
