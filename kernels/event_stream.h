// A stream whose host can wait for a point of it while what is enqueued behind that runs on: so the
// next step of a model is enqueued before the host has read what this one gave. Stream::marking
// gives it.
//
// Thread rule: that of Stream.
#pragma once

#include "absl/status/status.h"

namespace tessera::kernels {

class EventStream {
 public:
  // Marks at once: from 0 on.
  static constexpr int kMarks = 2;

  virtual ~EventStream() = default;
  // The mark `index` is now behind what was enqueued so far. Nobody waits for where it was before.
  virtual void Mark(int index) = 0;
  // Blocks until everything before the mark, which was set, is done and visible to the host. An
  // error: something before it failed and the work up to it was skipped, or the device is lost. A
  // failure stays the stream's until Synchronize.
  virtual absl::Status WaitMark(int index) = 0;
  // Whether WaitMark of it would not wait.
  virtual bool Passed(int index) = 0;
};

}  // namespace tessera::kernels
