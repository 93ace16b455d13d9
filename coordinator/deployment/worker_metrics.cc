#include "coordinator/deployment/worker_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::coordinator {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

constexpr std::pair<v1::LinkKind, const char*> kKinds[] = {
    {v1::LINK_KIND_CONTROL, "control"},
    {v1::LINK_KIND_BULK, "bulk"},
    {v1::LINK_KIND_HEARTBEAT, "heartbeat"},
    {v1::LINK_KIND_PROBE, "probe"},
    {v1::LINK_KIND_KV, "kv"},
};
constexpr const char* kTransports[] = {"nccl", "shm", "unix", "tcp"};
// Only keys and values go by these as by a link; sums by them are no link's.
constexpr std::string_view kOfKvAlone[] = {"nccl", "shm"};

prometheus::MetricFamily Family(const char* name, const char* help, prometheus::MetricType type) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

prometheus::MetricFamily Counters(const char* name, const char* help) {
  return Family(name, help, prometheus::MetricType::Counter);
}

prometheus::MetricFamily Gauges(const char* name, const char* help) {
  return Family(name, help, prometheus::MetricType::Gauge);
}

void Add(const Labels& place, const Labels& more, double value, prometheus::MetricFamily* family) {
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  for (const Labels* labels : {&place, &more}) {
    for (const auto& [name, text] : *labels) metric.label.push_back({name, text});
  }
  if (family->type == prometheus::MetricType::Gauge) {
    metric.gauge.value = value;
  } else {
    metric.counter.value = value;
  }
}

// The model that a replica serves; of what is no replica the first.
const std::string& ModelOf(const v1::GetClusterReply& cluster, const std::string& replica) {
  for (const v1::ReplicaStatus& status : cluster.replicas()) {
    if (status.name() == replica && !status.model().empty()) return status.model();
  }
  return cluster.model();
}

Labels PlaceOf(const v1::WorkerStatus& worker, const std::string& model) {
  const bool placed = !worker.replica().empty();
  return {{"model_name", model},
          {"worker", worker.name()},
          {"replica", worker.replica()},
          {"stage", placed ? std::to_string(worker.stage()) : ""},
          {"rank", placed ? std::to_string(worker.rank()) : ""}};
}

struct Sums {
  double sent = 0, received = 0, timed_bytes = 0, timed_seconds = 0;

  void Add(const v1::LinkCounters& links) {
    sent += static_cast<double>(links.bytes_sent());
    received += static_cast<double>(links.bytes_received());
    timed_bytes += static_cast<double>(links.timed_bytes());
    timed_seconds += links.timed_seconds();
  }
};

struct LinkFamilies {
  prometheus::MetricFamily bytes =
      Counters("tessera_link_bytes_total",
               "Bytes that a worker's links to other workers moved, by direction, transport and "
               "kind of link.");
  prometheus::MetricFamily timed_bytes =
      Counters("tessera_link_timed_bytes_total",
               "Bytes of large frames (64 KiB or more) that a worker waited for and received.");
  prometheus::MetricFamily timed_seconds =
      Counters("tessera_link_timed_seconds_total",
               "Time from the first to the last byte of these frames, seconds; bytes over seconds "
               "is the rate of the links.");

  void Add(const Labels& place, const v1::WorkerCounters& counters) {
    std::map<std::pair<std::string, v1::LinkKind>, Sums> sums;
    for (const v1::LinkCounters& links : counters.links())
      sums[{links.transport(), links.kind()}].Add(links);
    for (const char* transport : kTransports) {
      Sums timed;
      for (const auto& [kind, name] : kKinds) {
        if (std::ranges::count(kOfKvAlone, transport) > 0 && kind != v1::LINK_KIND_KV) continue;
        const Sums sum = sums[{transport, kind}];
        timed.timed_bytes += sum.timed_bytes;
        timed.timed_seconds += sum.timed_seconds;
        for (const auto& [direction, value] :
             {std::pair("sent", sum.sent), std::pair("received", sum.received)}) {
          coordinator::Add(place,
                           {{"direction", direction}, {"transport", transport}, {"kind", name}},
                           value, &bytes);
        }
      }
      coordinator::Add(place, {{"transport", transport}}, timed.timed_bytes, &timed_bytes);
      coordinator::Add(place, {{"transport", transport}}, timed.timed_seconds, &timed_seconds);
    }
  }
};

}  // namespace

std::vector<prometheus::MetricFamily> HandOverFamilies(const v1::GetClusterReply& cluster) {
  prometheus::MetricFamily prompts =
      Counters("tessera_kv_transfers_total",
               "Prompts whose keys and values moved from the replica that computed them to the one "
               "that decodes.");
  prometheus::MetricFamily failures =
      Counters("tessera_kv_transfer_failures_total",
               "Prompts whose keys and values did not arrive and were computed again.");
  prometheus::MetricFamily bytes =
      Counters("tessera_kv_transfer_bytes_total", "Bytes of the keys and values that moved.");
  prometheus::MetricFamily seconds =
      Counters("tessera_kv_transfer_seconds_total",
               "Time of these moves, each from its first layer until all had arrived, seconds.");
  prometheus::MetricFamily back_off =
      Gauges("tessera_kv_transfer_back_off_seconds",
             "How long the pair is still left out, because keys and values did not arrive, "
             "seconds; 0: it is in use.");
  prometheus::MetricFamily transport =
      Gauges("tessera_kv_transfer_transport_info",
             "1, with the transport of the newest keys and values as a label.");
  for (const v1::HandOverStatus& pair : cluster.hand_overs()) {
    const Labels labels = {{"model_name", ModelOf(cluster, pair.prefill_replica())},
                           {"prefill", pair.prefill_replica()},
                           {"decode", pair.decode_replica()}};
    Add(labels, {}, static_cast<double>(pair.prompts()), &prompts);
    Add(labels, {}, static_cast<double>(pair.failures()), &failures);
    Add(labels, {}, static_cast<double>(pair.bytes()), &bytes);
    Add(labels, {}, pair.seconds(), &seconds);
    Add(labels, {}, pair.back_off_seconds(), &back_off);
    if (!pair.transport().empty()) Add(labels, {{"transport", pair.transport()}}, 1, &transport);
  }
  return {prompts, failures, bytes, seconds, back_off, transport};
}

std::vector<prometheus::MetricFamily> SlownessFamilies(const v1::GetClusterReply& cluster,
                                                       const std::vector<Straggler>& stragglers) {
  prometheus::MetricFamily slowdown =
      Gauges("tessera_replica_slowdown",
             "How many times longer a replica's steps take than they did, for their size and "
             "against the other replicas; 1: it is not slow.");
  for (const v1::ReplicaStatus& replica : cluster.replicas()) {
    const auto found = std::ranges::find(stragglers, replica.name(), &Straggler::replica);
    Add({{"model_name", ModelOf(cluster, replica.name())}, {"replica", replica.name()}}, {},
        found == stragglers.end() ? 1 : found->factor, &slowdown);
  }
  return {slowdown};
}

std::vector<prometheus::MetricFamily> WorkerFamilies(const v1::GetClusterReply& cluster) {
  prometheus::MetricFamily busy =
      Counters("tessera_worker_busy_seconds_total",
               "Time that a worker computed its part of steps, waits for other workers left out, "
               "seconds.");
  prometheus::MetricFamily aborts =
      Counters("tessera_formation_aborts_total",
               "How often a worker's replica ended under it: a worker failed, was lost or left.");
  prometheus::MetricFamily refused =
      Counters("tessera_link_refused_total",
               "Connections of other workers, and keys and values, that a worker refused.");
  LinkFamilies links;
  for (const v1::WorkerStatus& worker : cluster.workers()) {
    const Labels place = PlaceOf(worker, ModelOf(cluster, worker.replica()));
    const v1::WorkerCounters& counters = worker.counters();
    Add(place, {}, counters.busy_seconds(), &busy);
    Add(place, {}, static_cast<double>(counters.formation_aborts()), &aborts);
    Add(place, {}, static_cast<double>(counters.links_refused()), &refused);
    links.Add(place, counters);
  }
  return {busy, aborts, refused, links.bytes, links.timed_bytes, links.timed_seconds};
}

}  // namespace tessera::coordinator
