// Any bytes as what a peer sends: frames within the limits, or a failure that names the peer and is
// final. Never a crash, never memory beyond the limit.
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernels/links/link.h"

using tessera::kernels::FileDescriptor;
using tessera::kernels::Link;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr int64_t kMaxBytes = 4096;
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) std::abort();
  const FileDescriptor stranger(fds[0]);
  Link link(FileDescriptor(fds[1]), "stranger");
  if (send(stranger.get(), data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) std::abort();
  shutdown(stranger.get(), SHUT_WR);

  std::size_t read = 0;
  while (true) {
    std::string payload;
    const auto type = link.ReceiveAny(kMaxBytes, &payload, 10);
    if (payload.size() > kMaxBytes) std::abort();
    if (!type.ok()) {
      if (link.status() != type.status()) std::abort();
      if (type.status().message().find("stranger") == std::string::npos) std::abort();
      return 0;
    }
    read += tessera::kernels::kFrameHeaderBytes + payload.size();
    if (read > size) std::abort();
  }
}
