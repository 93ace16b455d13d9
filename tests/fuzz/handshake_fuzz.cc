// Any bytes as what a stranger says to a listener: refused, in bounded time and memory, with an
// error that names it and that can be printed. Never a crash, never a welcome.
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernels/links/handshake.h"

using tessera::kernels::FileDescriptor;
using tessera::kernels::HandshakeAsServer;
using tessera::kernels::HandshakeOptions;
using tessera::kernels::Link;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) std::abort();
  const FileDescriptor stranger(fds[0]);
  Link link(FileDescriptor(fds[1]), "stranger");
  if (send(stranger.get(), data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) std::abort();
  shutdown(stranger.get(), SHUT_WR);

  HandshakeOptions options = {.token = "secret", .identity = "server", .timeout_seconds = 10};
  options.verify = [](std::string_view) -> absl::Status { std::abort(); };
  const auto identity = HandshakeAsServer(link, options);
  if (identity.ok() || link.status().ok()) std::abort();
  const std::string message(identity.status().message());
  if (message.find("stranger") == std::string::npos || message.size() > 1024) std::abort();
  for (const char c : message) {
    if (c < ' ' || c > '~') std::abort();
  }
  return 0;
}
