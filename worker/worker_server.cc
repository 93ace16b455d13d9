#include "worker/worker_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <future>
#include <mutex>

#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "tls/grpc_credentials.h"
#include "worker/weights/start_thread.h"

namespace tessera::worker {
namespace {

// A Configure carries the vocabulary, a Submit a prompt; both stay far below.
constexpr int kMaxMessageBytes = 64 << 20;
// For whoever connects to begin to speak HTTP/2; gRPC's own bound is two minutes.
constexpr int kSilenceMilliseconds = 10'000;
constexpr char kServiceName[] = "tessera.v1.Worker";

// The plugin registers for every server of the process, before the first is built.
void OfferReflection() {
  static std::once_flag once;
  std::call_once(once, [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); });
}

}  // namespace

absl::StatusOr<std::string> HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(StrCat("'", address, "' is not host:port"));
  }
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(const std::string& listen,
                                                                  bool has_token,
                                                                  WorkerService* service,
                                                                  CertificateWatch* tls) {
  const auto host = HostOf(listen);
  if (!host.ok()) return host.status();
  if (!IsLoopback(*host) && !has_token) {
    return absl::InvalidArgumentError(
        StrCat("--listen ", listen,
               " is open to other machines: give --cluster-token-file, or "
               "listen on 127.0.0.1"));
  }
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (tls != nullptr) {
    auto with_tls = ServerTls(*tls);
    if (!with_tls.ok()) return with_tls.status();
    credentials = *std::move(with_tls);
  }
  grpc::EnableDefaultHealthCheckService(true);
  if (IsLoopback(*host)) OfferReflection();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, credentials, &port);
  builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kSilenceMilliseconds);
  // A coordinator whose machine went away is noticed, so that its session's sequences end.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  auto server = std::make_unique<WorkerServer>();
  server->sessions_ = builder.AddCompletionQueue();
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || port == 0) {
    return absl::UnavailableError(
        StrCat("cannot listen on ", listen, ": the address is in use or not this machine's"));
  }
  // gRPC aborts the process where a stream is asked for on a queue that was shut down.
  std::promise<void> begun;
  auto thread =
      StartThread("the thread of sessions", [service, &begun, queue = server->sessions_.get()] {
        service->ServeSessionsFrom(*queue, [&begun] { begun.set_value(); });
      });
  if (!thread.ok()) return thread.status();
  begun.get_future().wait();
  server->sessions_thread_ = *std::move(thread);
  server->address_ = StrCat(listen.substr(0, listen.rfind(':')), ":", port);
  server->SetReady(false);
  return server;
}

WorkerServer::~WorkerServer() { Shutdown(0); }

void WorkerServer::SetReady(bool ready) {
  server_->GetHealthCheckService()->SetServingStatus(kServiceName, ready);
}

void WorkerServer::Shutdown(double seconds) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
  server_->Wait();
  if (!sessions_thread_.joinable()) return;
  sessions_->Shutdown();
  sessions_thread_.join();
}

}  // namespace tessera::worker
