// Values as Python writes them -> JSON: strings in either quotes, numbers,
// True, False, None, lists, tuples and dicts; those of JSON too. Nothing is
// evaluated.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::coordinator {

// Reads a text piece by piece. Once a piece does not fit, ok() is false and
// what is read says nothing.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  bool ok() const { return ok_; }
  bool at_end() {
    SkipSpace();
    return at_ == text_.size();
  }
  bool Peek(char c);
  bool Take(char c);
  void Expect(char c) { ok_ = Take(c) && ok_; }
  std::string Name();
  // A literal, as JSON.
  std::string Value(int depth = 0);

 private:
  void SkipSpace();
  std::string List(char end, int depth);
  std::string Dict(int depth);
  std::string String();

  const std::string_view text_;
  size_t at_ = 0;
  bool ok_ = true;
};

// A text that is one literal, as JSON.
std::optional<std::string> PythonToJson(std::string_view text);

// A text as a JSON string.
std::string JsonString(std::string_view text);

// Whether a text is one JSON value and nothing else. (For nlohmann::json a NUL ends the text, and
// what follows it is not looked at.)
bool IsJson(std::string_view text);

}  // namespace tessera::coordinator
