// What /metrics says of each worker: its counters since its process began, with the labels worker,
// replica, stage and rank (empty outside the plan) and model_name; and of each pair of replicas
// between which keys and values move, with the labels prefill, decode and model_name.
// Thread rule: pure function.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "proto/coordinator.pb.h"

namespace tessera::coordinator {

// Every registered worker has every series, with zeros before its first heartbeat.
std::vector<prometheus::MetricFamily> WorkerFamilies(const v1::GetClusterReply& cluster);
// Empty families where the plan has no such pair.
std::vector<prometheus::MetricFamily> HandOverFamilies(const v1::GetClusterReply& cluster);

}  // namespace tessera::coordinator
