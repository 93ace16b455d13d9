#include "tests/coordinator/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>

namespace tessera::coordinator {

HttpClient::HttpClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const timeval patience = {10, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Close();
}

HttpClient::HttpClient(uint16_t port, SSL* session) : HttpClient(port) {
  session_ = session;
  if (session_ == nullptr) return;
  SSL_set_fd(session_, socket_);
  SSL_connect(session_);
}

HttpClient::~HttpClient() { Close(); }

void HttpClient::Close() {
  SSL_free(session_);
  session_ = nullptr;
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = session_ != nullptr
                             ? SSL_write(session_, bytes.data(), static_cast<int>(bytes.size()))
                             : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::SendRequest(std::string_view method, std::string_view path, std::string_view body,
                             std::string_view extra) {
  std::string request;
  request.append(method).append(" ").append(path).append(" HTTP/1.1\r\nHost: localhost\r\n");
  request.append(extra);
  if (!body.empty()) {
    request +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  request.append("\r\n").append(body);
  return Send(request);
}

bool HttpClient::ReadMore() {
  char bytes[16384];
  const ssize_t got = session_ != nullptr
                          ? SSL_read(session_, bytes, static_cast<int>(sizeof bytes))
                          : ::recv(socket_, bytes, sizeof bytes, 0);
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

bool HttpClient::ReadUntil(std::string_view text) {
  while (buffer_.find(text) == std::string::npos) {
    if (!ReadMore()) return false;
  }
  return true;
}

HttpReply HttpClient::Receive() {
  HttpReply reply;
  if (!ReadUntil("\r\n\r\n")) return reply;
  const size_t head_end = buffer_.find("\r\n\r\n") + 4;
  reply.head = buffer_.substr(0, head_end);
  buffer_.erase(0, head_end);
  reply.status = std::atoi(reply.head.c_str() + 9);
  const size_t length_at = reply.head.find("Content-Length: ");
  if (length_at != std::string::npos) {
    const size_t length = std::strtoul(reply.head.c_str() + length_at + 16, nullptr, 10);
    while (buffer_.size() < length) {
      if (!ReadMore()) return {};
    }
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return reply;
  }
  for (;;) {
    if (!ReadUntil("\r\n")) return {};
    const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
    const size_t begin = buffer_.find("\r\n") + 2;
    while (buffer_.size() < begin + size + 2) {
      if (!ReadMore()) return {};
    }
    reply.body += buffer_.substr(begin, size);
    buffer_.erase(0, begin + size + 2);
    if (size == 0) return reply;
  }
}

bool HttpClient::WaitForClose() {
  char byte = 0;
  // Inside TLS the other side says so.
  if (session_ != nullptr) {
    while (SSL_read(session_, &byte, 1) > 0) continue;
    return (SSL_get_shutdown(session_) & SSL_RECEIVED_SHUTDOWN) != 0;
  }
  for (;;) {
    const ssize_t got = ::recv(socket_, &byte, 1, 0);
    if (got == 0) return true;
    if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
  }
}

}  // namespace tessera::coordinator
