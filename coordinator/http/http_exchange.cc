#include "coordinator/http/http_exchange.h"

#include <boost/beast/http/status.hpp>
#include <charconv>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::coordinator {
namespace {

// A write that has stood for so long has a slow reader.
constexpr std::chrono::seconds kStalled{1};

std::string_view Reason(int status) {
  const auto reason =
      boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(status));
  return {reason.data(), reason.size()};
}

std::string Head(int status, std::string_view content_type, const HttpHeaders& headers,
                 const ExchangeOptions& options) {
  std::string head = absl::StrFormat("HTTP/1.1 %d %s\r\nContent-Type: %s\r\n", status,
                                     std::string(Reason(status)), std::string(content_type));
  for (const HttpHeaders* some : {&headers, &options.headers}) {
    for (const auto& [name, value] : *some) absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  absl::StrAppend(&head, options.keep_alive ? "" : "Connection: close\r\n");
  return head;
}

}  // namespace

void Exchange::Abandoned() {
  {
    std::lock_guard lock(mutex_);
    if (ended_ || gone_) return;
  }
  CloseConnection();
}

void Exchange::CloseConnection() {
  if (const auto connection = connection_.lock()) connection->PostClose();
}

void Exchange::Respond(HttpResponse response) {
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
  }
  std::string bytes = Head(response.status, response.content_type, response.headers, options_);
  absl::StrAppend(&bytes, "Content-Length: ", response.body.size(), "\r\n\r\n");
  if (!options_.head_only) bytes += response.body;
  Append(bytes, true);
}

void Exchange::BeginStream(HttpHeaders headers) {
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = true;
    streaming_ = true;
  }
  if (!options_.chunked) options_.keep_alive = false;
  std::string head = Head(200, "text/event-stream; charset=utf-8", headers, options_);
  absl::StrAppend(&head, "Cache-Control: no-cache\r\n",
                  options_.chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
  Append(head, false);
}

bool Exchange::Write(std::string_view bytes) {
  if (bytes.empty()) return true;
  char size[2 * sizeof(size_t)];
  const char* const size_end = std::to_chars(size, std::end(size), bytes.size(), 16).ptr;
  const std::string_view line_end = "\r\n";
  const std::string_view framed[] = {{size, size_end}, line_end, bytes, line_end};
  std::span<const std::string_view> pieces(framed);
  if (!options_.chunked) pieces = {&bytes, 1};
  bool too_slow = false, wakes = false;
  {
    std::lock_guard lock(mutex_);
    if (gone_ || ended_) return false;
    // A large piece, or many at once, are no fault of the reader: it is slow when it has left a
    // write standing for a while.
    const bool stalled = write_began_.has_value() && Clock::now() - *write_began_ > kStalled;
    too_slow = stalled &&
               static_cast<int64_t>(pending_.size() + bytes.size()) > options_.max_pending_bytes;
    if (!too_slow) wakes = AppendLocked(pieces);
  }
  if (too_slow) {
    CloseConnection();
    return false;
  }
  if (wakes) Wake();
  return true;
}

void Exchange::WriteComment() {
  {
    std::lock_guard lock(mutex_);
    if (!streaming_) return;
  }
  Write(":\n\n");
}

void Exchange::End() { Append(streaming_ && options_.chunked ? "0\r\n\r\n" : "", true); }

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
  bool wakes = false;
  {
    std::lock_guard lock(mutex_);
    if (gone_ || ended_) return;
    wakes = AppendLocked({&bytes, 1});
    ended_ = end;
    if (end) on_gone_ = nullptr;
  }
  if (wakes) Wake();
}

bool Exchange::AppendLocked(std::span<const std::string_view> pieces) {
  size_t size = pending_.size();
  for (const std::string_view piece : pieces) size += piece.size();
  // Grown by doubling, a slow reader's bytes would leave as many again in freed pieces.
  const size_t bound = static_cast<size_t>(options_.max_pending_bytes);
  if (size > pending_.capacity() && size > bound / 16 && size <= bound) pending_.reserve(bound);
  for (const std::string_view piece : pieces) pending_ += piece;
  return !std::exchange(wake_posted_, true);  // several writes, one wake-up: they go out together
}

void Exchange::Wake() {
  if (const auto connection = connection_.lock()) connection->PostPump();
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

}  // namespace tessera::coordinator
