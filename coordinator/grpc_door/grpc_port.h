// The coordinator's gRPC port: its three services, and beside them health and, on loopback,
// reflection.
//
// Thread rule: one thread (main's); the services answer on gRPC's threads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tls/certificates.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace tessera::coordinator {

struct GrpcPortOptions {
  std::string address;                       // "0.0.0.0:8001"; port 0: any free one
  CertificateWatch* certificates = nullptr;  // outlives the port; null: plain
  // The certificates of a cluster, whose members may show theirs there; likewise, null: none.
  CertificateWatch* members = nullptr;
  bool describes_itself = false;  // answers reflection
  // Outlive the port.
  grpc::Service* cluster = nullptr;
  grpc::Service* inference = nullptr;
  grpc::Service* planning = nullptr;
};

class GrpcPort {
 public:
  // Listens. The health service answers that inference does not serve yet. Errors name the flags
  // and the files.
  static absl::StatusOr<std::unique_ptr<GrpcPort>> Open(const GrpcPortOptions& options);
  ~GrpcPort();

  int port() const { return port_; }
  // What the health service answers for inference.
  void SetServing(bool serving);
  // Cancels calls that still run after so many seconds.
  void Stop(double seconds);

 private:
  GrpcPort() = default;

  std::unique_ptr<grpc::Service> reflection_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace tessera::coordinator
