// The ways from one worker to another that KV may take, by name: "nccl" (from GPU to GPU, without
// the hosts), "shm" (memory that both share, on one machine), "unix", "tcp".
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::worker {

// The slowest first.
enum class KvTransport { kTcp, kUnix, kSharedMemory, kNccl };

std::string_view Name(KvTransport transport);

// What --kv-transport says; none: "auto", the fastest that can be had. InvalidArgument names the
// text and what there is.
absl::StatusOr<std::optional<KvTransport>> ParseKvTransport(std::string_view text);

// As answers, status and logs have it: "tcp", or "tcp, staged" where a GPU's KV is copied through
// pinned memory of its host on either side.
std::string DescribeWay(KvTransport transport, bool staged);
// The slower of two transports that carried one prompt. Either may be empty.
std::string SlowerWay(const std::string& one, const std::string& other);

}  // namespace tessera::worker
