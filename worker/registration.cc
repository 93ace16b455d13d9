#include "worker/registration.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "proto/heartbeat_notice.h"
#include "proto/leader_term.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "tls/grpc_credentials.h"
#include "tls/tls_probe.h"

namespace tessera::worker {
namespace {

std::shared_ptr<grpc::Channel> Connect(const std::string& address, const ClientTls& tls) {
  grpc::ChannelArguments arguments;
  // A restarted coordinator is found within a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  const auto credentials = ChannelTls(tls, &arguments);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

// Whether gRPC's words for a failed call may mean that one side wants TLS, or other TLS.
bool IsOfHandshake(const std::string& text) {
  for (const char* part : {"Socket closed", "handshake failed", "Verification", "verification"}) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

// Which of several coordinators leads is known soon.
constexpr double kSeveralBackoffSeconds = 0.5, kSeveralTimeoutSeconds = 2;

}  // namespace

Registration::Registration(RegistrationOptions options) : options_(std::move(options)) {
  std::istringstream addresses(options_.coordinator);
  for (std::string address; std::getline(addresses, address, ',');) {
    Coordinator& one = coordinators_.emplace_back();
    one.stub = v1::Coordinator::NewStub(Connect(address, options_.tls));
    one.address = std::move(address);
  }
  thread_ = std::thread([this] { Loop(); });
}

void Registration::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Registration::registered() const {
  std::lock_guard lock(mutex_);
  return registered_;
}

bool Registration::Wait(double seconds) {
  std::unique_lock lock(mutex_);
  return !stop_.wait_for(lock, std::chrono::duration<double>(seconds),
                         [this] { return stopping_; });
}

absl::Status Registration::Call(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  grpc::ClientContext context;
  const double timeout_seconds =
      coordinators_.size() > 1 ? std::min(options_.call_timeout_seconds, kSeveralTimeoutSeconds)
                               : options_.call_timeout_seconds;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000)));
  if (!options_.cluster_token.empty()) {
    context.AddMetadata(std::string(kClusterTokenKey), options_.cluster_token);
  }
  const uint64_t term = options_.leader_term ? options_.leader_term() : 0;
  if (term > 0) context.AddMetadata(std::string(kLeaderTermKey), std::to_string(term));
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    call_ = &context;
  }
  const grpc::Status status = call(&context);
  std::lock_guard lock(mutex_);
  call_ = nullptr;
  return FromGrpc(status);
}

absl::Status Registration::Register() {
  v1::RegisterRequest request = options_.request;
  request.set_plan_epoch(options_.plan_epoch());
  v1::RegisterReply reply;
  absl::Status status = Call([&](grpc::ClientContext* context) {
    return coordinators_[current_].stub->Register(context, request, &reply);
  });
  if (status.ok()) {
    heartbeat_interval_seconds_ = std::clamp(reply.heartbeat_interval_seconds(), 0.01, 60.0);
  }
  return status;
}

absl::Status Registration::Heartbeat() {
  v1::HeartbeatRequest request;
  request.set_name(options_.request.name());
  request.set_incarnation(options_.request.incarnation());
  request.set_plan_epoch(options_.plan_epoch());
  *request.mutable_load() = options_.load();
  if (options_.counters) *request.mutable_counters() = options_.counters();
  v1::HeartbeatReply reply;
  std::string notice;
  const absl::Status status = Call([&](grpc::ClientContext* context) {
    const grpc::Status ended = coordinators_[current_].stub->Heartbeat(context, request, &reply);
    const auto& trailers = context->GetServerTrailingMetadata();
    if (const auto found = trailers.find(kNoticeKey); ended.ok() && found != trailers.end())
      notice.assign(found->second.data(), found->second.size());
    return ended;
  });
  if (!notice.empty() && notice != last_notice_)
    Logger("worker").warn("coordinator {} says of this worker: {}", coordinators_[current_].address,
                          notice);
  if (status.ok()) last_notice_ = notice;
  return status;
}

void Registration::Say(const absl::Status& status) {
  Coordinator& one = coordinators_[current_];
  if (status.ok()) {
    Logger("worker").info("registered with coordinator {} as {}", one.address,
                          options_.request.name());
    one.last_said.clear();
    return;
  }
  std::string text(StdView(status.message()));
  const auto now = std::chrono::steady_clock::now();
  if (text == one.last_said &&
      now - one.said_at < std::chrono::duration<double>(options_.say_again_seconds)) {
    return;
  }
  one.last_said = text;
  one.said_at = now;
  if (IsOfHandshake(text)) {
    const absl::Status spoken = ProbeTls({.address = one.address,
                                          .tls = options_.tls,
                                          .of_cluster = options_.tls_of_cluster,
                                          .timeout_seconds = 1});
    if (absl::IsFailedPrecondition(spoken)) text = std::string(StdView(spoken.message()));
  }
  Logger("worker").warn("coordinator {}: {}; trying {} until {} answers", one.address, text,
                        coordinators_.size() > 1 ? "one after the other" : "again",
                        coordinators_.size() > 1 ? "one" : "it");
}

void Registration::Loop() {
  const bool several = coordinators_.size() > 1;
  const double max_backoff_seconds =
      several ? std::min(kSeveralBackoffSeconds, options_.max_backoff_seconds)
              : options_.max_backoff_seconds;
  double backoff_seconds = options_.min_backoff_seconds;
  bool registered = false;
  for (;;) {
    const absl::Status status = registered ? Heartbeat() : Register();
    double wait_seconds = heartbeat_interval_seconds_;
    if (status.ok()) {
      if (!registered) Say(status);
      registered = true;
      backoff_seconds = options_.min_backoff_seconds;
    } else {
      {
        std::lock_guard lock(mutex_);
        if (stopping_) return;
      }
      // NOT_FOUND: it forgot us, or is another process by now. Anything else: it may not have heard
      // from us for too long by the time it answers. Registering is idempotent, so it is right in
      // both cases.
      const bool forgotten = registered && absl::IsNotFound(status);
      registered = false;
      Say(status);
      wait_seconds = forgotten ? 0 : backoff_seconds;
      if (!forgotten) current_ = (current_ + 1) % coordinators_.size();
      // Once all were asked.
      if (current_ == 0) backoff_seconds = std::min(2 * backoff_seconds, max_backoff_seconds);
    }
    {
      std::lock_guard lock(mutex_);
      registered_ = registered;
    }
    if (!Wait(wait_seconds)) return;
  }
}

}  // namespace tessera::worker
