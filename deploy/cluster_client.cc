#include "deploy/cluster_client.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/planning.grpc.pb.h"
#include "proto/protocol.h"
#include "proto/run_folder.h"
#include "proto/status_wire.h"
#include "scheduler/planner/report/note_text.h"
#include "tls/client_flags.h"
#include "tls/cluster_tls.h"
#include "tls/grpc_credentials.h"

namespace tessera::deploy {
namespace {

using Table = std::vector<std::vector<std::string>>;

// Columns as wide as their widest cell; the first row is the head.
std::string Show(const Table& table) {
  std::vector<size_t> widths(table[0].size());
  for (const auto& row : table) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table) {
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      absl::StrAppend(&text, row[i], last ? "\n" : std::string(widths[i] - row[i].size() + 2, ' '));
    }
  }
  return text;
}

const char* StateName(v1::WorkerState state) {
  switch (state) {
    case v1::WORKER_STATE_REGISTERED: return "registered";
    case v1::WORKER_STATE_CONFIGURING: return "configuring";
    case v1::WORKER_STATE_READY: return "ready";
    case v1::WORKER_STATE_FAILED: return "FAILED";
    case v1::WORKER_STATE_LOST: return "LOST";
    default: return "unknown";
  }
}

const char* RoleName(v1::ReplicaRole role) {
  if (role == v1::REPLICA_ROLE_PREFILL) return "prefill";
  if (role == v1::REPLICA_ROLE_DECODE) return "decode";
  return "both";
}

const char* ChangeName(v1::ReplicaChangeKind kind) {
  switch (kind) {
    case v1::REPLICA_CHANGE_KIND_KEEP: return "kept";
    case v1::REPLICA_CHANGE_KIND_FLIP: return "flipped";
    case v1::REPLICA_CHANGE_KIND_REBUILD: return "rebuilt";
    case v1::REPLICA_CHANGE_KIND_DROP: return "dropped";
    default: return "unknown";
  }
}

std::string Percent(int64_t part, int64_t whole) {
  return whole > 0 ? absl::StrFormat("%.1f %%",
                                     100.0 * static_cast<double>(part) / static_cast<double>(whole))
                   : "-";
}

std::string Share(double share) { return absl::StrFormat("%.1f %%", 100 * share); }

// "-" for 0: nobody measured or planned it.
std::string Rate(double bytes_per_second) {
  if (bytes_per_second <= 0) return "-";
  return bytes_per_second < 1e9 ? absl::StrFormat("%.1f MB/s", bytes_per_second / 1e6)
                                : absl::StrFormat("%.1f GB/s", bytes_per_second / 1e9);
}

std::string Bytes(uint64_t bytes) {
  const auto of = static_cast<double>(bytes);
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  if (of < 1e6) return absl::StrFormat("%.1f kB", of / 1e3);
  return of < 1e9 ? absl::StrFormat("%.1f MB", of / 1e6) : absl::StrFormat("%.1f GB", of / 1e9);
}

const char* KindName(v1::LinkKind kind) {
  switch (kind) {
    case v1::LINK_KIND_CONTROL: return "control";
    case v1::LINK_KIND_BULK: return "bulk";
    case v1::LINK_KIND_HEARTBEAT: return "heartbeat";
    case v1::LINK_KIND_KV: return "kv";
    default: return "other";
  }
}

// Heartbeats are left out: they say nothing about the work.
std::string ShowLinks(const v1::GetClusterReply& cluster) {
  Table links = {
      {"WORKER", "PEER", "LINK", "OVER", "SENT", "RECEIVED", "RATE RECEIVED", "PLANNED"}};
  for (const v1::WorkerStatus& worker : cluster.workers()) {
    for (const v1::LinkStatus& link : worker.links()) {
      if (link.kind() == v1::LINK_KIND_HEARTBEAT) continue;
      links.push_back({worker.name(), link.peer().empty() ? "-" : link.peer(),
                       KindName(link.kind()), link.transport(), Bytes(link.bytes_sent()),
                       Bytes(link.bytes_received()), Rate(link.received_bytes_per_second()),
                       Rate(link.planned_bytes_per_second())});
    }
  }
  return links.size() == 1 ? "" : "\n" + Show(links);
}

std::string ShowDrafts(const v1::GetClusterReply& cluster) {
  Table drafts = {{"REPLICA", "DRAFTS", "TOKENS EACH", "ACCEPTED"}};
  for (const v1::WorkerStatus& w : cluster.workers()) {
    const v1::EngineLoad& load = w.load();
    if (load.drafts() == 0) continue;
    const auto accepted = std::accumulate(load.accepted_draft_tokens().begin(),
                                          load.accepted_draft_tokens().end(), uint64_t{0});
    drafts.push_back({w.replica(), absl::StrCat(load.drafts()),
                      absl::StrFormat("%.1f", static_cast<double>(load.draft_tokens()) /
                                                  static_cast<double>(load.drafts())),
                      Percent(accepted, load.draft_tokens())});
  }
  std::string text = drafts.size() == 1 ? "" : "\n" + Show(drafts);
  if (!cluster.speculation().empty())
    absl::StrAppend(&text, "\nspeculation: ", cluster.speculation(), "\n");
  return text;
}

// With one of the two left, it does the other's work too.
std::string HandOverState(const v1::HandOverStatus& pair, const v1::GetClusterReply& cluster) {
  const auto ready = [&](const std::string& name) {
    return std::any_of(cluster.replicas().begin(), cluster.replicas().end(),
                       [&](const v1::ReplicaStatus& r) { return r.name() == name && r.ready(); });
  };
  // Where only `left` of a pair is ready, it does both where no other replica hands over to it, or
  // takes from it.
  const auto without = [&](const std::string& lost, const std::string& left) {
    const bool alone = std::all_of(
        cluster.hand_overs().begin(), cluster.hand_overs().end(), [&](const v1::HandOverStatus& p) {
          if (p.decode_replica() == left) return !ready(p.prefill_replica());
          return p.prefill_replica() != left || !ready(p.decode_replica());
        });
    return absl::StrCat(lost, " not ready", alone ? absl::StrCat(": ", left, " does both") : "");
  };
  const bool prefills = ready(pair.prefill_replica()), decodes = ready(pair.decode_replica());
  if (!prefills && !decodes) return "not ready";
  if (!decodes) return without(pair.decode_replica(), pair.prefill_replica());
  if (!prefills) return without(pair.prefill_replica(), pair.decode_replica());
  if (pair.back_off_seconds() > 0)
    return absl::StrFormat("retry in %.0f s", pair.back_off_seconds());
  return "in use";
}

std::string ShowHandOvers(const v1::GetClusterReply& cluster) {
  if (cluster.hand_overs().empty()) return "";
  Table pairs = {{"KV FROM", "TO", "TRANSPORT", "PROMPTS", "MB", "MB/S", "FAILED", "STATE"}};
  for (const v1::HandOverStatus& p : cluster.hand_overs()) {
    const double megabytes = static_cast<double>(p.bytes()) / 1e6;
    pairs.push_back({p.prefill_replica(), p.decode_replica(),
                     p.transport().empty() ? "-" : p.transport(), absl::StrCat(p.prompts()),
                     absl::StrFormat("%.1f", megabytes),
                     p.seconds() > 0 ? absl::StrFormat("%.1f", megabytes / p.seconds()) : "-",
                     absl::StrCat(p.failures()), HandOverState(p, cluster)});
  }
  return "\n" + Show(pairs);
}

std::shared_ptr<grpc::Channel> Connect(const CoordinatorDoor& door,
                                       grpc::ChannelArguments arguments = {}) {
  const auto credentials = ChannelTls(door.tls, &arguments);
  return grpc::CreateCustomChannel(door.address, credentials, arguments);
}

void Prepare(const std::string& admin_key, double timeout_seconds, grpc::ClientContext* context) {
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::milliseconds(static_cast<int64_t>(1e3 * timeout_seconds)));
  if (!admin_key.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", admin_key));
}

// What a connection failed of, as a call that does not wait for one says it; "" when it says no
// more than that there is none.
std::string WhyNot(v1::Coordinator::Stub& stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  v1::GetClusterReply reply;
  const grpc::Status status = stub.GetCluster(&context, v1::GetClusterRequest(), &reply);
  const std::string text = status.error_message();
  if (absl::StrContains(text, "http1.x"))
    return ": what answers there speaks HTTP/1, as the coordinator's --port does";
  if (absl::StrContains(text, "Connection refused")) return ": connection refused";
  if (absl::StrContains(text, "Socket closed"))
    return ": it closes connections (if it has --tls-cert, give --tls-ca; if --cluster-tls, give "
           "that)";
  if (absl::StrContains(text, "Hostname Verification"))
    return ": its certificate is for other names (--tls-server-name)";
  if (absl::StrContains(text, "wrong version number"))
    return ": it speaks plain gRPC (leave --tls-ca or --cluster-tls out)";
  if (absl::StrContains(text, "SSL_ERROR_SSL"))
    return ": --tls-ca holds no authority of its certificate, or --cluster-tls is another "
           "cluster's";
  return "";
}

}  // namespace

void AddCoordinatorFlags(const Command& command, CoordinatorFlags& flags) {
  command.AddOption("--coordinator", flags.address, "The coordinator's gRPC address").ShowDefault();
  command.AddOption("--admin-key-file", flags.admin_key_file,
                    "File with the coordinator's admin key; default: the one that a coordinator of "
                    "this user made on this machine");
  AddClientTlsFlags(command, flags.tls);
  AddClusterTlsFlag(command, flags.tls);
}

absl::StatusOr<CoordinatorDoor> ReadDoor(const CoordinatorFlags& flags) {
  CoordinatorDoor door = {.address = flags.address, .admin_key = ""};
  absl::StatusOr<ClientTls> tls = ReadClientTls(flags.tls);
  if (!tls.ok()) return tls.status();
  door.tls = *std::move(tls);
  if (!flags.admin_key_file.empty()) {
    absl::StatusOr<std::string> key = ReadTokenFile(flags.admin_key_file);
    if (!key.ok()) return key.status();
    door.admin_key = *std::move(key);
    return door;
  }
  const std::optional<int> port = LoopbackPort(flags.address);
  std::optional<RunSecrets> run = port.has_value() ? RunFolder::Find(*port) : std::nullopt;
  if (run.has_value()) door.admin_key = std::move(run->admin_key);
  return door;
}

absl::StatusOr<v1::GetClusterReply> FetchCluster(const CoordinatorDoor& door,
                                                 double timeout_seconds) {
  if (absl::Status s = CheckHostPort(door.address); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--coordinator: ", std::string(s.message())));
  }
  auto stub = v1::Coordinator::NewStub(Connect(door));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  Prepare(door.admin_key, timeout_seconds, &context);
  v1::GetClusterReply reply;
  const grpc::Status status = stub->GetCluster(&context, v1::GetClusterRequest(), &reply);
  if (status.ok()) return reply;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(
        absl::StrCat("no coordinator answers at ", door.address, WhyNot(*stub),
                     " (--coordinator HOST:PORT, its gRPC port; default 8001)"));
  }
  return FromGrpc(status);
}

std::string FetchSuggestion(const CoordinatorDoor& door, double timeout_seconds) {
  auto stub = v1::Planning::NewStub(Connect(door));
  grpc::ClientContext context;
  Prepare(door.admin_key, timeout_seconds, &context);
  v1::GetPlanReply reply;
  const grpc::Status status = stub->GetPlan(&context, v1::GetPlanRequest(), &reply);
  return status.ok() ? reply.suggestion() : "";
}

absl::StatusOr<v1::ProfileClusterReply> MeasureCluster(const CoordinatorDoor& door,
                                                       bool while_serving, double timeout_seconds) {
  auto stub = v1::Coordinator::NewStub(Connect(door));
  grpc::ClientContext context;
  Prepare(door.admin_key, timeout_seconds, &context);
  v1::ProfileClusterRequest request;
  request.set_while_serving(while_serving);
  v1::ProfileClusterReply reply;
  const grpc::Status status = stub->ProfileCluster(&context, request, &reply);
  if (status.ok()) return reply;
  return FromGrpc(status);
}

absl::StatusOr<v1::CheckWorkerReply> AskToCheck(const CoordinatorDoor& door,
                                                const std::string& cluster_token,
                                                const v1::CheckWorkerRequest& request,
                                                double timeout_seconds) {
  auto stub = v1::Coordinator::NewStub(Connect(door));
  grpc::ClientContext context;
  Prepare("", timeout_seconds, &context);
  if (!cluster_token.empty()) context.AddMetadata(std::string(kClusterTokenKey), cluster_token);
  if (door.has_cluster_tls) context.AddMetadata(kClusterTlsKey, "1");
  v1::CheckWorkerReply reply;
  const grpc::Status status = stub->CheckWorker(&context, request, &reply);
  if (status.ok()) return reply;
  if (const std::string why = WhyNot(*stub); !why.empty()) {
    return absl::UnavailableError(absl::StrCat("no coordinator answers at ", door.address, why,
                                               " (its --grpc-port, default 8001)"));
  }
  return FromGrpc(status);
}

absl::StatusOr<v1::ApplyPlanReply> ApplyPlan(const CoordinatorDoor& door,
                                             std::vector<v1::DeploymentPlan> plans,
                                             double timeout_seconds) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);  // the coordinator's limit holds
  auto stub = v1::Planning::NewStub(Connect(door, std::move(arguments)));
  grpc::ClientContext context;
  Prepare(door.admin_key, timeout_seconds, &context);
  v1::ApplyPlanRequest request;
  for (v1::DeploymentPlan& plan : plans) *request.add_plans() = std::move(plan);
  v1::ApplyPlanReply reply;
  const grpc::Status status = stub->ApplyPlan(&context, request, &reply);
  if (status.ok()) return reply;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "the plan does not serve after %.0f s, and is still being applied: tessera status shows "
        "how far it is (--timeout waits longer)",
        timeout_seconds));
  }
  return FromGrpc(status);
}

std::string ShowApplied(const v1::ApplyPlanReply& applied) {
  std::string text = absl::StrCat("plan ", applied.plan_epoch(), " is in force",
                                  applied.routes() ? ", with other routes" : "", "\n\n");
  Table replicas = {{"REPLICA", "BEFORE", "CHANGE", "DRAINED", "READY", "WEIGHTS"}};
  for (const v1::AppliedReplica& replica : applied.replicas()) {
    const bool comes = replica.change() == v1::REPLICA_CHANGE_KIND_FLIP ||
                       replica.change() == v1::REPLICA_CHANGE_KIND_REBUILD;
    const bool goes = !replica.was().empty() && replica.change() != v1::REPLICA_CHANGE_KIND_KEEP;
    const auto seconds = [](bool shown, double value) {
      return shown ? absl::StrFormat("%.2f s", value) : "-";
    };
    replicas.push_back({replica.name(), replica.was().empty() ? "-" : replica.was(),
                        ChangeName(replica.change()), seconds(goes, replica.drain_seconds()),
                        seconds(comes, replica.ready_seconds()),
                        comes ? (replica.read_weights() ? "read" : "kept") : "-"});
  }
  return text + Show(replicas);
}

namespace {

// "model m", or "models a, b".
std::string ModelNames(const v1::GetClusterReply& cluster) {
  if (cluster.models().empty()) return absl::StrCat("model ", cluster.model());
  std::vector<std::string> names;
  for (const v1::ModelStatus& model : cluster.models()) names.push_back(model.name());
  return absl::StrCat("models ", absl::StrJoin(names, ", "));
}

// A row for each of several models.
std::string ShowModels(const v1::GetClusterReply& cluster) {
  if (cluster.models().empty()) return "";
  Table models = {{"MODEL", "READY", "REPLICAS", "REQUESTS"}};
  for (const v1::ModelStatus& model : cluster.models()) {
    int ready = 0, all = 0;
    for (const v1::ReplicaStatus& replica : cluster.replicas()) {
      if (replica.model() != model.name()) continue;
      ready += replica.ready();
      ++all;
    }
    models.push_back({model.name(), model.ready() ? "yes" : "no", absl::StrCat(ready, " of ", all),
                      absl::StrCat(model.requests_in_flight())});
  }
  return Show(models) + "\n";
}

// What a worker's device measured at its first start, of each type of weights: how fast it reads
// them while it multiplies, with 1 row, and more. Empty: nothing.
std::string ShowProducts(const v1::WorkerStatus& worker) {
  std::string text;
  std::string_view type;
  for (const v1::ProductRate& product : worker.device().products()) {
    if (product.weights() == type) {
      absl::StrAppendFormat(&text, ", %.0f x%d", product.read_bytes_per_second() / 1e9,
                            product.rows());
      continue;
    }
    type = product.weights();
    absl::StrAppendFormat(&text, "%s%s %.0f x%d", text.empty() ? "" : "; ", product.weights(),
                          product.read_bytes_per_second() / 1e9, product.rows());
  }
  if (text.empty()) return text;
  return absl::StrCat("  ", worker.name(), ": reads weights at (GB/s x rows) ", text, "\n");
}

}  // namespace

std::string ShowCluster(const v1::GetClusterReply& cluster) {
  std::string text = absl::StrFormat(
      "%s, plan epoch %d, %s; %d requests: %d sequences running, %d waiting\n\n",
      ModelNames(cluster), cluster.plan_epoch(), cluster.ready() ? "serving" : "not ready",
      cluster.requests_in_flight(), cluster.sequences_running(), cluster.sequences_waiting());
  if (!cluster.no_plan().empty()) absl::StrAppend(&text, cluster.no_plan(), "\n\n");
  if (!cluster.applying().empty())
    absl::StrAppend(&text, "another plan is being applied: ", cluster.applying(), "\n\n");
  text += ShowModels(cluster);
  Table workers = {{"WORKER", "STATE", "REPLICA", "STAGE", "RANK", "KV USED", "BUSY", "PLANNED",
                    "ABORTS", "REFUSED", "HEARTBEAT", "ADDRESS", "DEVICE"}};
  for (const v1::WorkerStatus& w : cluster.workers()) {
    std::string device = w.ready().device().empty() ? w.device().description() : w.ready().device();
    if (const double rate = w.device().memory_read_bytes_per_second(); rate > 0)
      absl::StrAppendFormat(&device, ", reads %.1f GB/s", rate / 1e9);
    const bool placed = !w.replica().empty();
    workers.push_back(
        {w.name(), StateName(w.state()), placed ? w.replica() : "-",
         placed ? absl::StrCat(w.stage()) : "-", placed ? absl::StrCat(w.rank()) : "-",
         Percent(w.load().kv_blocks_used(), w.load().kv_blocks_total()),
         w.has_busy_share() ? Share(w.busy_share()) : "-",
         w.planned_busy_share() > 0 ? Share(w.planned_busy_share()) : "-",
         absl::StrCat(w.counters().formation_aborts()), absl::StrCat(w.counters().links_refused()),
         absl::StrFormat("%.1f s ago", w.seconds_since_heartbeat()), w.address(), device});
  }
  text += cluster.workers().empty() ? "no workers have registered\n" : Show(workers);
  for (const v1::WorkerStatus& w : cluster.workers()) {
    if (w.state() == v1::WORKER_STATE_READY || w.detail().empty()) continue;
    absl::StrAppend(&text, "  ", w.name(), ": ", w.detail(), "\n");
  }
  for (const v1::WorkerStatus& w : cluster.workers()) text += ShowProducts(w);
  text += ShowLinks(cluster);
  if (cluster.replicas().empty()) return text;
  Table replicas = {
      {"REPLICA", "ROLE", "READY", "PROMPT TOK/S", "OUTPUT TOK/S", "PLANNED", "WORKERS"}};
  for (const v1::ReplicaStatus& r : cluster.replicas()) {
    std::string names;
    for (const std::string& name : r.workers())
      absl::StrAppend(&names, names.empty() ? "" : " ", name);
    replicas.push_back({r.name(), RoleName(r.role()), r.ready() ? "yes" : "no",
                        absl::StrFormat("%.1f", r.prompt_tokens_per_second()),
                        absl::StrFormat("%.1f", r.generation_tokens_per_second()),
                        r.planned_generation_tokens_per_second() > 0
                            ? absl::StrFormat("%.1f", r.planned_generation_tokens_per_second())
                            : "-",
                        names});
  }
  text += "\n" + Show(replicas) + ShowDrafts(cluster) + ShowHandOvers(cluster);
  for (const v1::ReplicaStatus& r : cluster.replicas()) {
    if (!r.detail().empty()) absl::StrAppend(&text, "  ", r.name(), ": ", r.detail(), "\n");
  }
  return text;
}

std::string ShowPlan(const v1::GetClusterReply& cluster) {
  std::string text =
      absl::StrFormat("plan %d for %s:\n\n", cluster.plan_epoch(),
                      cluster.models().empty() ? cluster.model() : ModelNames(cluster));
  Table stages = {{"REPLICA", "ROLE", "STAGE", "LAYERS", "RANKS", "WORKERS"}};
  for (const v1::Replica& replica : cluster.plan().replicas()) {
    for (int j = 0; j < replica.stages_size(); ++j) {
      const v1::Stage& stage = replica.stages(j);
      std::string workers;
      for (const v1::PlannedWorker& worker : stage.workers())
        absl::StrAppend(&workers, workers.empty() ? "" : " ", worker.device());
      const v1::Range& layers = stage.workers(0).share().layers();
      stages.push_back({replica.name(), RoleName(replica.role()), absl::StrCat(j),
                        absl::StrCat(layers.begin(), "-", layers.end() - 1),
                        absl::StrCat(stage.workers_size()), workers});
    }
  }
  absl::StrAppend(&text, Show(stages), "\n");
  for (const std::string& line : scheduler::NoteLines(cluster.plan()))
    absl::StrAppend(&text, "why: ", line, "\n");
  return text;
}

std::string ClusterJson(const v1::GetClusterReply& cluster) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  return google::protobuf::util::MessageToJsonString(cluster, &json, options).ok() ? json : "{}\n";
}

}  // namespace tessera::deploy
