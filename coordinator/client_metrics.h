// What /metrics says of the clients. Thread rule: pure function.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "coordinator/fairness/fair_service.h"

namespace tessera::coordinator {

// By the label `client`: the name of the API key, or "" where none is asked for.
std::vector<prometheus::MetricFamily> ClientFamilies(const std::vector<ClientUse>& uses);

}  // namespace tessera::coordinator
