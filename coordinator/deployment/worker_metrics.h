// What /metrics says of each worker: its counters since its process began, with the labels worker,
// replica, stage and rank (empty outside the plan) and model_name; and of each pair of replicas
// between which keys and values move, with the labels prefill, decode and model_name; and how slow
// each replica has become.
// Thread rule: pure function.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "coordinator/deployment/straggler_watch.h"
#include "proto/coordinator.pb.h"

namespace tessera::coordinator {

// Every registered worker has every series, with zeros before its first heartbeat.
std::vector<prometheus::MetricFamily> WorkerFamilies(const v1::GetClusterReply& cluster);
// Empty families where the plan has no such pair.
std::vector<prometheus::MetricFamily> HandOverFamilies(const v1::GetClusterReply& cluster);
// For every replica of the plan.
std::vector<prometheus::MetricFamily> SlownessFamilies(const v1::GetClusterReply& cluster,
                                                       const std::vector<Straggler>& stragglers);

}  // namespace tessera::coordinator
