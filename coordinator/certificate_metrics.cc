#include "coordinator/certificate_metrics.h"

namespace tessera::coordinator {

std::vector<prometheus::MetricFamily> CertificateFamilies(const CertificateWatch& certificates) {
  std::vector<prometheus::MetricFamily> families(2);
  families[0].name = "tessera_tls_certificate_expiry_timestamp_seconds";
  families[0].help = "End of the certificate that the ports show, seconds since the Unix epoch.";
  families[0].type = prometheus::MetricType::Gauge;
  families[0].metric.emplace_back().gauge.value =
      static_cast<double>(certificates.now()->expires_unix_seconds);
  families[1].name = "tessera_tls_certificate_refused_total";
  families[1].help = "Changes of its files that were left because they do not hold.";
  families[1].type = prometheus::MetricType::Counter;
  families[1].metric.emplace_back().counter.value = static_cast<double>(certificates.refused());
  return families;
}

}  // namespace tessera::coordinator
