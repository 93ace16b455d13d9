// What follows a format's opening marker: one call or several, up to the closing marker.
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <string_view>

#include "coordinator/answer/answer_events.h"

namespace tessera::coordinator {

class CallBody {
 public:
  enum class State {
    kOpen,  // more may come
    kDone,  // has ended; unread() is not part of it
    kNone,  // the byte does not fit: what has come since the last whole call is text
  };
  virtual ~CallBody() = default;

  // The next byte. After kDone and kNone no more comes.
  virtual State Byte(char c, AnswerEvents& out) = 0;
  // The answer ends here. False: within a call.
  virtual bool Finish(AnswerEvents& out) = 0;
  // The last bytes, behind the end that they showed.
  std::string_view unread() const { return unread_; }

 protected:
  std::string unread_;
};

// Matches what closes a body: white space, then a marker that may be missing.
class ClosingMarker {
 public:
  explicit ClosingMarker(std::string_view marker) : marker_(marker) {}

  // Whether the byte may be part of it. After false, `held` is everything since the start, the byte
  // included.
  bool Byte(char c);
  bool complete() const { return complete_; }
  const std::string& held() const { return held_; }
  // Nothing but white space so far.
  bool blank() const;

 private:
  std::string marker_;
  std::string held_;
  bool complete_ = false;
};

}  // namespace tessera::coordinator
