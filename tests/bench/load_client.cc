#include "tests/bench/load_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string_view>
#include <utility>

#include "tests/fakes/fake_worker.h"

namespace tessera {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Request(const StreamSpec& spec) {
  std::string body = "{\"prompt\":\"" + spec.prompt +
                     "\",\"stream\":true,\"return_token_ids\":true,\"ignore_eos\":true,"
                     "\"max_tokens\":" +
                     std::to_string(spec.max_tokens);
  if (spec.logprobs >= 0) body += ",\"logprobs\":" + std::to_string(spec.logprobs);
  body += "}";
  return "POST " + spec.path +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct Stream {
  int socket = -1;
  int32_t max_tokens = 0;
  bool reads = true;
  double sent_seconds = 0;
  double last_event_seconds = -1;
  std::string partial;  // of an event
  StreamState state;
};

class Client final : public LoadClient {
 public:
  explicit Client(uint16_t port) : port_(port), epoll_(epoll_create1(0)) {}
  ~Client() override {
    for (Stream& stream : streams_) {
      if (stream.socket >= 0) close(stream.socket);
    }
    close(epoll_);
  }

  int Open(const StreamSpec& spec) override {
    Stream stream;
    stream.socket = socket(AF_INET, SOCK_STREAM, 0);
    if (stream.socket < 0) return -1;
    if (!spec.reads) {
      const int small = 4096;
      setsockopt(stream.socket, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(stream.socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      close(stream.socket);
      return -1;
    }
    const std::string request = Request(spec);
    for (size_t at = 0; at < request.size();) {
      const ssize_t sent =
          send(stream.socket, request.data() + at, request.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += static_cast<size_t>(sent);
    }
    fcntl(stream.socket, F_SETFL, O_NONBLOCK);
    stream.max_tokens = spec.max_tokens;
    stream.reads = spec.reads;
    stream.sent_seconds = NowSeconds();
    const int index = static_cast<int>(streams_.size());
    if (spec.reads) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = static_cast<uint32_t>(index);
      epoll_ctl(epoll_, EPOLL_CTL_ADD, stream.socket, &event);
      ++open_;
    }
    streams_.push_back(std::move(stream));
    return index;
  }

  void Run(double seconds) override {
    const double end = NowSeconds() + seconds;
    epoll_event events[512];
    while (open_ > 0) {
      const double left = end - NowSeconds();
      if (left <= 0) return;
      const int count = epoll_wait(epoll_, events, std::size(events),
                                   static_cast<int>(std::min(left * 1e3 + 1, 100.0)));
      for (int i = 0; i < count; ++i) Read(streams_[events[i].data.u32]);
    }
  }

  const StreamState& state(int stream) const override { return streams_[stream].state; }
  int streams() const override { return static_cast<int>(streams_.size()); }
  std::vector<float> TakeGaps() override { return std::exchange(gaps_, {}); }

 private:
  void Read(Stream& stream) {
    char bytes[65536];
    const ssize_t got = recv(stream.socket, bytes, sizeof bytes, 0);
    if (got <= 0) {
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      stream.state.closed = true;
      Leave(stream);
      return;
    }
    stream.partial.append(bytes, static_cast<size_t>(got));
    const double now = NowSeconds();
    size_t at = 0;
    // Events lie whole between the marks of the chunked encoding, which are skipped over.
    while (true) {
      const size_t begin = stream.partial.find("data: ", at);
      if (begin == std::string::npos) break;
      const size_t end = stream.partial.find("\n\n", begin);
      if (end == std::string::npos) break;
      OnEvent(stream, std::string_view(stream.partial).substr(begin + 6, end - begin - 6), now);
      at = end + 2;
      if (stream.socket < 0) return;
    }
    stream.partial.erase(0, at);
  }

  void OnEvent(Stream& stream, std::string_view event, double now) {
    StreamState& state = stream.state;
    if (event == "[DONE]") {
      state.complete = state.in_order && state.tokens == stream.max_tokens;
      Leave(stream);
      return;
    }
    constexpr std::string_view kIds = "\"token_ids\":[";
    const size_t ids = event.find(kIds);
    if (ids == std::string_view::npos) {
      state.in_order = false;  // an error
      return;
    }
    const char* at = event.data() + ids + kIds.size();
    const char* end = event.data() + event.size();
    while (at < end && *at != ']') {
      int32_t id = 0;
      at = std::from_chars(at, end, id).ptr;
      state.in_order = state.in_order && id == FakeToken(state.tokens);
      ++state.tokens;
      if (at < end && *at == ',') ++at;
    }
    if (stream.last_event_seconds >= 0) {
      gaps_.push_back(static_cast<float>(now - stream.last_event_seconds));
    } else {
      state.first_token_seconds = now - stream.sent_seconds;
    }
    stream.last_event_seconds = now;
  }

  void Leave(Stream& stream) {
    close(stream.socket);
    stream.socket = -1;
    stream.partial = std::string();
    --open_;
  }

  const uint16_t port_;
  const int epoll_;
  std::vector<Stream> streams_;
  std::vector<float> gaps_;
  int open_ = 0;
};

}  // namespace

std::unique_ptr<LoadClient> LoadClient::Connect(uint16_t port) {
  return std::make_unique<Client>(port);
}

double Quantile(std::vector<float>& values, double share) {
  if (values.empty()) return 0;
  const size_t at = std::min(values.size() - 1, static_cast<size_t>(share * values.size()));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace tessera
