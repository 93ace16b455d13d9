#include "third_party/linux/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "third_party/absl/str_cat.h"

namespace tessera {

absl::Status NotifyServiceManager(std::string_view state) {
  const char* variable = std::getenv("NOTIFY_SOCKET");
  const std::string_view name = variable == nullptr ? "" : variable;
  if (name.empty()) return absl::OkStatus();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if ((name[0] != '/' && name[0] != '@') || name.size() < 2 ||
      name.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(StrCat(
        "NOTIFY_SOCKET=", name, " names no Unix socket: the service manager is not notified"));
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';
  const int socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  // A path ends with a zero byte, an abstract name with the address.
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() +
                                             (name[0] == '/' ? 1 : 0));
  const ssize_t sent =
      socket_fd < 0 ? -1
                    : sendto(socket_fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                             reinterpret_cast<const sockaddr*>(&address), length);
  const int error = errno;
  if (socket_fd >= 0) close(socket_fd);
  if (sent == static_cast<ssize_t>(state.size())) return absl::OkStatus();
  return absl::UnavailableError(StrCat("the service manager cannot be notified at NOTIFY_SOCKET=",
                                       name, ": ", std::strerror(error)));
}

}  // namespace tessera
