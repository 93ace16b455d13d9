#include "coordinator/http/http_connection.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::coordinator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

std::string_view Reason(int status) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return {reason.data(), reason.size()};
}

std::string Head(int status, std::string_view content_type, const HttpHeaders& headers,
                 bool keep_alive) {
  std::string head = absl::StrFormat("HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", status,
                                     std::string(Reason(status)), std::string(content_type));
  for (const auto& [name, value] : headers) absl::StrAppend(&head, name, ": ", value, "\r\n");
  absl::StrAppend(&head, keep_alive ? "" : "Connection: close\r\n");
  return head;
}

HttpResponse PlainError(int status, const std::string& message) {
  HttpResponse response;
  response.status = status;
  response.body = absl::StrFormat(
      R"({"error":{"message":"%s","type":"invalid_request_error","param":null,"code":null}})",
      message);
  return response;
}

// What is wrong with a head or a body that cannot be read, in our words.
std::string WhyNotHttp(beast::error_code error) {
  if (error == http::error::bad_version) return "its version is not HTTP/1.0 or HTTP/1.1";
  if (error == http::error::bad_method) return "its method is malformed";
  if (error == http::error::bad_target) return "its target is malformed";
  if (error == http::error::bad_field || error == http::error::bad_value ||
      error == http::error::bad_obs_fold) {
    return "a header is malformed";
  }
  if (error == http::error::bad_content_length || error == http::error::multiple_content_length) {
    return "Content-Length is malformed or given twice";
  }
  if (error == http::error::bad_transfer_encoding) return "Transfer-Encoding is malformed";
  if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension)
    return "a chunk of its body is malformed";
  if (error == http::error::partial_message) return "it ends too early";
  return "it is malformed";
}

// The path of a target: without query, and without scheme and host where a client that takes this
// server for a proxy sends them.
std::string PathOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    const std::string_view begin = target.substr(0, scheme.size());
    if (!beast::iequals({begin.data(), begin.size()}, {scheme.data(), scheme.size()})) continue;
    target.remove_prefix(std::min(target.find_first_of("/?", scheme.size()), target.size()));
  }
  const std::string_view path = target.substr(0, target.find('?'));
  return path.empty() ? "/" : std::string(path);
}

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kStalled{1};
constexpr size_t kMaxReadAheadBytes = 16 << 10;
constexpr std::chrono::milliseconds kWatchInterval{200};
constexpr std::chrono::seconds kLinger{5};

class Connection;

// The answering side of one request. Outlives its connection if whoever answers does.
class Exchange final : public HttpExchange {
 public:
  Exchange(std::weak_ptr<Connection> connection, HttpRequest request, bool head_only,
           int64_t max_pending_bytes)
      : connection_(std::move(connection)),
        request_(std::move(request)),
        head_only_(head_only),
        max_pending_bytes_(max_pending_bytes) {}

  HttpRequest& request() override { return request_; }
  void Respond(HttpResponse response) override;
  void BeginStream(HttpHeaders headers) override;
  bool Write(std::string_view bytes) override;
  void End() override;
  void OnGone(std::function<void()> gone) override;

  // For the connection, on its executor.
  std::string TakePending(bool& complete);
  void Gone();
  // Whoever was to answer has let go of it.
  void Abandoned();
  void SetKeepAlive(bool keep_alive) { keep_alive_ = keep_alive; }
  // Before the handler sees the exchange: a client of HTTP/1.0 knows no chunks, the end of the
  // connection is the end of a stream.
  void SetChunked(bool chunked) { chunked_ = chunked; }
  bool keep_alive() const { return keep_alive_; }

 private:
  void Append(std::string_view bytes, bool end);
  void WakeConnection();
  void CloseConnection();

  const std::weak_ptr<Connection> connection_;
  HttpRequest request_;
  const bool head_only_;
  const int64_t max_pending_bytes_;
  bool keep_alive_ = true;  // set before the handler sees the exchange
  bool chunked_ = true;     // likewise

  std::mutex mutex_;
  std::string pending_;
  bool streaming_ = false;
  bool answered_ = false;  // Respond or BeginStream was called
  bool ended_ = false;
  bool gone_ = false;
  bool wake_posted_ = false;
  std::optional<Clock::time_point> write_began_;  // of the bytes taken last, if still unsent
  std::function<void()> on_gone_;
};

class Connection final : public HttpConnectionControl,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::ip::tcp::socket socket, std::shared_ptr<HttpServerState> state)
      : stream_(std::move(socket)), state_(std::move(state)), watch_timer_(stream_.get_executor()) {
    ++state_->connections;
  }
  ~Connection() override { --state_->connections; }

  void ReadNext() {
    exchange_.reset();
    parser_.emplace();
    parser_->body_limit(static_cast<uint64_t>(state_->options.max_body_bytes));
    parser_->header_limit(64 << 10);
    stream_.expires_after(Milliseconds(state_->options.idle_timeout_seconds));
    idle_ = true;
    http::async_read_header(stream_, buffer_, *parser_,
                            beast::bind_front_handler(&Connection::OnHeader, shared_from_this()));
  }

  void Drain() override {
    if (idle_) Close();
  }
  void Abort() override { Close(); }

  auto executor() { return stream_.get_executor(); }

  // Something is pending in the exchange, or it has ended.
  void Pump() {
    if (writing_ || closed_ || exchange_ == nullptr) return;
    bool complete = false;
    std::string bytes = exchange_->TakePending(complete);
    if (!bytes.empty()) {
      writing_ = true;
      current_ = std::move(bytes);
      stream_.expires_after(Milliseconds(state_->options.write_timeout_seconds));
      asio::async_write(stream_, asio::buffer(current_),
                        beast::bind_front_handler(&Connection::OnWritten, shared_from_this()));
      return;
    }
    if (complete) Complete();
  }

  void Close() {
    if (closed_) return;
    closed_ = true;
    std::shared_ptr<Exchange> exchange = std::move(exchange_);
    beast::error_code ignored;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
    watch_timer_.cancel();
    if (exchange != nullptr) exchange->Gone();
  }

 private:
  void OnHeader(beast::error_code error, size_t) {
    idle_ = false;
    if (error) {
      Refuse(error);
      return;
    }
    stream_.expires_after(Milliseconds(state_->options.read_timeout_seconds));
    if (parser_->get().version() >= 11 && parser_->get().count(http::field::host) != 1) {
      CountRefused();
      RespondAndClose(PlainError(400, "a request of HTTP/1.1 has exactly one Host header"));
      return;
    }
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      asio::async_write(stream_, asio::buffer(kContinue),
                        [self = shared_from_this()](beast::error_code failed, size_t) {
                          if (failed)
                            self->Close();
                          else
                            self->ReadBody();
                        });
      return;
    }
    ReadBody();
  }

  void ReadBody() {
    http::async_read(stream_, buffer_, *parser_,
                     beast::bind_front_handler(&Connection::OnRequest, shared_from_this()));
  }

  // Closing a socket with unread bytes resets it, and the answer is lost on its way: a client that
  // still sends what was refused is listened to for a while.
  void Linger() {
    stream_.expires_after(kLinger);
    LingerOn();
  }

  void LingerOn() {
    buffer_ = beast::flat_buffer();
    stream_.async_read_some(buffer_.prepare(kMaxReadAheadBytes),
                            [self = shared_from_this()](beast::error_code error, size_t) {
                              if (error)
                                self->Close();
                              else
                                self->LingerOn();
                            });
  }

  // What cannot be read as HTTP is answered where the other side may still listen, then closed.
  void Refuse(beast::error_code error) {
    const bool closed_by_peer =
        error == http::error::end_of_stream || error == asio::error::operation_aborted ||
        error == beast::error::timeout || error.category() == asio::error::get_system_category();
    if (closed_by_peer) {
      Close();
      return;
    }
    HttpResponse response;
    if (error == http::error::body_limit) {
      response = PlainError(
          413, absl::StrCat("the body is larger than ", state_->options.max_body_bytes, " bytes"));
    } else if (error == http::error::header_limit) {
      response = PlainError(431, "the request's headers are larger than 65536 bytes");
    } else {
      response = PlainError(400, absl::StrCat("this is not an HTTP request: ", WhyNotHttp(error)));
    }
    CountRefused();
    RespondAndClose(std::move(response));
  }

  void CountRefused() const {
    if (!state_->options.refused) return;
    std::string_view target;
    if (parser_.has_value())
      target = {parser_->get().target().data(), parser_->get().target().size()};
    state_->options.refused(PathOf(target));
  }

  void RespondAndClose(HttpResponse response) {
    unread_ = true;
    exchange_ = std::make_shared<Exchange>(weak_from_this(), HttpRequest(), false,
                                           state_->options.max_pending_bytes);
    exchange_->SetKeepAlive(false);
    exchange_->Respond(std::move(response));
  }

  void OnRequest(beast::error_code error, size_t) {
    if (error) {
      Refuse(error);
      return;
    }
    auto message = parser_->release();
    parser_.reset();
    HttpRequest request;
    request.method = std::string(message.method_string());
    request.path = PathOf({message.target().data(), message.target().size()});
    request.body = std::move(message.body());
    request.authorization = std::string(message[http::field::authorization]);
    request.content_type = std::string(message[http::field::content_type]);
    request.request_id = std::string(message["X-Request-Id"]);
    request.origin = std::string(message[http::field::origin]);
    request.cors_method = std::string(message[http::field::access_control_request_method]);
    request.cors_headers = std::string(message[http::field::access_control_request_headers]);
    exchange_ = std::make_shared<Exchange>(weak_from_this(), std::move(request),
                                           message.method() == http::verb::head,
                                           state_->options.max_pending_bytes);
    exchange_->SetKeepAlive(message.keep_alive() && !state_->draining);
    exchange_->SetChunked(message.version() >= 11);
    if (buffer_.size() == 0) buffer_ = beast::flat_buffer();  // a large request's memory goes back
    stream_.expires_never();
    Watch();
    // The connection keeps the exchange too; this handle tells when nobody is left to answer.
    state_->handler(std::shared_ptr<HttpExchange>(
        exchange_.get(), [exchange = exchange_](HttpExchange*) { exchange->Abandoned(); }));
  }

  // Notices a client that goes away while the answer is made. What comes meanwhile is the next
  // request: the beginning of it is read, so that the end of the stream can be seen behind it.
  void Watch() {
    if (watching_ || closed_) return;
    watching_ = true;
    if (buffer_.size() >= kMaxReadAheadBytes) {
      watch_timer_.expires_after(kWatchInterval);
      watch_timer_.async_wait([self = shared_from_this()](beast::error_code error) {
        self->watching_ = false;
        if (error || self->closed_ || self->exchange_ == nullptr) return;
        pollfd socket = {self->stream_.socket().native_handle(), POLLRDHUP, 0};
        if (poll(&socket, 1, 0) > 0)
          self->Close();
        else
          self->Watch();
      });
      return;
    }
    stream_.socket().async_wait(asio::ip::tcp::socket::wait_read,
                                [self = shared_from_this()](beast::error_code error) {
                                  self->watching_ = false;
                                  if (!error && !self->closed_ && self->exchange_ != nullptr)
                                    self->ReadAhead();
                                });
  }

  void ReadAhead() {
    beast::error_code error;
    stream_.socket().non_blocking(true, error);
    const auto space = buffer_.prepare(kMaxReadAheadBytes - buffer_.size());
    const size_t got = stream_.socket().receive(space, 0, error);
    buffer_.commit(got);
    if (error == asio::error::would_block || (!error && got > 0))
      Watch();
    else
      Close();
  }

  void OnWritten(beast::error_code error, size_t) {
    writing_ = false;
    current_ = std::string();
    if (error) {
      Close();
      return;
    }
    stream_.expires_never();
    Pump();
  }

  void Complete() {
    const bool keep_alive = exchange_->keep_alive() && !state_->draining;
    exchange_.reset();
    if (!keep_alive) {
      beast::error_code ignored;
      stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
      if (unread_)
        Linger();
      else
        Close();
      return;
    }
    // Ends Watch: the next read and it must not wait on the socket at the same time.
    if (watching_) {
      beast::error_code ignored;
      stream_.socket().cancel(ignored);
      watch_timer_.cancel();
    }
    asio::post(executor(), [self = shared_from_this()] {
      if (!self->closed_) self->ReadNext();
    });
  }

  beast::tcp_stream stream_;
  const std::shared_ptr<HttpServerState> state_;
  asio::steady_timer watch_timer_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<Exchange> exchange_;
  std::string current_;
  bool writing_ = false;
  bool watching_ = false;
  bool unread_ = false;  // the client may still send what was refused
  bool closed_ = false;
  bool idle_ = false;
};

void Exchange::Abandoned() {
  {
    std::lock_guard lock(mutex_);
    if (ended_ || gone_) return;
  }
  CloseConnection();
}

void Exchange::CloseConnection() {
  if (auto connection = connection_.lock()) {
    asio::post(connection->executor(), [connection] { connection->Close(); });
  }
}

void Exchange::Respond(HttpResponse response) {
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
  }
  std::string bytes = Head(response.status, response.content_type, response.headers, keep_alive_);
  absl::StrAppend(&bytes, "Content-Length: ", response.body.size(), "\r\n\r\n");
  if (!head_only_) bytes += response.body;
  Append(bytes, true);
}

void Exchange::BeginStream(HttpHeaders headers) {
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
    streaming_ = true;
  }
  if (!chunked_) keep_alive_ = false;
  std::string head = Head(200, "text/event-stream; charset=utf-8", headers, keep_alive_);
  absl::StrAppend(&head, "Cache-Control: no-cache\r\n",
                  chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
  Append(head, false);
}

bool Exchange::Write(std::string_view bytes) {
  if (bytes.empty()) return true;
  const std::string chunk = chunked_
                                ? absl::StrFormat("%x\r\n%s\r\n", bytes.size(), std::string(bytes))
                                : std::string(bytes);
  bool too_slow = false;
  {
    std::lock_guard lock(mutex_);
    if (gone_ || ended_) return false;
    // A large piece, or many at once, are no fault of the reader: it is slow when it has left a
    // write standing for a while.
    const bool stalled = write_began_.has_value() && Clock::now() - *write_began_ > kStalled;
    too_slow = stalled && static_cast<int64_t>(pending_.size() + chunk.size()) > max_pending_bytes_;
  }
  if (too_slow) {
    CloseConnection();
    return false;
  }
  Append(chunk, false);
  return true;
}

void Exchange::End() { Append(streaming_ && chunked_ ? "0\r\n\r\n" : "", true); }

void Exchange::OnGone(std::function<void()> gone) {
  {
    std::lock_guard lock(mutex_);
    if (!gone_) {
      on_gone_ = std::move(gone);
      return;
    }
  }
  if (gone) gone();
}

void Exchange::Append(std::string_view bytes, bool end) {
  {
    std::lock_guard lock(mutex_);
    if (gone_ || ended_) return;
    // Grown by doubling, a slow reader's bytes would leave as many again in freed pieces.
    const size_t bound = static_cast<size_t>(max_pending_bytes_);
    const size_t size = pending_.size() + bytes.size();
    if (size > pending_.capacity() && size > bound / 16 && size <= bound) pending_.reserve(bound);
    pending_ += bytes;
    ended_ = end;
    if (end) on_gone_ = nullptr;
    if (wake_posted_) return;  // several writes, one wake-up: they go out together
    wake_posted_ = true;
  }
  WakeConnection();
}

void Exchange::WakeConnection() {
  if (auto connection = connection_.lock()) {
    asio::post(connection->executor(), [connection] { connection->Pump(); });
  }
}

std::string Exchange::TakePending(bool& complete) {
  std::lock_guard lock(mutex_);
  wake_posted_ = false;
  complete = ended_ && pending_.empty();
  write_began_ = pending_.empty() ? std::nullopt : std::optional(Clock::now());
  return std::exchange(pending_, std::string());
}

void Exchange::Gone() {
  std::function<void()> gone;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    pending_ = std::string();
    if (!ended_) gone = std::move(on_gone_);
    on_gone_ = nullptr;
  }
  if (gone) gone();
}

}  // namespace

std::shared_ptr<HttpConnectionControl> StartHttpConnection(asio::ip::tcp::socket socket,
                                                           std::shared_ptr<HttpServerState> state) {
  beast::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (state->options.socket_send_buffer_bytes > 0) {
    socket.set_option(asio::socket_base::send_buffer_size(state->options.socket_send_buffer_bytes),
                      ignored);
  }
  auto connection = std::make_shared<Connection>(std::move(socket), std::move(state));
  asio::post(connection->executor(), [connection] { connection->ReadNext(); });
  return connection;
}

}  // namespace tessera::coordinator
