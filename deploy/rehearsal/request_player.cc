#include "deploy/rehearsal/request_player.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/rehearsal/completion_reader.h"

namespace tessera::deploy {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at whether to stop.
constexpr double kLookSeconds = 0.1;
constexpr size_t kNone = SIZE_MAX;

uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

// Each stream has a connection of its own.
void RaiseOpenFileLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// Connected to a port of this machine, and never blocking; negative with errno.
int Connect(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return fd;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

// A connection, and the request that it carries.
struct Connection {
  ~Connection() { close(fd); }
  int fd = -1;
  size_t number = kNone;  // of the request
  bool reused = false;    // it carried another one before
  std::string unsent;
  CompletionReader reader;
};

class Player {
 public:
  Player(const PlayOptions& options, const std::vector<scheduler::SimulatedRequest>& requests)
      : options_(options),
        requests_(requests),
        began_(Clock::now()),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    play_.requests.resize(requests.size());
    RaiseOpenFileLimit();
  }
  ~Player() { close(epoll_); }

  Play Run() {
    size_t next = 0;
    while ((next < requests_.size() || open_ > 0) && !Over(next)) {
      while (next < requests_.size() && Now() >= DueSeconds(next)) Send(next++);
      const double look = Now() + kLookSeconds;
      Take(next < requests_.size() ? std::min(DueSeconds(next), look) : look);
    }
    play_.seconds = Now();
    return std::move(play_);
  }

 private:
  double Now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  double DueSeconds(size_t number) const {
    return requests_[number].arrival_seconds / options_.speed;
  }

  bool Over(size_t next) {
    play_.stopped = options_.stop && options_.stop();
    if (play_.stopped) return true;
    return next == requests_.size() && Now() > DueSeconds(next - 1) + options_.patience_seconds;
  }

  std::string Message(size_t number) const {
    const scheduler::SimulatedRequest& request = requests_[number];
    std::string body = "{\"prompt\":[";
    for (int64_t i = 0; i < request.prompt_tokens; ++i) {
      const uint64_t whose = i < request.cached_prompt_tokens ? 0 : number + 1;
      const uint64_t drawn = Mix(whose << 32 ^ static_cast<uint64_t>(i));
      absl::StrAppend(&body, i > 0 ? "," : "", drawn % static_cast<uint64_t>(options_.vocabulary));
    }
    absl::StrAppend(&body, "],\"max_tokens\":", request.output_tokens,
                    ",\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":"
                    "true},\"seed\":",
                    number + 1, "}");
    return absl::StrCat(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: ",
        body.size(), "\r\n\r\n", body);
  }

  void Send(size_t number) {
    if (play_.requests[number].sent_seconds < 0) play_.requests[number].sent_seconds = Now();
    Connection* connection = nullptr;
    if (!idle_.empty()) {
      connection = idle_.back();
      idle_.pop_back();
      connection->reused = true;
    } else {
      connection = Open(number);
      if (connection == nullptr) return;
    }
    connection->number = number;
    connection->reader = CompletionReader();
    connection->unsent = Message(number);
    play_.most_streams = std::max(play_.most_streams, ++open_);
    SendMore(connection);
  }

  Connection* Open(size_t number) {
    const int fd = Connect(options_.http_port);
    if (fd < 0) {
      play_.requests[number].error =
          absl::StrCat("cannot connect to the coordinator: ", std::strerror(errno),
                       errno == EMFILE ? " (raise it: ulimit -n)" : "");
      return nullptr;
    }
    auto made = std::make_unique<Connection>();
    made->fd = fd;
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    return (connections_[fd] = std::move(made)).get();
  }

  // An error shows when the answer is read.
  static void SendMore(Connection* connection) {
    std::string& unsent = connection->unsent;
    if (unsent.empty()) return;
    const ssize_t sent = send(connection->fd, unsent.data(), unsent.size(), MSG_NOSIGNAL);
    if (sent > 0) unsent.erase(0, static_cast<size_t>(sent));
  }

  // What comes until then, or the first of it.
  void Take(double until_seconds) {
    epoll_event events[256];
    const int milliseconds = static_cast<int>(1e3 * std::max(0.0, until_seconds - Now()));
    const int count = epoll_wait(epoll_, events, std::size(events), milliseconds);
    for (int i = 0; i < count; ++i) {
      const auto found = connections_.find(events[i].data.fd);
      if (found == connections_.end()) continue;
      if ((events[i].events & EPOLLOUT) != 0) SendMore(found->second.get());
      if ((events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) Read(found->second.get());
    }
  }

  void Read(Connection* connection) {
    char bytes[65536];
    while (true) {
      const ssize_t got = recv(connection->fd, bytes, sizeof bytes, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return Lose(connection);
      if (connection->number == kNone) continue;  // nothing was asked
      const int64_t pieces = connection->reader.Take({bytes, static_cast<size_t>(got)});
      Note(connection->number, pieces);
      if (connection->reader.over()) End(connection);
    }
  }

  void Note(size_t number, int64_t tokens) {
    if (tokens == 0) return;
    PlayedRequest& played = play_.requests[number];
    const double now = Now();
    if (played.tokens == 0) {
      played.first_token_seconds = now;
    } else if (now - played.last_token_seconds > played.longest_gap_seconds) {
      played.longest_gap_seconds = now - played.last_token_seconds;
      played.longest_gap_end_seconds = now;
    }
    played.last_token_seconds = now;
    played.tokens += tokens;
  }

  void End(Connection* connection) {
    PlayedRequest& played = play_.requests[connection->number];
    const int64_t wanted = requests_[connection->number].output_tokens;
    played.error = connection->reader.error();
    played.finished =
        played.error.empty() && played.tokens == wanted && connection->reader.tokens() == wanted;
    connection->number = kNone;
    --open_;
    idle_.push_back(connection);
  }

  // The coordinator has closed it: an idle one when it likes, maybe as the next request came.
  void Lose(Connection* connection) {
    const size_t number = connection->number;
    const bool again = connection->reused && connection->reader.untouched();
    std::erase(idle_, connection);
    connections_.erase(connection->fd);
    if (number == kNone) return;
    --open_;
    if (again) return Send(number);
    play_.requests[number].error = "the coordinator has closed the connection";
  }

  const PlayOptions& options_;
  const std::vector<scheduler::SimulatedRequest>& requests_;
  const Clock::time_point began_;
  const int epoll_;
  std::map<int, std::unique_ptr<Connection>> connections_;  // by descriptor
  std::vector<Connection*> idle_;
  int64_t open_ = 0;  // requests
  Play play_;
};

}  // namespace

Play PlayRequests(const PlayOptions& options,
                  const std::vector<scheduler::SimulatedRequest>& requests) {
  return Player(options, requests).Run();
}

}  // namespace tessera::deploy
