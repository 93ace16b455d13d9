#include "coordinator/jinja/values/text.h"

#include <algorithm>
#include <utility>

namespace tessera::coordinator::jinja {

Text::Text(std::string bytes, bool from_template)
    : bytes_(std::move(bytes)), from_template_(from_template || bytes_.empty()) {}

void Text::MarkFrom(size_t begin, bool from_template) {
  const size_t end = bytes_.size();
  if (begin == end) {
    return;
  }
  if (begin == 0) {
    from_template_ = from_template;
  } else if (runs_.empty() && from_template != from_template_) {
    runs_ = {{begin, from_template_}, {end, from_template}};
  } else if (!runs_.empty() && runs_.back().from_template == from_template) {
    runs_.back().end = end;
  } else if (!runs_.empty()) {
    runs_.push_back({end, from_template});
  }
}

void Text::Append(std::string_view bytes, bool from_template) {
  const size_t begin = bytes_.size();
  bytes_.append(bytes);
  MarkFrom(begin, from_template);
}

size_t Text::RunAt(size_t offset) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), offset,
                                    [](size_t value, const Run& r) { return value < r.end; });
  return static_cast<size_t>(run - runs_.begin());
}

void Text::AppendSlice(const Text& other, size_t begin, size_t end) {
  if (begin >= end) {
    return;
  }
  if (&other == this) {
    const Text copy = Slice(begin, end);
    AppendSlice(copy, 0, copy.size());
    return;
  }
  if (other.runs_.empty()) {
    return Append(std::string_view(other.bytes_).substr(begin, end - begin), other.from_template_);
  }
  for (size_t run = other.RunAt(begin); begin < end; ++run) {
    const size_t run_end = std::min(other.runs_[run].end, end);
    Append(std::string_view(other.bytes_).substr(begin, run_end - begin),
           other.runs_[run].from_template);
    begin = run_end;
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text slice;
  slice.AppendSlice(*this, begin, end);
  slice.markup_ = markup_;
  return slice;
}

bool Text::FromTemplateAt(size_t offset) const {
  const size_t run = RunAt(offset);
  return run < runs_.size() ? runs_[run].from_template : from_template_;
}

bool Text::AllFromTemplate() const { return runs_.empty() && from_template_; }

std::vector<TextSegment> Text::ToSegments() const {
  std::vector<TextSegment> segments;
  if (runs_.empty() && !bytes_.empty()) {
    segments.push_back({bytes_, from_template_});
  }
  size_t begin = 0;
  for (const Run& run : runs_) {
    segments.push_back({bytes_.substr(begin, run.end - begin), run.from_template});
    begin = run.end;
  }
  return segments;
}

}  // namespace tessera::coordinator::jinja
