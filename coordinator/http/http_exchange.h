// The answering side of one request: what a handler says, from any thread, as bytes for the
// connection to write. Outlives its connection if whoever answers does. Only http_connection.cc
// includes this.
//
// Thread rule: HttpExchange's methods from any thread; the others on the connection's executor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "coordinator/http/http_server.h"

namespace tessera::coordinator {

// What an exchange asks of its connection; both from any thread, done on the connection's executor.
class ExchangeConnection {
 public:
  virtual ~ExchangeConnection() = default;
  // Something is pending, or the answer has ended.
  virtual void PostPump() = 0;
  virtual void PostClose() = 0;
};

struct ExchangeOptions {
  bool head_only = false;  // the answer to HEAD has no body
  bool keep_alive = true;
  // A client of HTTP/1.0 knows no chunks: the end of the connection is the end of a stream.
  bool chunked = true;
  int64_t max_pending_bytes = 0;
  HttpHeaders headers;  // of any answer
};

class Exchange final : public HttpExchange {
 public:
  Exchange(std::weak_ptr<ExchangeConnection> connection, HttpRequest request,
           ExchangeOptions options)
      : connection_(std::move(connection)),
        request_(std::move(request)),
        options_(std::move(options)) {}

  HttpRequest& request() override { return request_; }
  void Respond(HttpResponse response) override;
  void BeginStream(HttpHeaders headers) override;
  bool Write(std::string_view bytes) override;
  void End() override;
  void OnGone(std::function<void()> gone) override;

  // `complete`: the answer has ended and nothing is left to write.
  std::string TakePending(bool& complete);
  // The connection has closed.
  void Gone();
  // Whoever was to answer has let go of it.
  void Abandoned();
  // A comment that readers of an event stream leave out; nothing where the answer is no stream.
  void WriteComment();
  // False once a stream without chunks has begun.
  bool keep_alive() const { return options_.keep_alive; }

 private:
  using Clock = std::chrono::steady_clock;
  void Append(std::string_view bytes, bool end);
  // With mutex_ held. Whether the connection has to be woken.
  bool AppendLocked(std::span<const std::string_view> pieces);
  void Wake();
  void CloseConnection();

  const std::weak_ptr<ExchangeConnection> connection_;
  HttpRequest request_;
  ExchangeOptions options_;

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

}  // namespace tessera::coordinator
