// Memory that two processes of one machine share: an anonymous file, sealed against a change of its
// size, which one makes and passes to the other over a Unix socket.
//
// Thread rule: functions of their arguments. Ownership: the memory is unmapped with its last
// reference, whoever holds the file. Errors: RESOURCE_EXHAUSTED where the system gives none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/links/file_descriptor.h"
#include "kernels/links/link.h"

namespace tessera::kernels {

struct SharedMemory {
  std::shared_ptr<std::byte> memory;
  int64_t size_bytes = 0;
  FileDescriptor file;  // for Link::SendDescriptor
};

// Zeros.
absl::StatusOr<SharedMemory> CreateSharedMemory(int64_t size_bytes);
// The peer's, sent by Link::SendDescriptor. FAILED_PRECONDITION: not a file that CreateSharedMemory
// made with this size.
absl::StatusOr<SharedMemory> ReceiveSharedMemory(Link& link, int64_t size_bytes,
                                                 double timeout_seconds);

}  // namespace tessera::kernels
