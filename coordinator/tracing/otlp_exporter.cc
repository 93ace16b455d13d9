#include "coordinator/tracing/otlp_exporter.h"

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

using std::chrono::milliseconds;

constexpr size_t kMaxWaiting = 8192;  // spans
constexpr size_t kBatch = 512;        // spans of one POST
constexpr milliseconds kPause{1000};  // that spans wait for others
constexpr milliseconds kPatience{3000};
constexpr milliseconds kLastPatience{2000};  // at the end
constexpr int kTries = 3;

// As the OTLP specification has them; anything else is final.
bool IsWorthAnotherTry(const absl::StatusOr<HttpAnswer>& answer) {
  if (!answer.ok()) return true;
  const int status = answer->status;
  return status == 429 || status == 502 || status == 503 || status == 504;
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
      const absl::StatusOr<HttpAnswer> answer =
          PostJson(endpoint_.peer, endpoint_.path, body, last ? kLastPatience : kPatience);
      if (answer.ok() && answer->status >= 200 && answer->status < 300) {
        if (std::exchange(failing_, false))
          Logger("tracing").info("http://{}{} takes traces again", endpoint_.peer.authority,
                                 endpoint_.path);
        return true;
      }
      if (last || tries == kTries || !IsWorthAnotherTry(answer)) {
        const std::string why = answer.ok() ? StrCat("status ", answer->status)
                                            : std::string(answer.status().message());
        if (!std::exchange(failing_, true))
          Logger("tracing").warn("http://{}{} does not take traces: {}; they are dropped",
                                 endpoint_.peer.authority, endpoint_.path, why);
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
  auto peer = ParseHttpPeer(rest.substr(0, slash), "4318");
  if (!peer.ok() || url.find_first_of(" \t\r\n@") != std::string::npos) return bad;
  OtlpEndpoint parsed;
  parsed.peer = *std::move(peer);
  if (slash != std::string_view::npos) parsed.path = std::string(rest.substr(slash));
  while (parsed.path.ends_with('/')) parsed.path.pop_back();
  if (!parsed.path.ends_with(kPath)) parsed.path += kPath;
  return parsed;
}

std::unique_ptr<OtlpExporter> OtlpExporter::Start(OtlpEndpoint endpoint, std::string version) {
  return std::make_unique<Exporter>(std::move(endpoint), std::move(version));
}

}  // namespace tessera::coordinator
