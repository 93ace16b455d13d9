#include "coordinator/tracing/otlp_exporter.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "coordinator/tracing/otlp_json.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using std::chrono::milliseconds;

constexpr size_t kMaxWaiting = 8192;  // spans
constexpr size_t kBatch = 512;        // spans of one POST
constexpr milliseconds kPause{1000};  // that spans wait for others
constexpr milliseconds kPatience{3000};
constexpr milliseconds kLastPatience{2000};  // at the end
constexpr int kTries = 3;

// One POST, on the thread that runs it.
class Post {
 public:
  Post(const OtlpEndpoint& endpoint, std::string body) : endpoint_(endpoint) {
    request_.method(http::verb::post);
    request_.target(endpoint.path);
    request_.version(11);
    request_.set(http::field::host, endpoint.authority);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    request_.body() = std::move(body);
    request_.prepare_payload();
  }

  // The status of the answer; Unavailable where none comes in time.
  absl::StatusOr<int> Run(milliseconds patience) {
    resolver_.async_resolve(endpoint_.host, endpoint_.port, [this](auto error, auto addresses) {
      if (Failed(error)) return;
      asio::async_connect(socket_, addresses, [this](auto failed, const auto&) {
        if (!Failed(failed)) Write();
      });
    });
    io_.run_for(patience);
    if (done_) return static_cast<int>(response_.result_int());
    if (!error_) return absl::UnavailableError(StrCat("no answer in ", patience.count(), " ms"));
    return absl::UnavailableError(error_.message());
  }

 private:
  bool Failed(const boost::system::error_code& error) {
    if (error) error_ = error;
    return static_cast<bool>(error);
  }

  void Write() {
    http::async_write(socket_, request_, [this](auto error, size_t) {
      if (Failed(error)) return;
      http::async_read(socket_, buffer_, response_,
                       [this](auto failed, size_t) { done_ = !Failed(failed); });
    });
  }

  const OtlpEndpoint& endpoint_;
  asio::io_context io_;
  asio::ip::tcp::resolver resolver_{io_};
  asio::ip::tcp::socket socket_{io_};
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response<http::string_body> response_;
  boost::system::error_code error_;
  bool done_ = false;
};

// As the OTLP specification has them; anything else is final.
bool IsWorthAnotherTry(const absl::StatusOr<int>& status) {
  return !status.ok() || *status == 429 || *status == 502 || *status == 503 || *status == 504;
}

class Exporter final : public OtlpExporter {
 public:
  Exporter(OtlpEndpoint endpoint, std::string version)
      : endpoint_(std::move(endpoint)), version_(std::move(version)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Exporter() override {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Add(std::vector<Span> spans) override {
    std::lock_guard lock(mutex_);
    if (waiting_.size() + spans.size() > kMaxWaiting) {
      counts_.dropped += static_cast<int64_t>(spans.size());
      return;
    }
    std::move(spans.begin(), spans.end(), std::back_inserter(waiting_));
    if (waiting_.size() >= kBatch) changed_.notify_all();
  }

  SpanCounts counts() const override {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!ending_ || !waiting_.empty()) {
      changed_.wait_for(lock, kPause, [this] { return ending_ || waiting_.size() >= kBatch; });
      if (waiting_.empty()) continue;
      const size_t count = std::min(waiting_.size(), kBatch);
      std::vector<Span> batch(std::make_move_iterator(waiting_.begin()),
                              std::make_move_iterator(waiting_.begin() + count));
      waiting_.erase(waiting_.begin(), waiting_.begin() + count);
      const bool last = ending_;
      lock.unlock();
      const bool sent = Send(OtlpJson(batch, version_), last);
      lock.lock();
      (sent ? counts_.sent : counts_.dropped) += static_cast<int64_t>(count);
      if (sent || !ending_) continue;
      counts_.dropped += static_cast<int64_t>(waiting_.size());  // there is no time for more
      waiting_.clear();
    }
  }

  // `last`: one try.
  bool Send(const std::string& body, bool last) {
    milliseconds pause{500};
    for (int tries = 1;; ++tries) {
      const absl::StatusOr<int> status =
          Post(endpoint_, body).Run(last ? kLastPatience : kPatience);
      if (status.ok() && *status >= 200 && *status < 300) {
        if (std::exchange(failing_, false))
          Logger("tracing").info("http://{}{} takes traces again", endpoint_.authority,
                                 endpoint_.path);
        return true;
      }
      if (last || tries == kTries || !IsWorthAnotherTry(status)) {
        const std::string why =
            status.ok() ? StrCat("status ", *status) : std::string(status.status().message());
        if (!std::exchange(failing_, true))
          Logger("tracing").warn("http://{}{} does not take traces: {}; they are dropped",
                                 endpoint_.authority, endpoint_.path, why);
        return false;
      }
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, pause, [this] { return ending_; });
      last = ending_;
      pause *= 2;
    }
  }

  const OtlpEndpoint endpoint_;
  const std::string version_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Span> waiting_;
  SpanCounts counts_;
  bool ending_ = false;
  bool failing_ = false;  // of the thread alone
  std::thread thread_;
};

}  // namespace

absl::StatusOr<OtlpEndpoint> ParseOtlpEndpoint(const std::string& url) {
  constexpr std::string_view kScheme = "http://", kPath = "/v1/traces";
  const absl::Status bad = absl::InvalidArgumentError(
      StrCat("--otlp-endpoint \"", url,
             "\": http://HOST:PORT is expected, a collector's port for "
             "OTLP over HTTP without TLS, such as http://127.0.0.1:4318"));
  if (!url.starts_with(kScheme)) return bad;
  const std::string_view rest = std::string_view(url).substr(kScheme.size());
  const size_t slash = rest.find('/');
  OtlpEndpoint parsed;
  parsed.authority = std::string(rest.substr(0, slash));
  if (slash != std::string_view::npos) parsed.path = std::string(rest.substr(slash));
  while (parsed.path.ends_with('/')) parsed.path.pop_back();
  if (!parsed.path.ends_with(kPath)) parsed.path += kPath;
  std::string_view host = parsed.authority, port = "4318";
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return bad;
    if (end + 1 < host.size() && host[end + 1] != ':') return bad;
    if (end + 1 < host.size()) port = host.substr(end + 2);
    host = host.substr(1, end - 1);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  const bool is_number = !port.empty() && port.size() <= 5 &&
                         port.find_first_not_of("0123456789") == std::string_view::npos;
  if (host.empty() || !is_number || url.find_first_of(" \t\r\n@") != std::string::npos) return bad;
  parsed.host = std::string(host);
  parsed.port = std::string(port);
  return parsed;
}

std::unique_ptr<OtlpExporter> OtlpExporter::Start(OtlpEndpoint endpoint, std::string version) {
  return std::make_unique<Exporter>(std::move(endpoint), std::move(version));
}

}  // namespace tessera::coordinator
