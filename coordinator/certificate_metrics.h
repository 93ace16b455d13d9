// What /metrics says of the coordinator's certificates: those of its ports, and that of the
// cluster. Thread rule: pure function.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "tls/certificates.h"

namespace tessera::coordinator {

// When they end, and how many changes of their files were left because they do not hold. Null:
// there is none of that kind.
std::vector<prometheus::MetricFamily> CertificateFamilies(const CertificateWatch* ports,
                                                          const CertificateWatch* cluster);

}  // namespace tessera::coordinator
