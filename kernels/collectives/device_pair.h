// Two devices of two processes, of which the one of rank 0 sends bytes of its memory to the other,
// without the hosts (NCCL between GPUs).
//
// Both make as many calls, of the same sizes: a call ends when the other's has come too, since
// either may have to find its peer first. Thread rule: one thread at a time. Ownership: must not
// outlive the Device. Errors are final: DeadlineExceeded (the peer's call did not come in time),
// Cancelled (`cancelled` said so), Unavailable (the peer is gone, in the library's words).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tessera::kernels {

class DevicePair {
 public:
  // What the peer still waits for fails, there too.
  virtual ~DevicePair() = default;

  // Memory of the device. What is sent and what comes stands at its start.
  virtual absl::Span<std::byte> memory() const = 0;
  // Block until `bytes` bytes, at most memory()'s, were read, or are there; what a stream did with
  // that memory before must have been waited for.
  virtual absl::Status Send(int64_t bytes, double timeout_seconds,
                            const std::function<bool()>& cancelled) = 0;
  virtual absl::Status Receive(int64_t bytes, double timeout_seconds,
                               const std::function<bool()>& cancelled) = 0;
  // Whether no call has failed. From any thread.
  virtual bool usable() const = 0;
};

}  // namespace tessera::kernels
