#include "coordinator/answer/call_body.h"

#include "coordinator/answer/trim.h"

namespace tessera::coordinator {

bool ClosingMarker::blank() const { return Trim(held_).empty(); }

bool ClosingMarker::Byte(char c) {
  held_.push_back(c);
  const std::string_view text = TrimLeft(held_);
  complete_ = !marker_.empty() && text == marker_;
  return !marker_.empty() && std::string_view(marker_).starts_with(text);
}

}  // namespace tessera::coordinator
