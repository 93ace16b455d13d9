// The gRPC server around a WorkerService: listener, health, reflection.
//
// Closed by default: an address other than loopback needs a cluster token, which the service asks
// for on every call. Reflection is offered on loopback only; health tells no more than whether the
// worker serves, and asks for nothing. Thread rule: Start and Shutdown from one thread; the server
// has a thread for the service's sessions.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "tls/certificates.h"
#include "worker/worker_service.h"

namespace tessera::worker {

class WorkerServer {
 public:
  // `listen` is host:port; port 0 takes a free one. `tls`: plain where null; it outlives the
  // process's use of it. InvalidArgument for an open address without a token, ResourceExhausted
  // where no thread can be started.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const std::string& listen,
                                                             bool has_token, WorkerService* service,
                                                             CertificateWatch* tls = nullptr);
  ~WorkerServer();

  const std::string& address() const { return address_; }  // host:port, the port that was bound
  void SetReady(bool ready);                               // what the health service says
  // Ends calls that are still open after `seconds`.
  void Shutdown(double seconds);

 private:
  std::unique_ptr<grpc::ServerCompletionQueue> sessions_;  // outlives the server
  std::unique_ptr<grpc::Server> server_;
  std::thread sessions_thread_;
  std::string address_;
};

// The host of "host:port" or "[::1]:port"; InvalidArgument where there is no port.
absl::StatusOr<std::string> HostOf(const std::string& address);

}  // namespace tessera::worker
