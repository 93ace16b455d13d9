// A string that knows, for every byte, whether the template or the client wrote it.
//
// The marks are kept as runs; a string with one origin needs none and costs no allocation for them.
// Plain value, not thread-safe. Offsets and sizes are in bytes; callers cut at character
// boundaries.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/tokenizer/text_segment.h"

namespace tessera::coordinator::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool from_template);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void Append(std::string_view bytes, bool from_template);
  void Append(const Text& other) { AppendSlice(other, 0, other.size()); }
  // Bytes [begin, end) of `other` with their marks. Requires begin <= end <= other.size().
  void AppendSlice(const Text& other, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;

  // The mark of the byte at `offset`; for an empty string true.
  bool FromTemplateAt(size_t offset) const;
  // Whether no byte is the client's.
  bool AllFromTemplate() const;

  // Python's markupsafe.Markup: marked safe, so what is joined to it is escaped. Set by the filters
  // safe and escape; of no meaning for the origin.
  bool markup() const { return markup_; }
  void set_markup(bool markup) { markup_ = markup; }

  std::vector<TextSegment> ToSegments() const;

 private:
  struct Run {
    size_t end;
    bool from_template;
  };
  // Index of the run that holds the byte at `offset`.
  size_t RunAt(size_t offset) const;
  // Marks what was appended behind `begin`.
  void MarkFrom(size_t begin, bool from_template);

  std::string bytes_;
  bool from_template_ = true;  // of all bytes, while runs_ is empty
  bool markup_ = false;
  std::vector<Run> runs_;  // neighbours differ; the last ends at bytes_.size()
};

}  // namespace tessera::coordinator::jinja
