#include "coordinator/deployment/cluster_profile.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/protocol.h"
#include "proto/status_wire.h"
#include "proto/worker.grpc.pb.h"

namespace tessera::coordinator {
namespace {

// A worker measures itself in about a second; plain loops on a slow core take many.
constexpr double kWorkerTimeoutSeconds = 120;
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

std::unique_ptr<v1::Worker::Stub> StubOf(const WorkerRecord& worker) {
  return v1::Worker::NewStub(
      grpc::CreateChannel(worker.registration.address(), grpc::InsecureChannelCredentials()));
}

absl::Status Explain(const absl::Status& status, const std::string& what, const char* fix) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", Text(status), "; ", fix));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PairsToProbe(
    const std::vector<std::string>& workers) {
  std::map<std::string, std::vector<std::pair<int, std::string>>> machines;
  for (const std::string& worker : workers) {
    const auto [machine, index] = PlaceOf(worker);
    machines[machine].emplace_back(index, worker);
  }
  for (auto& [machine, on_it] : machines) std::sort(on_it.begin(), on_it.end());
  std::vector<std::pair<std::string, std::string>> pairs;
  for (auto one = machines.begin(); one != machines.end(); ++one) {
    if (one->second.size() > 1) pairs.emplace_back(one->second[0].second, one->second[1].second);
    for (auto other = std::next(one); other != machines.end(); ++other) {
      pairs.emplace_back(one->second[0].second, other->second[0].second);
    }
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
  v1::ProfileClusterReply reply;
  for (const std::string& name : live) {
    if (absl::Status s = go_on(); !s.ok()) return s;
    const WorkerRecord& worker = workers.at(name);
    auto rates = MeasureWorker(worker);
    if (!rates.ok()) return rates.status();
    v1::ProfiledWorker& measured = *reply.add_workers();
    measured.set_name(name);
    *measured.mutable_device() = worker.registration.device();
    *measured.mutable_rates() = *std::move(rates);
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
  if (asking_ != nullptr) asking_->TryCancel();
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
    asking_ = &context;
  }
  absl::Status status = call(context);
  std::lock_guard lock(mutex_);
  asking_ = nullptr;
  return status;
}

absl::StatusOr<v1::ProfileReply> ClusterProfile::MeasureWorker(const WorkerRecord& worker) {
  v1::ProfileRequest request;
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
                   "it needs 2 MiB for that at least: start it with a larger --memory or a smaller "
                   "--kv-cache-memory-bytes");
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
