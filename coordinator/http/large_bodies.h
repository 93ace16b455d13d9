// Threads beside the doors' own for what takes long to read: parsing and tokenising megabytes. The
// I/O threads go on meanwhile, and however many such bodies come, they take two cores: one for the
// large, one for the huge, so that a body of some KB never waits for one of 30 MB.
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
  int64_t from_bytes = 16 << 10;        // smaller ones are read where they arrive
  int64_t huge_from_bytes = 256 << 10;  // these wait for each other only
  size_t max_waiting = 256;             // of the large, and of the huge
};

class LargeBodies {
 public:
  explicit LargeBodies(LargeBodiesOptions options);
  ~LargeBodies();

  // Runs `read` here and now, or on a thread if the body is a large one. Unavailable when too many
  // wait already; `read` is not run then. What a huge body was read into goes back to the system.
  absl::Status Read(size_t body_bytes, std::function<void()> read);

 private:
  struct Thread;  // keeps Asio out of this header
  const LargeBodiesOptions options_;
  const std::unique_ptr<Thread> large_;
  const std::unique_ptr<Thread> huge_;
};

}  // namespace tessera::coordinator
