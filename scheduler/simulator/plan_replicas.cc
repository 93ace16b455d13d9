#include "scheduler/simulator/plan_replicas.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "proto/layers/state_room.h"
#include "scheduler/input/draft_choice.h"
#include "scheduler/search/layout/stage_layout.h"
#include "scheduler/simulator/kv_routes.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr BatchLimits kUsual = {};

Role FromProto(v1::ReplicaRole role) {
  switch (role) {
    case v1::REPLICA_ROLE_PREFILL: return Role::kPrefill;
    case v1::REPLICA_ROLE_DECODE: return Role::kDecode;
    default: return Role::kBoth;
  }
}

class Reader {
 public:
  Reader(const v1::DeploymentPlan& plan, const ClusterGraph& graph,
         const PlanReplicaOptions& options)
      : plan_(plan), graph_(graph), options_(options) {
    for (size_t p = 0; p < graph.pools().size(); ++p) {
      const DevicePool& pool = graph.pools()[p];
      layout_.pools.push_back({pool.spec, pool.machine, pool.count});
      for (int i = 0; i < pool.count; ++i)
        pool_of_device_[graph.DeviceName(pool, i)] = static_cast<int>(p);
    }
    const v1::PlanBasis& basis = plan.basis();
    step_tokens_ =
        basis.max_step_tokens() > 0 ? basis.max_step_tokens() : kUsual.max_batched_tokens;
    if (basis.memory_utilisation() > 0) options_.utilisation = basis.memory_utilisation();
    if (plan.has_basis()) options_.runtime_reserve_bytes = basis.runtime_reserve_bytes();
  }

  absl::StatusOr<PlanReplicas> Read() {
    absl::StatusOr<ModelShape> shape =
        MakeModelShape(plan_.model(), plan_.weight_dtype(), plan_.kv_dtype());
    if (!shape.ok()) return shape.status();
    shape_ = WithWireType(*std::move(shape), options_.runtime_reserve_bytes);
    shape_.drafts = DraftsOf(plan_.assumptions().planning().drafts());
    layout_.model = &shape_;
    layout_.graph = &graph_;
    PlanReplicas out;
    used_.assign(graph_.pools().size(), 0);
    std::map<std::string, int> index;
    for (const v1::Replica& replica : plan_.replicas()) {
      index[replica.name()] = static_cast<int>(out.replicas.size());
      absl::StatusOr<ReplicaSetup> setup = ReadReplica(replica);
      if (!setup.ok()) return setup.status();
      out.replicas.push_back(*std::move(setup));
    }
    out.usd_per_hour = graph_.RentOf(used_);
    for (const v1::RoutingShare& share : plan_.routing()) {
      const auto prefill = index.find(share.prefill_replica());
      const auto decode = index.find(share.decode_replica());
      if (prefill == index.end() || decode == index.end()) {
        return absl::InvalidArgumentError(StrCat("routing: ", share.prefill_replica(), " -> ",
                                                 share.decode_replica(),
                                                 ": the plan has no such replica"));
      }
      out.shares.push_back({prefill->second, decode->second, share.share()});
    }
    PlanLinks links = LinksOfPlan(plan_, graph_, shape_);
    out.transfers = std::move(links.transfers);
    for (PairShare& pair : out.shares) {
      pair.layers = std::max(1, out.transfers.layers);
      pair.kv_seconds_per_token =
          KvSecondsPerToken(out.transfers, out.replicas.size(), pair.prefill, pair.decode);
    }
    for (size_t r = 0; r < out.replicas.size() && options_.cost == nullptr; ++r) {
      out.replicas[r].hop_links = std::move(links.hop_links[r]);
      out.replicas[r].hop_bytes_per_row = links.hop_bytes_per_row;
    }
    return out;
  }

 private:
  absl::StatusOr<ReplicaSetup> ReadReplica(const v1::Replica& replica) {
    ReplicaSetup setup;
    setup.name = replica.name();
    setup.role = FromProto(replica.role());
    std::vector<LayoutStage> stages;
    for (int j = 0; j < replica.stages_size(); ++j) {
      const v1::Stage& stage = replica.stages(j);
      absl::StatusOr<LayoutStage> read = ReadStage(stage, StrCat(replica.name(), ", stage ", j));
      if (!read.ok()) return read.status();
      const DevicePool& found = graph_.pools()[static_cast<size_t>(read->pool)];
      ForEachPart(*read, [&](const LayoutPart& part) {
        used_[static_cast<size_t>(part.pool)] += part.width;
      });
      stages.push_back(*std::move(read));
      setup.stage_machines.push_back(found.machine);
      std::string names = stage.workers(0).device();
      const std::string& last = stage.workers(stage.workers_size() - 1).device();
      if (stage.workers_size() > 1) names += ".." + last.substr(last.rfind('/') + 1);
      setup.stage_devices.push_back(StrCat(names, " ", found.spec->kind));
    }
    layout_.role = setup.role;
    ReplicaSpec spec = MakeReplica(layout_, stages);
    spec.micro_batches = replica.micro_batches();
    setup.micro_batches =
        spec.micro_batches > 0 ? spec.micro_batches : static_cast<int>(stages.size());
    MemoryOptions memory;
    memory.utilisation = options_.utilisation;
    memory.runtime_reserve_bytes = options_.runtime_reserve_bytes;
    memory.max_step_tokens = std::max(step_tokens_, options_.max_batched_tokens);
    memory.max_logit_rows = std::max(memory.max_logit_rows, replica.max_sequences());
    memory.block_tokens = options_.block_tokens;
    const KvCapacity room = KvCapacityOf(shape_, spec.stages, memory);
    setup.limits.max_batched_tokens = options_.max_batched_tokens > 0 ? options_.max_batched_tokens
                                      : replica.max_batched_tokens() > 0
                                          ? replica.max_batched_tokens()
                                          : step_tokens_;
    setup.limits.max_sequences = options_.max_sequences > 0    ? options_.max_sequences
                                 : replica.max_sequences() > 0 ? replica.max_sequences()
                                                               : kUsual.max_sequences;
    if (std::isfinite(room.seats)) {
      setup.seats = std::min(setup.limits.max_sequences, static_cast<int64_t>(room.seats));
      setup.limits.max_sequences = setup.seats;
      if (setup.role != Role::kBoth) setup.exchanges = ExchangesOf(setup.seats);
    }
    setup.limits.max_logit_rows = setup.limits.max_sequences;
    setup.limits.block_tokens = options_.block_tokens;
    setup.limits.total_blocks = static_cast<int64_t>(room.tokens) / options_.block_tokens;
    if (setup.limits.total_blocks < 1) {
      return absl::InvalidArgumentError(
          StrCat(replica.name(), ": no KV fits beside the weights on these devices"));
    }
    setup.cost = MakeModelCostTable(shape_, std::move(spec));
    if (options_.cost != nullptr) TakeTable(options_.cost, &setup);
    return setup;
  }

  // A table of other stages has no figures for the plan's own.
  static void TakeTable(const std::shared_ptr<const CostTable>& cost, ReplicaSetup* setup) {
    setup->cost = cost;
    setup->micro_batches = std::min(setup->micro_batches, cost->stages());
    setup->stage_machines.clear();
    setup->stage_devices.assign(1, absl::StrJoin(setup->stage_devices, " | "));
    setup->stage_devices.resize(static_cast<size_t>(cost->stages()));
  }

  absl::StatusOr<LayoutStage> ReadStage(const v1::Stage& stage, const std::string& where) const {
    if (stage.workers().empty())
      return absl::InvalidArgumentError(StrCat(where, ": has no workers"));
    std::vector<LayoutPart> parts;
    std::vector<double> fractions;
    for (const v1::PlannedWorker& worker : stage.workers()) {
      const auto found = pool_of_device_.find(worker.device());
      if (found == pool_of_device_.end()) {
        return absl::InvalidArgumentError(
            StrCat(where, ": the cluster has no device ", worker.device()));
      }
      if (parts.empty() || parts.back().pool != found->second) parts.push_back({found->second, 0});
      ++parts.back().width;
      if (worker.fraction() > 0) fractions.push_back(worker.fraction());
    }
    const v1::Range& layers = stage.workers(0).share().layers();
    LayoutStage read = {parts.front().pool, parts.front().width,
                        static_cast<int>(layers.end() - layers.begin())};
    const bool cut = static_cast<int>(fractions.size()) == stage.workers_size();
    if (parts.size() > 1 && !cut) {
      return absl::InvalidArgumentError(
          StrCat(where, ": ", stage.workers(0).device(),
                 " and others are unlike or apart; the "
                 "simulator has figures for such stages where every worker has a fraction"));
    }
    if (!cut) return read;
    parts.erase(parts.begin());
    read.mix = std::make_shared<const StageMix>(StageMix{std::move(parts), std::move(fractions)});
    return read;
  }

  const v1::DeploymentPlan& plan_;
  const ClusterGraph& graph_;
  PlanReplicaOptions options_;
  int64_t step_tokens_ = 0;  // that the plan's buffers are made for
  ModelShape shape_;
  LayoutProblem layout_;
  std::map<std::string, int> pool_of_device_;
  std::vector<int> used_;  // devices, by pool
};

}  // namespace

absl::StatusOr<PlanReplicas> ReplicasOfPlan(const v1::DeploymentPlan& plan,
                                            const ClusterGraph& graph,
                                            const PlanReplicaOptions& options) {
  return Reader(plan, graph, options).Read();
}

}  // namespace tessera::scheduler
