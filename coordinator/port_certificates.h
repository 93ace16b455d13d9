// The certificates that the coordinator shows: at both ports (--tls-cert), and to workers
// (--cluster-tls), whose file the gRPC port shows too where it has no other. Workers prove to that
// port that they are of the cluster, in both cases.
// Thread rule: Open from one thread; the rest is thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "coordinator/deployment/worker_tls.h"
#include "tls/certificates.h"

namespace tessera::coordinator {

class PortCertificates {
 public:
  // Empty paths: none of that kind. Errors name the flag and the file.
  absl::Status Open(const CertificateFiles& ports, const std::string& cluster_file);

  // Null: plain.
  CertificateWatch* http() const { return ports_.get(); }
  CertificateWatch* grpc() const { return ports_ != nullptr ? ports_.get() : cluster_.get(); }
  const CertificateWatch* cluster() const { return cluster_.get(); }
  bool has_cluster() const { return cluster_ != nullptr; }
  // The cluster, where its members come to the gRPC port beside clients of --tls-cert; else null.
  CertificateWatch* members() const { return ports_ != nullptr ? cluster_.get() : nullptr; }
  WorkerTls ToWorkers() const;
  // The cluster's certificates now; empty: there is no --cluster-tls.
  ClusterNow Cluster() const;
  // What others on the network can read where `host` is open to them.
  void WarnOfReaders(const std::string& host) const;

 private:
  std::unique_ptr<CertificateWatch> ports_;
  std::shared_ptr<CertificateWatch> cluster_;
};

}  // namespace tessera::coordinator
