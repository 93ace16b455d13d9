// What /metrics says of the certificates of the coordinator's ports. Thread rule: pure function.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "tls/certificates.h"

namespace tessera::coordinator {

// When they end, and how many changes of their files were left because they do not hold.
std::vector<prometheus::MetricFamily> CertificateFamilies(const CertificateWatch& certificates);

}  // namespace tessera::coordinator
