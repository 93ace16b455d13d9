#include "coordinator/certificate_metrics.h"

#include <string>

namespace tessera::coordinator {
namespace {

void Add(const CertificateWatch* certificates, const std::string& prefix, const std::string& what,
         std::vector<prometheus::MetricFamily>* families) {
  if (certificates == nullptr) return;
  prometheus::MetricFamily& expiry = families->emplace_back();
  expiry.name = prefix + "_certificate_expiry_timestamp_seconds";
  expiry.help = "End of the certificate that " + what + ", seconds since the Unix epoch.";
  expiry.type = prometheus::MetricType::Gauge;
  expiry.metric.emplace_back().gauge.value =
      static_cast<double>(certificates->now()->expires_unix_seconds);
  prometheus::MetricFamily& refused = families->emplace_back();
  refused.name = prefix + "_certificate_refused_total";
  refused.help = "Changes of its files that were left because they do not hold.";
  refused.type = prometheus::MetricType::Counter;
  refused.metric.emplace_back().counter.value = static_cast<double>(certificates->refused());
}

}  // namespace

std::vector<prometheus::MetricFamily> CertificateFamilies(const CertificateWatch* ports,
                                                          const CertificateWatch* cluster) {
  std::vector<prometheus::MetricFamily> families;
  Add(ports, "tessera_tls", "the ports show", &families);
  Add(cluster, "tessera_cluster_tls", "workers are shown (--cluster-tls)", &families);
  return families;
}

}  // namespace tessera::coordinator
