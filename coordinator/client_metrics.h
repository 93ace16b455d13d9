// What /metrics says of the clients. Thread rule: pure function.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "coordinator/fairness/fair_service.h"

namespace tessera::coordinator {

// What clients use of one model.
struct ModelUse {
  std::string model;
  std::vector<ClientUse> clients;
};

// By the labels model_name and client: the name of the API key, or "" where none is asked for.
std::vector<prometheus::MetricFamily> ClientFamilies(const std::vector<ModelUse>& uses);

}  // namespace tessera::coordinator
