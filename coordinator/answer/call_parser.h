// Finds the tool calls in what a model writes, as its format marks them. A pure function of the
// bytes: however they are cut, the events are the same (answer_events.h). What is no valid call is
// text; no byte is lost but markers and the white space around them.
//
// Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/answer/answer_events.h"
#include "coordinator/answer/call_body.h"

namespace tessera::coordinator {

// How an answer ends.
enum class AnswerEnd { kStop, kCut };

class CallParser {
 public:
  virtual ~CallParser() = default;
  virtual void Append(std::string_view text, AnswerEvents& out) = 0;
  // Nothing comes after it. A call that is cut stays as far as it has come; one that the model left
  // open is broken.
  virtual void Finish(AnswerEnd end, AnswerEvents& out) = 0;
};

struct CallMarkers {
  std::vector<std::string> opening = {};
  // Those that stand around calls and say nothing: they are dropped.
  std::vector<std::string> silent = {};
  // Besides, a text that begins with this byte begins with a call, without a marker; 0: none does.
  char bare = 0;
};

// `bare`: the body stands without an opening marker.
using CallBodyMaker = std::function<std::unique_ptr<CallBody>(bool bare)>;

std::unique_ptr<CallParser> MakeMarkedCallParser(CallMarkers markers, CallBodyMaker make_body);

}  // namespace tessera::coordinator
