#include "coordinator/http/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/http/http_errors.h"
#include "coordinator/http/http_exchange.h"
#include "coordinator/http/request_framing.h"
#include "tls/encryptable_stream.h"

namespace tessera::coordinator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

constexpr char kNotHttp[] = "this is not an HTTP request: ";

// The parser lets a quoted extension hold line ends and other controls; a reader that ends the line
// there sees other chunks.
void CheckChunk(uint64_t, beast::string_view extensions, beast::error_code& error) {
  if (HasControls({extensions.data(), extensions.size()})) error = http::error::bad_chunk_extension;
}

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxHeaderBytes = 64 << 10, kMaxReadAheadBytes = 16 << 10;
// Max bytes that nothing has read yet: a header and the next request's begin, or a piece of a body.
constexpr size_t kMaxBufferBytes = 160 << 10;
constexpr std::chrono::milliseconds kWatchInterval{200};
// Every answer begins so (http_exchange.cc).
constexpr std::string_view kAnswerBegin = "HTTP/1.1 ";
constexpr std::chrono::seconds kMaxProbeInterval{8}, kLinger{5};
constexpr std::chrono::seconds kHandshake{10};  // of TLS, all of it

class Connection final : public HttpConnectionControl,
                         public ExchangeConnection,
                         public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::ip::tcp::socket socket, std::shared_ptr<HttpServerState> state)
      : stream_(std::move(socket), state->tls == nullptr ? nullptr : state->tls->now()),
        state_(std::move(state)),
        watch_timer_(stream_.get_executor()) {
    ++state_->connections;
  }
  ~Connection() override { --state_->connections; }

  void Begin() {
    if (!stream_.encrypted()) {
      ReadNext();
      return;
    }
    stream_.tcp().expires_after(kHandshake);
    stream_.AsyncHandshake(EncryptableStream::Side::server,
                           [self = shared_from_this()](beast::error_code error) {
                             if (!error)
                               self->ReadNext();
                             else
                               self->RefuseHandshake(error);
                           });
  }

  void ReadNext() {
    exchange_.reset();
    request_ = HttpRequest();
    exchange_options_ = ExchangeOptions();
    scanned_ = 0;
    idle_ = true;
    stream_.tcp().expires_after(Milliseconds(state_->options.idle_timeout_seconds));
    ReadHeader();
  }

  void Drain() override {
    if (idle_) Close();
  }
  void Abort() override { Close(); }

  auto executor() { return stream_.get_executor(); }

  void PostPump() override {
    asio::post(executor(), [self = shared_from_this()] { self->Pump(); });
  }
  void PostClose() override {
    asio::post(executor(), [self = shared_from_this()] { self->Close(); });
  }

 private:
  void Pump() {
    if (writing_ || closed_ || exchange_ == nullptr) return;
    bool complete = false;
    for (std::string bytes; !(bytes = exchange_->TakePending(complete)).empty();) {
      if (!std::exchange(answering_, true)) bytes.erase(0, probes_);
      const size_t sent = SendAtOnce(bytes);
      if (sent == bytes.size()) continue;
      writing_ = true;
      current_ = std::move(bytes);
      stream_.tcp().expires_after(Milliseconds(state_->options.write_timeout_seconds));
      asio::async_write(stream_, asio::buffer(current_) + sent,
                        beast::bind_front_handler(&Connection::OnWritten, shared_from_this()));
      return;
    }
    if (complete) Complete();
  }

  // How many of these bytes the socket takes without waiting: all of them, as a rule, and then
  // nothing is set up to wait with. What has failed is found by the write that follows.
  size_t SendAtOnce(std::string_view bytes) {
    if (stream_.encrypted()) return 0;
    const ssize_t sent = send(stream_.tcp().socket().native_handle(), bytes.data(), bytes.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }

  void Close() {
    if (closed_) return;
    closed_ = true;
    std::shared_ptr<Exchange> exchange = std::move(exchange_);
    beast::error_code ignored;
    stream_.tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.tcp().close();
    watch_timer_.cancel();
    if (exchange != nullptr) exchange->Gone();
  }

  // A client that speaks plain HTTP gets an answer that it can read.
  void RefuseHandshake(beast::error_code error) {
    if (!SpeaksPlainHttp(error)) {
      Close();
      return;
    }
    asio::async_write(stream_.tcp(), asio::buffer(kSpeaksHttps),
                      [self = shared_from_this()](beast::error_code, size_t) { self->Close(); });
  }

  std::string_view Buffered() const {
    const asio::const_buffer bytes = buffer_.cdata();
    return {static_cast<const char*>(bytes.data()), bytes.size()};
  }

  void ReadHeader() {
    const absl::StatusOr<size_t> end = FindHeaderEnd(Buffered(), scanned_);
    if (!end.ok()) {
      RefuseFraming(end.status());
    } else if (std::max(*end, scanned_) > kMaxHeaderBytes) {
      RefuseWith(431, "the request's headers are larger than 65536 bytes");
    } else if (*end > 0) {
      OnHeader(*end);
    } else {
      stream_.async_read_some(
          buffer_.prepare(kMaxReadAheadBytes),
          beast::bind_front_handler(&Connection::OnHeaderBytes, shared_from_this()));
    }
  }

  void OnHeaderBytes(beast::error_code error, size_t bytes) {
    buffer_.commit(bytes);
    if (!error) {
      ReadHeader();
    } else if (error == asio::error::eof && buffer_.size() > 0) {
      RefuseFraming(absl::InvalidArgumentError("it ends too early"));
    } else {
      Close();
    }
  }

  // Runs every check that may refuse a request before its body is read. 100 Continue comes after
  // all of them, so that a client whose request is refused never sends its body.
  void OnHeader(size_t bytes) {
    idle_ = false;
    if (absl::Status s = CheckFraming(Buffered().substr(0, bytes)); !s.ok()) {
      RefuseFraming(s);
      return;
    }
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(boost::none);
    beast::error_code error;
    parser_->put(asio::buffer(Buffered().data(), bytes), error);
    if (error) {
      Refuse(error);
      return;
    }
    buffer_.consume(bytes);
    TakeHeader();
    stream_.tcp().expires_after(Milliseconds(state_->options.read_timeout_seconds));
    if (!Admit()) return;
    const uint64_t limit = static_cast<uint64_t>(state_->options.max_body_bytes);
    const uint64_t length = parser_->content_length().value_or(0);
    if (length > limit) {
      Refuse(http::error::body_limit);
      return;
    }
    request_.body_share = std::make_shared<BodyShare>(state_->bodies);
    if (!request_.body_share->MayGrow(static_cast<int64_t>(length))) {
      RefuseForRoom(static_cast<int64_t>(length));
      return;
    }
    parser_->body_limit(limit);
    parser_->eager(true);
    if (!parser_->is_done()) parser_->on_chunk_header(check_chunk_);
    const auto expected = parser_->get()[http::field::expect];
    if (!expected.empty() && !beast::iequals(expected, "100-continue")) {
      RefuseWith(417, "the header Expect may only ask for 100-continue here");
    } else if (!expected.empty() && !parser_->is_done() && exchange_options_.chunked) {
      Continue();
    } else {
      ReadBody();
    }
  }

  // False: it has been answered.
  bool Admit() {
    if (!state_->options.admit) return true;
    HttpAdmission admission = state_->options.admit(request_);
    exchange_options_.headers = std::move(admission.headers);
    if (!admission.answer.has_value()) return true;
    if (request_.has_body) {
      RespondAndClose(*std::move(admission.answer));
    } else {
      BeginExchange();
      exchange_->Respond(*std::move(admission.answer));
    }
    return false;
  }

  void Continue() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue),
                      [self = shared_from_this()](beast::error_code failed, size_t) {
                        if (failed)
                          self->Close();
                        else
                          self->ReadBody();
                      });
  }

  // Reads the header before the body: its trailers are put among the headers by the parser.
  void TakeHeader() {
    const auto& message = parser_->get();
    const std::string_view target(message.target().data(), message.target().size());
    request_.method = std::string(message.method_string());
    request_.path = PathOf(target);
    request_.has_body = !parser_->is_done();
    request_.on_loopback = state_->on_loopback;
    request_.target_authority = std::string(TargetAuthority(target));
    std::string key;  // Anthropic's clients send one under a name of their own
    const std::pair<const char*, std::string*> fields[] = {
        {"Host", &request_.host},
        {"Origin", &request_.origin},
        {"Accept", &request_.accept},
        {"x-api-key", &key},
        {"Authorization", &request_.authorization},
        {"Content-Type", &request_.content_type},
        {"X-Request-Id", &request_.request_id},
        {"Sec-Fetch-Site", &request_.fetch_site},
        {"Access-Control-Request-Method", &request_.cors_method},
        {"Access-Control-Request-Headers", &request_.cors_headers},
        {"x-workflow-id", &request_.workflow},
        {"x-workflow-stages-left", &request_.workflow_stages_left}};
    for (const auto& [name, value] : fields) *value = std::string(message[name]);
    for (auto [it, end] = message.equal_range("x-request-deadline"); it != end; ++it)
      request_.deadline += (request_.deadline.empty() ? "" : ", ") + std::string(it->value()) +
                           (it->value().empty() ? " " : "");  // which is seen to be wrong
    if (request_.authorization.empty() && !key.empty()) request_.authorization = "Bearer " + key;
    exchange_options_.head_only = message.method() == http::verb::head;
    exchange_options_.keep_alive = message.keep_alive();
    exchange_options_.chunked = message.version() >= 11;
    exchange_options_.max_pending_bytes = state_->options.max_pending_bytes;
    request_.traceparent = std::string(message["traceparent"]);
    request_.resume = std::string(message["x-tessera-resume"]);
  }

  void ReadBody() {
    if (parser_->is_done()) {
      OnRequest();
      return;
    }
    http::async_read_some(stream_, buffer_, *parser_,
                          beast::bind_front_handler(&Connection::OnBodyBytes, shared_from_this()));
  }

  void OnBodyBytes(beast::error_code error, size_t) {
    if (error) {
      Refuse(error);
      return;
    }
    const auto bytes = static_cast<int64_t>(parser_->get().body().size());
    if (request_.body_share->Grow(bytes))
      ReadBody();
    else
      RefuseForRoom(bytes);
  }

  // `bytes`: of the body that there is no room for.
  void RefuseForRoom(int64_t bytes) {
    const NoRoom refusal = RefusalOf(*state_->bodies, bytes);
    RefuseWith(refusal.status, refusal.message);
  }

  void RefuseWith(int status, const std::string& message) {
    idle_ = false;
    CountRefused(status);
    RespondAndClose(PlainError(status, message));
  }

  // Closing a socket with unread bytes resets it, and the answer is lost on its way: a client that
  // still sends what was refused is listened to for a while.
  void Linger() {
    stream_.tcp().expires_after(kLinger);
    LingerOn();
  }

  void LingerOn() {
    buffer_.clear();
    stream_.tcp().async_read_some(buffer_.prepare(kMaxReadAheadBytes),
                                  [self = shared_from_this()](beast::error_code error, size_t) {
                                    if (error)
                                      self->Close();
                                    else
                                      self->LingerOn();
                                  });
  }

  void RefuseFraming(const absl::Status& status) {
    const bool unknown = status.code() == absl::StatusCode::kUnimplemented;
    RefuseWith(unknown ? 501 : 400,
               absl::StrCat(unknown ? "" : kNotHttp, std::string(status.message())));
  }

  // What cannot be read as HTTP is answered where the other side may still listen, then closed.
  void Refuse(beast::error_code error) {
    const bool closed_by_peer =
        error == http::error::end_of_stream || error == asio::error::operation_aborted ||
        error == beast::error::timeout || error.category() == asio::error::get_system_category() ||
        error.category() == asio::error::get_ssl_category() ||
        error.category() == asio::ssl::error::get_stream_category();
    if (closed_by_peer) {
      Close();
      return;
    }
    if (error == http::error::body_limit) {
      RefuseWith(
          413, absl::StrCat("the body is larger than ", state_->options.max_body_bytes, " bytes"));
    } else {
      RefuseWith(400, absl::StrCat(kNotHttp, WhyNotHttp(error)));
    }
  }

  // By the path where one was read.
  void CountRefused(int status) const {
    if (!state_->options.refused) return;
    state_->options.refused(
        request_.path.empty() ? PathOf(RequestTarget(Buffered())) : request_.path, status);
  }

  void RespondAndClose(HttpResponse response) {
    unread_ = true;
    parser_.reset();  // what was read of a body is freed before the other side has left
    request_ = HttpRequest();
    ExchangeOptions options = exchange_options_;
    options.keep_alive = false;
    exchange_ = std::make_shared<Exchange>(weak_from_this(), HttpRequest(), options);
    exchange_->Respond(std::move(response));
  }

  void BeginExchange() {
    parser_.reset();
    exchange_options_.keep_alive = exchange_options_.keep_alive && !state_->draining;
    exchange_ =
        std::make_shared<Exchange>(weak_from_this(), std::move(request_), exchange_options_);
    stream_.tcp().expires_never();
    answering_ = false;
    probes_ = 0;
    next_probe_ = Clock::now();
  }

  void OnRequest() {
    request_.body = std::move(parser_->get().body());
    BeginExchange();
    if (buffer_.size() == 0) buffer_.shrink_to_fit();  // a large request's memory goes back
    Watch();
    // The connection keeps the exchange too; this handle tells when nobody is left to answer.
    state_->handler(std::shared_ptr<HttpExchange>(
        exchange_.get(), [exchange = exchange_](HttpExchange*) { exchange->Abandoned(); }));
  }

  // Notices a client that goes away while the answer is made. What comes meanwhile is the next
  // request: the beginning of it is read, so that the end of the stream can be seen behind it. That
  // end says that the client sends no more; it may still read.
  void Watch() {
    if (watching_ || closed_) return;
    watching_ = true;
    if (half_closed_ || buffer_.size() >= kMaxReadAheadBytes) {
      watch_timer_.expires_after(kWatchInterval);
      watch_timer_.async_wait([self = shared_from_this()](beast::error_code error) {
        self->watching_ = false;
        if (error || self->closed_ || self->exchange_ == nullptr) return;
        self->LookForEnd();
      });
      return;
    }
    if (stream_.encrypted()) {
      stream_.async_read_some(
          asio::buffer(watched_),
          beast::bind_front_handler(&Connection::OnWatchedBytes, shared_from_this()));
      return;
    }
    stream_.tcp().socket().async_wait(asio::ip::tcp::socket::wait_read,
                                      [self = shared_from_this()](beast::error_code error) {
                                        self->watching_ = false;
                                        if (!error && !self->closed_ && self->exchange_ != nullptr)
                                          self->ReadAhead();
                                      });
  }

  // Whether the end of TLS or of the connection, it says that nobody reads any more.
  void OnWatchedBytes(beast::error_code error, size_t bytes) {
    watching_ = false;
    if (closed_) return;
    buffer_.commit(asio::buffer_copy(buffer_.prepare(bytes), asio::buffer(watched_, bytes)));
    const bool over = error && error != asio::error::operation_aborted;
    if (over)
      Close();
    else if (after_watch_ != nullptr)
      (this->*std::exchange(after_watch_, nullptr))();
    else
      Watch();
  }

  // Two reads at a time would take each other's bytes. One that has part of a record goes on until
  // it has all of it, for as long as a connection may be idle.
  void EndWatch(void (Connection::*then)()) {
    if (!watching_) return (this->*then)();
    beast::error_code ignored;
    after_watch_ = then;
    stream_.tcp().socket().cancel(ignored);
    watch_timer_.expires_after(Milliseconds(state_->options.idle_timeout_seconds));
    watch_timer_.async_wait([self = shared_from_this()](beast::error_code cancelled) {
      if (!cancelled && self->after_watch_ != nullptr) self->Close();
    });
  }

  void LookForEnd() {
    pollfd socket = {stream_.tcp().socket().native_handle(), POLLRDHUP, 0};
    poll(&socket, 1, 0);
    half_closed_ |= (socket.revents & POLLRDHUP) != 0;
    if ((socket.revents & (POLLERR | POLLHUP)) != 0 || (half_closed_ && stream_.encrypted()))
      Close();
    else
      GoOnWatching();
  }

  void GoOnWatching() {
    if (half_closed_ && Clock::now() >= next_probe_) Probe();
    if (!closed_) Watch();
  }

  // A client that has closed altogether answers any byte with a reset, which LookForEnd sees. Bytes
  // that do no harm to one that reads: the beginning of the answer, which is always the same, one
  // by one; of a stream that has begun, a comment.
  void Probe() {
    const auto interval = std::chrono::seconds(1 << std::min(probes_, size_t{3}));
    next_probe_ = Clock::now() + std::min(interval, kMaxProbeInterval);
    if (answering_) {
      exchange_->WriteComment();
      return;
    }
    if (probes_ == kAnswerBegin.size()) return;
    beast::error_code error;
    stream_.tcp().socket().send(asio::buffer(&kAnswerBegin[probes_], 1), 0, error);
    if (!error)
      ++probes_;
    else if (error != asio::error::would_block)
      Close();
  }

  void ReadAhead() {
    beast::error_code error;
    stream_.tcp().socket().non_blocking(true, error);
    const auto space = buffer_.prepare(kMaxReadAheadBytes - buffer_.size());
    const size_t got = stream_.tcp().socket().receive(space, 0, error);
    buffer_.commit(got);
    half_closed_ |= error == asio::error::eof;
    if (error == asio::error::would_block || error == asio::error::eof || (!error && got > 0))
      GoOnWatching();
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
    stream_.tcp().expires_never();
    Pump();
  }

  void Complete() {
    const bool keep_alive = exchange_->keep_alive() && !state_->draining;
    exchange_.reset();
    if (stream_.encrypted()) {
      EndWatch(keep_alive ? &Connection::PostReadNext : &Connection::SayGoodbye);
      return;
    }
    if (!keep_alive) {
      HalfClose();
      return;
    }
    // Ends Watch: the next read and it must not wait on the socket at the same time.
    if (watching_) {
      beast::error_code ignored;
      stream_.tcp().socket().cancel(ignored);
      watch_timer_.cancel();
    }
    PostReadNext();
  }

  void PostReadNext() {
    asio::post(executor(), [self = shared_from_this()] {
      if (!self->closed_) self->ReadNext();
    });
  }

  // A client can tell an answer that is cut off from one that ends.
  void SayGoodbye() {
    stream_.tcp().expires_after(kLinger);
    stream_.AsyncGoodbye([self = shared_from_this()](beast::error_code) {
      if (!self->closed_) self->HalfClose();
    });
  }

  void HalfClose() {
    beast::error_code ignored;
    stream_.tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    if (unread_)
      Linger();
    else
      Close();
  }

  EncryptableStream stream_;
  const std::shared_ptr<HttpServerState> state_;
  asio::steady_timer watch_timer_;
  beast::flat_buffer buffer_{kMaxBufferBytes};
  size_t scanned_ = 0;  // of buffer_, for the end of a header
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;  // that is being read
  ExchangeOptions exchange_options_;
  void (*check_chunk_)(uint64_t, beast::string_view, beast::error_code&) = &CheckChunk;
  std::shared_ptr<Exchange> exchange_;
  std::string current_;
  bool writing_ = false;
  bool watching_ = false;
  std::array<char, 1024> watched_;  // of an encrypted connection, while an answer is made
  void (Connection::*after_watch_)() = nullptr;
  bool half_closed_ = false;  // the client sends no more
  // Whether the own bytes of the answer in hand go out, and how many went ahead of them.
  bool answering_ = false;
  size_t probes_ = 0;
  Clock::time_point next_probe_;
  bool unread_ = false;  // the client may still send what was refused
  bool closed_ = false;
  bool idle_ = false;
};

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
  asio::post(connection->executor(), [connection] { connection->Begin(); });
  return connection;
}

}  // namespace tessera::coordinator
