// One thread beside the doors' own for what takes long to read: parsing and tokenising megabytes.
// The I/O threads go on meanwhile, and however many such bodies come, they take one core.
//
// Thread rule: thread-safe. The destructor finishes what was posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace tessera::coordinator {

struct LargeBodiesOptions {
  int64_t from_bytes = 16 << 10;  // smaller ones are read where they arrive
  size_t max_waiting = 256;
};

class LargeBodies {
 public:
  explicit LargeBodies(LargeBodiesOptions options);
  ~LargeBodies();

  // Runs `read` here and now, or on the thread if the body is a large one. Unavailable when too
  // many wait already; `read` is not run then.
  absl::Status Read(size_t body_bytes, std::function<void()> read);

 private:
  struct Thread;  // keeps Asio out of this header
  const LargeBodiesOptions options_;
  const std::unique_ptr<Thread> thread_;
};

}  // namespace tessera::coordinator
