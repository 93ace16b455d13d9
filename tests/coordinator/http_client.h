// A blocking HTTP client for tests: plain sockets, so that a test decides what is sent and read,
// and when. Thread rule: one thread per client.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::coordinator {

struct HttpReply {
  int status = 0;
  std::string head;  // status line and headers
  std::string body;  // chunks joined
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port);  // connects to 127.0.0.1; a failure shows at the first Send
  // Inside TLS. `session` is a client's, before its handshake; null: as above.
  HttpClient(uint16_t port, SSL* session);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool Send(std::string_view bytes);
  // One request with the usual headers; `extra` are whole header lines.
  bool SendRequest(std::string_view method, std::string_view path, std::string_view body,
                   std::string_view extra = "");
  // A whole reply. Status 0: the connection ended or nothing came for 10 s.
  HttpReply Receive();
  // Reads until the bytes read so far contain `text`. False as above.
  bool ReadUntil(std::string_view text);
  // Whether the handshake came to its end.
  bool encrypted() const { return session_ != nullptr && SSL_is_init_finished(session_) == 1; }
  // Whether the other side has closed, waiting at most 10 s.
  bool WaitForClose();
  void Close();
  int socket() const { return socket_; }

 private:
  bool ReadMore();
  int socket_ = -1;
  SSL* session_ = nullptr;
  std::string buffer_;
};

}  // namespace tessera::coordinator
