// What the server does with connections that it has no room for: a short answer, 503, instead of a
// silent close; and logging that cannot flood.
//
// Thread rule: one thread, that of the socket's event loop.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>

namespace tessera::coordinator {

// Warnings of one kind, at most one in kQuietSeconds; the next one says how many were left out.
class PacedWarning {
 public:
  static constexpr double kQuietSeconds = 10;

  // What to log now; empty: nothing. `now_seconds` is monotonic.
  std::string Next(const std::string& text, double now_seconds);

 private:
  double quiet_until_seconds_ = 0;
  int64_t left_out_ = 0;
};

// Answers 503 and closes, a second later at most. `limit` is named to the client. Keeps itself
// alive. A few at a time: where kMaxRefusals are under way already the socket is closed at once.
inline constexpr int kMaxRefusals = 64;
void RefuseConnection(boost::asio::ip::tcp::socket socket, int64_t limit);

}  // namespace tessera::coordinator
