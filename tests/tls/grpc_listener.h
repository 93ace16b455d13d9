// A listener of gRPC inside TLS, or a plain one, on a free port of loopback, which answers no call.
//
// Thread rule: one thread.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"
#include "tls/certificates.h"
#include "tls/grpc_credentials.h"

namespace tessera::tests {

class GrpcListener {
 public:
  // Plain.
  GrpcListener() { Open(grpc::InsecureServerCredentials()); }
  // Its certificates are read again often. `client_ca`: whose certificate clients need. `members`:
  // whose they may show; it outlives the listener.
  explicit GrpcListener(const Issued& issued, const std::string& client_ca = "",
                        CertificateWatch* members = nullptr) {
    Renew(issued);
    if (!client_ca.empty()) folder_.Write("ca.pem", client_ca);
    CertificateFiles files = {.certificate = Path("cert.pem"), .key = Path("key.pem")};
    if (!client_ca.empty()) files.client_ca = Path("ca.pem");
    watch_ = std::move(CertificateWatch::Start(files, std::chrono::milliseconds(20)).value());
    Open(ServerTls(*watch_, members).value());
  }
  ~GrpcListener() {
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    poller_.join();
  }

  void Renew(const Issued& issued) const {
    folder_.Write("cert.pem", issued.certificate);
    folder_.Write("key.pem", issued.key);
  }
  std::string address(const std::string& host = "127.0.0.1") const {
    return host + ":" + std::to_string(port_);
  }

 private:
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }

  void Open(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterAsyncGenericService(&generic_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    // Handshakes go on while somebody waits for events.
    poller_ = std::thread([this] {
      void* tag = nullptr;
      bool ok = false;
      while (queue_->Next(&tag, &ok)) continue;
    });
  }

  TemporaryFolder folder_;
  std::unique_ptr<CertificateWatch> watch_;
  grpc::AsyncGenericService generic_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::thread poller_;
  int port_ = 0;
};

}  // namespace tessera::tests
