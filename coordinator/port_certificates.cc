#include "coordinator/port_certificates.h"

#include <utility>

#include "third_party/spdlog/log.h"
#include "tls/cluster_tls.h"

namespace tessera::coordinator {

absl::Status PortCertificates::Open(const CertificateFiles& ports,
                                    const std::string& cluster_file) {
  if (!ports.certificate.empty()) {
    auto watch = CertificateWatch::Start(ports);
    if (!watch.ok()) return watch.status();
    ports_ = *std::move(watch);
  }
  if (!cluster_file.empty()) {
    auto watch = WatchClusterTls(cluster_file);
    if (!watch.ok()) return watch.status();
    cluster_ = *std::move(watch);
  }
  return absl::OkStatus();
}

WorkerTls PortCertificates::ToWorkers() const {
  if (cluster_ == nullptr) return nullptr;
  return [watch = cluster_] { return ToClusterMember(*watch->now(), kWorkerServerName); };
}

ClusterNow PortCertificates::Cluster() const {
  if (cluster_ == nullptr) return nullptr;
  return [watch = cluster_] { return watch->now(); };
}

void PortCertificates::WarnOfReaders(const std::string& host) const {
  if (ports_ != nullptr) return;
  Logger("coordinator")
      .warn(
          "--host {} without --tls-cert: whoever sees the network reads prompts, answers, keys{}, "
          "unless a proxy or a private network hides them",
          host, has_cluster() ? " of clients over HTTP" : " and the cluster token");
}

}  // namespace tessera::coordinator
