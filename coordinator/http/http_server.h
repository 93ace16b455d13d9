// HTTP/1.1 server: sockets, keep-alive, limits and server-sent events; it knows nothing of what is
// served.
//
// A handler is called on an I/O thread with an exchange, and answers it from any thread, now or
// later: one Respond, or one BeginStream followed by Writes and an End. What a reader does not take
// is bounded: a stream whose pending bytes pass the limit is closed and its owner notified through
// OnGone.
//
// Thread rule: HttpServer from one thread, HttpExchange from any. Ownership: whoever answers later
// keeps the shared_ptr; dropping the last one unanswered closes the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/http/body_budget.h"

namespace tessera {
class CertificateWatch;
}

namespace tessera::coordinator {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query, and without scheme and host of an absolute target
  std::string body;  // empty at admission
  // Counts the body as long as it is in memory: whoever moves the body out moves this out too.
  std::shared_ptr<BodyShare> body_share;
  bool has_body = false;
  bool on_loopback = false;  // the address that the server listens on; not the client's
  // Values of header fields, never of trailers; empty where absent.
  std::string host;
  std::string target_authority;  // host and port of an absolute target; not a field
  std::string authorization;
  std::string content_type;
  std::string accept;
  std::string request_id;            // X-Request-Id
  std::string deadline;              // x-request-deadline
  std::string workflow;              // x-workflow-id
  std::string workflow_stages_left;  // x-workflow-stages-left
  std::string resume;                // x-tessera-resume
  std::string origin;                // of a browser's page
  std::string fetch_site;            // Sec-Fetch-Site, of a browser
  std::string cors_method;           // Access-Control-Request-Method, of a preflight
  std::string cors_headers;          // Access-Control-Request-Headers, likewise
  std::string traceparent;           // W3C's Trace Context
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;
};

// What is decided by a request's header.
struct HttpAdmission {
  // Set: the answer; no body is read, and a connection on which one comes is closed. Else the
  // request goes to the handler.
  std::optional<HttpResponse> answer;
  // For any answer, this one or the handler's.
  HttpHeaders headers;
};

using HttpAdmit = std::function<HttpAdmission(const HttpRequest& header)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;                         // 0: any free one
  CertificateWatch* certificates = nullptr;  // null: plain HTTP; outlives the server
  int io_threads = 2;
  int64_t max_body_bytes = 32 << 20;     // of one; more is 413
  int64_t max_bodies_bytes = 256 << 20;  // of all that are in memory; more is 503
  int64_t max_connections = 65536;       // one more is answered 503
  int64_t max_pending_bytes = 64 << 10;  // of one stream; more closes it
  int socket_send_buffer_bytes =
      64 << 10;  // the kernel's part of what a slow reader may hold; 0: its default
  double idle_timeout_seconds = 75;   // between requests of one connection
  double read_timeout_seconds = 60;   // for one request, head to end of body
  double write_timeout_seconds = 60;  // for the other side to take anything at all
  // Called on an I/O thread with each request's header, before its body is read and before
  // 100 Continue is sent. Where it is not set, every request is admitted.
  HttpAdmit admit;
  // Called on an I/O thread for a request that the server answers itself, with an error: the path,
  // "/" where none was read, and the status. May not be set.
  std::function<void(std::string_view path, int status)> refused;
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // Mutable so that a large body can be moved out and freed before the answer is made.
  virtual HttpRequest& request() = 0;
  virtual void Respond(HttpResponse response) = 0;
  // Status 200 and text/event-stream. Write appends raw bytes of the stream; false: the reader is
  // gone or too slow.
  virtual void BeginStream(HttpHeaders headers) = 0;
  virtual bool Write(std::string_view bytes) = 0;
  // Ends the stream after what is pending was sent.
  virtual void End() = 0;
  // `gone` is called once, on an I/O thread, if the client goes away before the answer is complete.
  // At once when that has happened already. Replaces an earlier one; an empty function takes it
  // back.
  virtual void OnGone(std::function<void()> gone) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

class HttpServer {
 public:
  // UNAVAILABLE naming host and port where it cannot listen. INVALID_ARGUMENT: OpenSSL refuses the
  // certificates.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpHandler handler);
  virtual ~HttpServer() = default;  // stops
  virtual uint16_t port() const = 0;
  virtual int64_t connections() const = 0;
  // Takes no new connections; idle ones are closed, the others after their answer.
  virtual void Drain() = 0;
  // Closes everything and joins the I/O threads.
  virtual void Stop() = 0;
};

}  // namespace tessera::coordinator
