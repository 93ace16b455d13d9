#include "kernels/links/link_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int kBacklog = 128;
constexpr int kRetryMilliseconds = 10;

// A socket address of any family.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(sockaddr_storage);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

absl::Status Failure(absl::StatusCode code, const LinkAddress& address, std::string_view what) {
  return absl::Status(code, StrCat("link at ", address.ToString(), ": ", what));
}

absl::Status FailureOfErrno(const LinkAddress& address, const char* call, int error) {
  return Failure(
      error == EADDRINUSE ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kUnavailable,
      address, StrCat(call, ": ", std::strerror(error)));
}

SocketAddress UnixAddress(const LinkAddress& address) {
  SocketAddress result;
  auto* const unix_address = reinterpret_cast<sockaddr_un*>(&result.storage);
  unix_address->sun_family = AF_UNIX;
  const size_t length = std::min(address.path.size(), sizeof unix_address->sun_path - 1);
  std::memcpy(unix_address->sun_path, address.path.data(), length);
  result.size = sizeof(sockaddr_un);
  return result;
}

// All addresses of the host, in the resolver's order of preference.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const LinkAddress& address, bool listen) {
  if (address.is_unix()) return std::vector{UnixAddress(address)};
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return Failure(absl::StatusCode::kUnavailable, address, gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress resolved;
    std::memcpy(&resolved.storage, entry->ai_addr, entry->ai_addrlen);
    resolved.size = entry->ai_addrlen;
    addresses.push_back(resolved);
  }
  freeaddrinfo(found);
  return addresses;
}

FileDescriptor OpenSocket(const SocketAddress& address) {
  return FileDescriptor(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string NameOf(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  if (getnameinfo(address.get(), address.size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return address.family() == AF_INET6 ? StrCat("[", host.data(), "]:", port.data())
                                      : StrCat(host.data(), ":", port.data());
}

// A Unix socket has no address on the connecting side; the process is known.
std::string NameOfUnixPeer(int fd) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return "a local process";
  return StrCat("process ", peer.pid);
}

// Whether the path is a socket on which nobody listens.
bool IsAbandoned(const LinkAddress& address) {
  struct stat status = {};
  if (lstat(address.path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const SocketAddress target = UnixAddress(address);
  const FileDescriptor probe = OpenSocket(target);
  return probe.valid() && connect(probe.get(), target.get(), target.size) != 0 &&
         errno == ECONNREFUSED;
}

absl::Status Bind(int fd, const LinkAddress& address, const SocketAddress& target) {
  if (bind(fd, target.get(), target.size) == 0) return absl::OkStatus();
  if (errno != EADDRINUSE || !address.is_unix() || !IsAbandoned(address)) {
    return FailureOfErrno(address, "bind", errno);
  }
  unlink(address.path.c_str());
  if (bind(fd, target.get(), target.size) == 0) return absl::OkStatus();
  return FailureOfErrno(address, "bind", errno);
}

absl::StatusOr<LinkAddress> BoundAddress(int fd, const LinkAddress& address) {
  if (address.is_unix()) return address;
  SocketAddress bound;
  if (getsockname(fd, bound.get(), &bound.size) != 0) {
    return FailureOfErrno(address, "getsockname", errno);
  }
  LinkAddress result = address;
  result.port = ntohs(bound.family() == AF_INET6
                          ? reinterpret_cast<const sockaddr_in6*>(&bound.storage)->sin6_port
                          : reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
  return result;
}

// Connects within the deadline; the errno, 0 when connected, ETIMEDOUT at the deadline.
int ConnectWithin(int fd, const SocketAddress& target, Deadline deadline) {
  while (connect(fd, target.get(), target.size) != 0) {
    if (errno == EISCONN) return 0;
    if (errno == EINTR) continue;
    // A Unix listener's queue is full; no event says when there is room.
    const bool queue_full = errno == EAGAIN;
    if (!queue_full && errno != EINPROGRESS && errno != EALREADY) return errno;
    pollfd waited = {.fd = fd, .events = POLLOUT, .revents = 0};
    const int left = MillisecondsUntil(deadline);
    if (left == 0) return ETIMEDOUT;
    if (queue_full) {
      poll(nullptr, 0, std::min(left, kRetryMilliseconds));
    } else if (poll(&waited, 1, left) > 0) {
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
      return error;
    }
  }
  return 0;
}

absl::StatusOr<std::unique_ptr<Link>> MakeLink(FileDescriptor socket, std::string peer,
                                               const LinkTlsSource* tls,
                                               LinkTlsSession::Side side) {
  if (tls == nullptr) return std::make_unique<Link>(std::move(socket), std::move(peer));
  absl::StatusOr<std::unique_ptr<LinkTlsSession>> session =
      LinkTlsSession::Begin(tls->Now(), socket.get(), side);
  if (!session.ok()) return session.status();
  return std::make_unique<Link>(std::move(socket), std::move(peer), *std::move(session));
}

}  // namespace

LinkListener::LinkListener(FileDescriptor socket, LinkAddress address,
                           std::shared_ptr<const LinkTlsSource> tls)
    : socket_(std::move(socket)), address_(std::move(address)), tls_(std::move(tls)) {}

LinkListener::~LinkListener() {
  if (address_.is_unix()) unlink(address_.path.c_str());
}

absl::StatusOr<std::unique_ptr<LinkListener>> LinkListener::Listen(
    const LinkAddress& address, std::shared_ptr<const LinkTlsSource> tls) {
  absl::StatusOr<std::vector<SocketAddress>> targets = Resolve(address, /*listen=*/true);
  if (!targets.ok()) return targets.status();
  const SocketAddress& target = targets->front();
  FileDescriptor socket = OpenSocket(target);
  if (!socket.valid()) return FailureOfErrno(address, "socket", errno);
  const int on = 1;
  if (!address.is_unix()) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (absl::Status status = Bind(socket.get(), address, target); !status.ok()) return status;
  // Before listen nobody can connect, whatever the mode is.
  if (address.is_unix() && chmod(address.path.c_str(), 0600) != 0) {
    return FailureOfErrno(address, "chmod", errno);
  }
  if (listen(socket.get(), kBacklog) != 0) return FailureOfErrno(address, "listen", errno);
  absl::StatusOr<LinkAddress> bound = BoundAddress(socket.get(), address);
  if (!bound.ok()) return bound.status();
  if (address.is_unix()) tls = nullptr;
  return std::unique_ptr<LinkListener>(
      new LinkListener(std::move(socket), *std::move(bound), std::move(tls)));
}

absl::StatusOr<std::unique_ptr<Link>> LinkListener::Accept(double timeout_seconds) {
  const Deadline deadline = DeadlineAfter(timeout_seconds);
  while (true) {
    pollfd waited = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&waited, 1, MillisecondsUntil(deadline));
    if (ready < 0 && errno != EINTR) return FailureOfErrno(address_, "poll", errno);
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) {
      return Failure(absl::StatusCode::kDeadlineExceeded, address_, "no peer connected in time");
    }
    if (ready <= 0) continue;
    SocketAddress peer;
    FileDescriptor accepted(
        accept4(socket_.get(), peer.get(), &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted.valid()) {
      // Another thread took it, or the peer went away again.
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
      return FailureOfErrno(address_, "accept", errno);
    }
    std::string name = address_.is_unix() ? NameOfUnixPeer(accepted.get()) : NameOf(peer);
    if (!address_.is_unix()) SetNoDelay(accepted.get());
    return MakeLink(std::move(accepted), std::move(name), tls_.get(),
                    LinkTlsSession::Side::kAccepts);
  }
}

absl::StatusOr<std::unique_ptr<Link>> ConnectLink(const LinkAddress& address,
                                                  double timeout_seconds,
                                                  const LinkTlsSource* tls) {
  const Deadline deadline = DeadlineAfter(timeout_seconds);
  absl::StatusOr<std::vector<SocketAddress>> targets = Resolve(address, /*listen=*/false);
  if (!targets.ok()) return targets.status();
  int error = 0;
  for (const SocketAddress& target : *targets) {
    FileDescriptor socket = OpenSocket(target);
    error = socket.valid() ? ConnectWithin(socket.get(), target, deadline) : errno;
    if (error != 0) continue;
    if (!address.is_unix()) SetNoDelay(socket.get());
    return MakeLink(std::move(socket), address.ToString(), address.is_unix() ? nullptr : tls,
                    LinkTlsSession::Side::kConnects);
  }
  if (error == ETIMEDOUT) {
    return Failure(absl::StatusCode::kDeadlineExceeded, address, "no connection in time");
  }
  return FailureOfErrno(address, "connect", error);
}

}  // namespace tessera::kernels
