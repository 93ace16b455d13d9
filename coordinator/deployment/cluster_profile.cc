#include "coordinator/deployment/cluster_profile.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "tls/grpc_credentials.h"

namespace tessera::coordinator {
namespace {

// A worker measures itself in about a second; plain loops on a slow core take many.
constexpr double kWorkerTimeoutSeconds = 120;
// Where several workers share a machine: long enough for each to have its buffers ready in half of
// it.
constexpr double kWindowSeconds = 1;
// More than the two seconds that a worker may take.
constexpr double kLinkTimeoutSeconds = 10;

// Machine and index; index 0 where the name has none.
std::pair<std::string, int> PlaceOf(const std::string& worker) {
  const size_t slash = worker.rfind('/');
  int index = 0;
  if (slash == std::string::npos || !absl::SimpleAtoi(worker.substr(slash + 1), &index)) {
    return {worker, 0};
  }
  return {worker.substr(0, slash), index};
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

bool IsLive(const WorkerRecord& worker) { return worker.state != v1::WORKER_STATE_LOST; }

absl::Status Explain(const absl::Status& status, const std::string& what, const char* fix) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", Text(status), "; ", fix));
}

}  // namespace

std::vector<std::vector<std::string>> WorkersByMachine(const std::vector<std::string>& workers) {
  std::map<std::string, std::vector<std::pair<int, std::string>>> machines;
  for (const std::string& worker : workers) {
    const auto [machine, index] = PlaceOf(worker);
    machines[machine].emplace_back(index, worker);
  }
  std::vector<std::vector<std::string>> sorted;
  for (auto& [machine, on_it] : machines) {
    std::sort(on_it.begin(), on_it.end());
    sorted.emplace_back();
    for (auto& [index, worker] : on_it) sorted.back().push_back(std::move(worker));
  }
  return sorted;
}

std::vector<std::pair<std::string, std::string>> PairsToProbe(
    const std::vector<std::string>& workers) {
  const std::vector<std::vector<std::string>> machines = WorkersByMachine(workers);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (auto one = machines.begin(); one != machines.end(); ++one) {
    if (one->size() > 1) pairs.emplace_back((*one)[0], (*one)[1]);
    for (auto other = std::next(one); other != machines.end(); ++other)
      pairs.emplace_back((*one)[0], (*other)[0]);
  }
  return pairs;
}

absl::StatusOr<v1::ProfileClusterReply> ClusterProfile::Measure(
    const std::map<std::string, WorkerRecord>& workers,
    const std::function<absl::Status()>& go_on) {
  std::vector<std::string> live;
  for (const auto& [name, worker] : workers) {
    if (IsLive(worker)) live.push_back(name);
  }
  if (live.empty()) {
    return absl::FailedPreconditionError(
        "no worker is alive: start tessera-worker on each machine with --coordinator, then "
        "measure");
  }
  std::map<std::string, v1::ProfileReply> rates_of;
  for (const std::vector<std::string>& machine : WorkersByMachine(live)) {
    if (absl::Status s = go_on(); !s.ok()) return s;
    auto rates = MeasureMachine(machine, workers);
    if (!rates.ok()) return rates.status();
    for (size_t i = 0; i < machine.size(); ++i) rates_of[machine[i]] = std::move((*rates)[i]);
  }
  v1::ProfileClusterReply reply;
  for (auto& [name, rates] : rates_of) {
    v1::ProfiledWorker& measured = *reply.add_workers();
    measured.set_name(name);
    *measured.mutable_device() = workers.at(name).registration.device();
    *measured.mutable_rates() = std::move(rates);
  }
  for (const auto& [from, to] : PairsToProbe(live)) {
    if (absl::Status s = go_on(); !s.ok()) return s;
    auto rates = MeasureLink(workers.at(from), workers.at(to));
    if (!rates.ok()) return rates.status();
    v1::ProfiledLink& measured = *reply.add_links();
    measured.set_from(from);
    measured.set_to(to);
    *measured.mutable_measured() = *std::move(rates);
  }
  return reply;
}

void ClusterProfile::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : asking_) context->TryCancel();
}

absl::Status ClusterProfile::Ask(double timeout_seconds,
                                 const std::function<absl::Status(grpc::ClientContext&)>& call) {
  grpc::ClientContext context;
  if (!cluster_token_.empty()) context.AddMetadata(std::string(kClusterTokenKey), cluster_token_);
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(static_cast<int64_t>(1e3 * timeout_seconds)));
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return absl::CancelledError("the measurement was cancelled");
    asking_.insert(&context);
  }
  absl::Status status = call(context);
  std::lock_guard lock(mutex_);
  asking_.erase(&context);
  return status;
}

absl::StatusOr<std::vector<v1::ProfileReply>> ClusterProfile::MeasureMachine(
    const std::vector<std::string>& names, const std::map<std::string, WorkerRecord>& workers) {
  const double window_seconds = names.size() > 1 ? kWindowSeconds : 0;
  std::vector<absl::StatusOr<v1::ProfileReply>> measured(names.size(),
                                                         absl::UnknownError("not measured"));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < names.size(); ++i) {
      threads.emplace_back(
          [this, window_seconds, &worker = workers.at(names[i]), &rates = measured[i]] {
            rates = MeasureWorker(worker, window_seconds);
          });
    }
  }
  std::vector<v1::ProfileReply> replies;
  for (absl::StatusOr<v1::ProfileReply>& rates : measured) {
    if (!rates.ok()) return rates.status();
    replies.push_back(*std::move(rates));
  }
  return replies;
}

std::unique_ptr<v1::Worker::Stub> ClusterProfile::StubOf(const WorkerRecord& worker) const {
  grpc::ChannelArguments arguments;
  const auto credentials = ChannelTls(TlsNow(tls_), &arguments);
  return v1::Worker::NewStub(
      grpc::CreateCustomChannel(worker.registration.address(), credentials, arguments));
}

absl::StatusOr<v1::ProfileReply> ClusterProfile::MeasureWorker(const WorkerRecord& worker,
                                                               double window_seconds) {
  v1::ProfileRequest request;
  request.set_window_seconds(window_seconds);
  request.mutable_fence()->set_worker_incarnation(worker.registration.incarnation());
  // A configured worker that is idle may be measured; `go_on` judges whether it is.
  request.set_while_serving(true);
  v1::ProfileReply rates;
  const absl::Status status = Ask(kWorkerTimeoutSeconds, [&](grpc::ClientContext& context) {
    return FromGrpc(StubOf(worker)->Profile(&context, request, &rates));
  });
  if (status.ok()) return rates;
  if (absl::IsCancelled(status)) return status;
  const std::string what =
      absl::StrCat("worker ", worker.registration.name(), " could not be measured");
  if (absl::IsResourceExhausted(status)) {
    return Explain(status, what,
                   "it needs 2 MiB for that at least: start the worker with a larger --memory or a "
                   "smaller --kv-cache-memory-bytes");
  }
  return Explain(status, what, "look at its log, and measure again when it is ready");
}

absl::StatusOr<v1::ProbeLinkReply> ClusterProfile::MeasureLink(const WorkerRecord& from,
                                                               const WorkerRecord& to) {
  v1::ProbeLinkRequest request;
  request.mutable_fence()->set_worker_incarnation(from.registration.incarnation());
  request.set_peer(to.registration.name());
  request.set_peer_incarnation(to.registration.incarnation());
  *request.mutable_link_addresses() = to.registration.link_addresses();
  v1::ProbeLinkReply rates;
  const absl::Status status = Ask(kLinkTimeoutSeconds, [&](grpc::ClientContext& context) {
    return FromGrpc(StubOf(from)->ProbeLink(&context, request, &rates));
  });
  if (status.ok()) return rates;
  if (absl::IsCancelled(status)) return status;
  const std::string what =
      absl::StrCat("the link from worker ", from.registration.name(), " to worker ",
                   to.registration.name(), " could not be measured");
  if (absl::IsAborted(status)) return Explain(status, what, "measure again in a while");
  return Explain(status, what,
                 "let the first worker reach the second one's --link-port (--advertise-link names "
                 "another address)");
}

}  // namespace tessera::coordinator
