#include "scheduler/planner/plan_writer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "scheduler/cost/step_budget.h"
#include "scheduler/planner/alternatives.h"
#include "scheduler/planner/plan_assumptions.h"
#include "scheduler/planner/plan_notes.h"
#include "scheduler/planner/preference.h"
#include "scheduler/planner/report/bottleneck.h"
#include "scheduler/planner/report/idle_devices.h"
#include "scheduler/planner/report/link_load.h"
#include "scheduler/planner/report/plan_attainment.h"
#include "scheduler/planner/report/rent_list.h"
#include "scheduler/planner/report/role_proto.h"
#include "scheduler/planner/report/shadow_prices.h"
#include "scheduler/planner/survival.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/shares.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

class PlanWriter {
 public:
  PlanWriter(const PlanningProblem& planning, const PlacementProblem& problem,
             const WrittenContext& context)
      : planning_(planning), context_(context), problem_(problem) {}

  // Replicas, routing and what they serve, links counted.
  v1::DeploymentPlan WriteServed(Placement placement) {
    Serve(&placement);
    return std::move(plan_);
  }

  // And latencies, and what links carry.
  v1::DeploymentPlan WriteBare(Placement placement) {
    Deploy(&placement);
    return std::move(plan_);
  }

  v1::DeploymentPlan Write(Placement placement) {
    spot_ = SpotMixes(input_.cluster, options_.spot, MachinesOf(placement));
    Deploy(&placement);
    Explain(placement);
    // Rented devices may be left idle.
    if (options_.goal == Goal::kThroughput || options_.goal == Goal::kGoodput) {
      // A plan that was not preferred may serve more with them.
      const bool gave_up = std::any_of(
          context_.preferred_notes.begin(), context_.preferred_notes.end(), [](const auto& note) {
            return note.limits_cost().lost_share() > 0 || note.simplicity_cost().lost_share() > 0;
          });
      const bool searched = !options_.given_search && !placement.interrupted && !gave_up;
      v1::IdleDevices idle = IdleDevicesOf(graph_, placement, searched);
      if (!idle.kinds().empty()) *plan_.add_notes()->mutable_idle() = std::move(idle);
    }
    if (Splits(placement) && !context_.simulates) plan_.add_notes()->set_unsimulated_split(true);
    for (v1::Note& note : PlanNotes({&input_, &options_, &problem_, &placement,
                                     plan_.has_survival(), &planning_.left_out}))
      *plan_.add_notes() = std::move(note);
    Compare(placement);
    const bool money = options_.goal == Goal::kPrice || options_.goal == Goal::kBudget;
    if (spot_.empty() && (money || IsMarket(input_.cluster))) {
      *plan_.add_notes()->mutable_rent_orders() =
          RentOrdersOf(input_.cluster, plan_, PricesKnown(placement) ? placement.usd_per_hour : 0);
    }
    for (v1::SpotMix& mix : spot_) *plan_.add_spot() = std::move(mix);
    AddMove(input_.cluster, options_.move, input_.running ? &*input_.running : nullptr, &plan_);
    Assume(placement);
    return std::move(plan_);
  }

 private:
  void Serve(Placement* placement) {
    *plan_.mutable_model() = input_.model;
    plan_.set_weight_dtype(options_.weight_dtype == v1::DATA_TYPE_UNSPECIFIED
                               ? input_.model.dtype()
                               : options_.weight_dtype);
    plan_.set_kv_dtype(options_.kv_dtype);
    // Simulations of this plan read them.
    if (shape_.drafts.most > 0)
      *plan_.mutable_assumptions()->mutable_planning()->mutable_drafts() = options_.drafts;
    for (size_t i = 0; i < placement->replicas.size(); ++i)
      WriteReplica(placement->replicas[i], static_cast<int>(i));
    WriteBasis();
    WriteRouting(*placement);
    FitLinks(placement);
    if (options_.survive_machine_loss) Survive(*placement);
  }

  void Deploy(Placement* placement) {
    Serve(placement);
    Predict(*placement);
    WriteBusyShares(problem_, *placement, &plan_);
    for (v1::LinkLoad& load : LinkLoads(plan_, graph_, shape_)) *plan_.add_links() = load;
  }

  std::set<std::string> MachinesOf(const Placement& placement) const {
    std::set<std::string> used;
    for (const PlacedReplica& replica : placement.replicas) {
      for (const LayoutStage& stage : replica.stages) {
        ForEachPart(stage, [&](const LayoutPart& part) {
          const DevicePool& pool = graph_.pools()[static_cast<size_t>(part.pool)];
          used.insert(graph_.machines()[static_cast<size_t>(pool.machine)].name);
        });
      }
    }
    return used;
  }

  bool PriceKnown(const PlacedReplica& placed) const {
    return std::all_of(placed.stages.begin(), placed.stages.end(), [&](const LayoutStage& stage) {
      bool known = true;
      ForEachPart(stage, [&](const LayoutPart& part) {
        known = known && graph_.pools()[static_cast<size_t>(part.pool)].price_usd_per_hour > 0;
      });
      return known;
    });
  }

  bool PricesKnown(const Placement& placement) const {
    return std::all_of(placement.replicas.begin(), placement.replicas.end(),
                       [&](const PlacedReplica& placed) { return PriceKnown(placed); });
  }

  void Compare(const Placement& placement) {
    if (options_.given_search) return;
    const AlternativeQuestion question = {&problem_, &placement, context_.split_everywhere,
                                          Promised(placement), plan_.has_survival()};
    for (v1::OtherChoice& choice : OtherChoices(question))
      *plan_.add_alternatives() = std::move(choice);
  }

  void WriteRouting(const Placement& placement) {
    WriteShares(placement.shares, placement.requests_per_second, &plan_);
  }

  static void WriteShares(const std::vector<Share>& shares, double requests_per_second,
                          v1::DeploymentPlan* plan) {
    plan->clear_routing();
    plan->mutable_prediction()->set_requests_per_second(requests_per_second);
    for (const Share& share : shares) {
      v1::RoutingShare* routing = plan->add_routing();
      routing->set_prefill_replica(StrCat("r", share.prefill));
      routing->set_decode_replica(StrCat("r", share.decode));
      // Rounded down, so that the sum never exceeds 1.
      routing->set_share(std::floor(share.requests_per_second / requests_per_second * 1e9) / 1e9);
      if (share.prefill != share.decode) routing->set_kv_codec(std::string(Name(share.codec)));
    }
  }

  // What the worst machine leaves, links counted.
  void Survive(const Placement& placement) {
    v1::DeploymentPlan rest = plan_;
    v1::Survival& survival = *plan_.mutable_survival();
    survival.set_requests_per_second(placement.requests_per_second);
    for (const MachineLoss& loss : LossesOf(problem_, placement)) {
      double carried = 0;
      if (loss.requests_per_second > 0) {
        WriteShares(loss.shares, loss.requests_per_second, &rest);
        const std::vector<double> parts = CarriedParts(rest, graph_, shape_);
        for (size_t i = 0; i < parts.size(); ++i)
          carried += parts[i] * loss.shares[i].requests_per_second;
      }
      if (carried >= survival.requests_per_second() && !survival.worst_machine().empty()) continue;
      survival.set_requests_per_second(std::min(carried, placement.requests_per_second));
      survival.set_worst_machine(graph_.machines()[static_cast<size_t>(loss.machine)].name);
    }
  }

  // What the plan is judged by: promised even when a machine is lost, where that is asked for.
  double Promised(const Placement& placement) const {
    return plan_.has_survival() ? plan_.survival().requests_per_second()
                                : placement.requests_per_second;
  }

  // What links that several replicas share cannot carry is not promised.
  void FitLinks(Placement* placement) {
    const std::vector<double> parts = CarriedParts(plan_, graph_, shape_);
    if (std::all_of(parts.begin(), parts.end(), [](double part) { return part == 1; })) return;
    const double wanted = placement->requests_per_second;
    placement->requests_per_second = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      placement->shares[i].requests_per_second *= parts[i];
      placement->requests_per_second += placement->shares[i].requests_per_second;
    }
    v1::LinksShort& links = *plan_.add_notes()->mutable_links_short();
    links.set_requests_per_second(placement->requests_per_second);
    links.set_devices_requests_per_second(wanted);
    WriteRouting(*placement);
  }

  void WriteReplica(const PlacedReplica& placed, int index) {
    v1::Replica* replica = plan_.add_replicas();
    replica->set_name(StrCat("r", index));
    replica->set_role(ToProto(placed.role));
    replica->set_micro_batches(placed.rate.micro_batches);
    const ReplicaSpec spec = SpecOf(problem_, placed);
    const LengthMoments lengths = MomentsOf(workload_.samples);
    // Goodput was judged with steps of its own choice, and bursts find room.
    const bool chosen = placed.rate.step_tokens > 0;
    replica->set_max_batched_tokens(
        chosen ? placed.rate.step_tokens
               : StepBudget(shape_, spec, lengths, problem_.options, placed.rate));
    int64_t sequences = chosen ? static_cast<int64_t>(options_.max_sequences)
                               : SequenceBudget(lengths, problem_.options, spec, placed.rate);
    if (options_.runtime_reserve_bytes == 0)
      sequences = std::min(sequences, problem_.options.memory.max_logit_rows);
    const int64_t seats = Fewest(spec, &RankMemory::seats);
    if (seats > 0) sequences = std::min(sequences, seats);
    replica->set_max_sequences(sequences);
    const int64_t windows = Fewest(spec, &RankMemory::window_blocks);
    for (size_t j = 0; j < placed.stages.size(); ++j)
      WriteStage(placed, j, spec.stages[j], sequences, windows, replica->add_stages());
  }

  // How many of them every worker of a replica has room for; 0: there are none.
  int64_t Fewest(const ReplicaSpec& spec, int64_t RankMemory::*count) const {
    int64_t fewest = 0;
    for (const StageSpec& stage : spec.stages) {
      for (size_t rank = 0; rank < stage.ranks.size(); ++rank) {
        const RankMemory memory =
            MemoryOfRank(shape_, stage, rank, problem_.options.memory, spec.stages.size() > 1);
        const int64_t held = memory.*count;
        if (held > 0) fewest = fewest == 0 ? held : std::min(fewest, held);
      }
    }
    return fewest;
  }

  void WriteStage(const PlacedReplica& placed, size_t j, const StageSpec& spec, int64_t sequences,
                  int64_t windows, v1::Stage* out) {
    const LayoutStage& stage = placed.stages[j];
    const int end = spec.first_layer + stage.layers;
    const auto shares =
        stage.mix != nullptr
            ? UnevenStageShares(input_.model, spec.first_layer, end, stage.mix->fractions,
                                plan_.weight_dtype())
            : StageShares(input_.model, spec.first_layer, end, stage.width, plan_.weight_dtype());
    size_t rank = 0;
    ForEachPart(stage, [&](const LayoutPart& part) {
      const DevicePool& pool = graph_.pools()[static_cast<size_t>(part.pool)];
      for (int i = 0; i < part.width; ++i, ++rank) {
        const RankMemory memory =
            MemoryOfRank(shape_, spec, rank, problem_.options.memory, placed.stages.size() > 1);
        v1::PlannedWorker* worker = out->add_workers();
        worker->set_device(graph_.DeviceName(pool, placed.device_index[j][rank]));
        worker->set_kind(pool.spec->kind);
        if (stage.mix != nullptr) worker->set_fraction(stage.mix->fractions[rank]);
        *worker->mutable_share() = shares[rank];
        worker->set_weight_bytes(static_cast<int64_t>(memory.weight_bytes));
        worker->set_kv_bytes(static_cast<int64_t>(memory.KeptBytes(placed.rate.kv_capacity_tokens,
                                                                   static_cast<double>(sequences),
                                                                   static_cast<double>(windows))));
        worker->set_activation_bytes(
            static_cast<int64_t>(memory.activation_bytes + memory.communication_bytes +
                                 memory.reserve_bytes - options_.runtime_reserve_bytes));
        worker->set_available_bytes(
            static_cast<int64_t>(memory.budget_bytes - options_.runtime_reserve_bytes));
      }
    });
  }

  // Figures of each replica at the rate that the routing sends it.
  void PredictReplicas(const Placement& placement, const LengthMoments& lengths) {
    std::vector<double> prefills(placement.replicas.size(), 0),
        decodes(placement.replicas.size(), 0);
    for (const Share& share : placement.shares) {
      prefills[static_cast<size_t>(share.prefill)] += share.requests_per_second;
      decodes[static_cast<size_t>(share.decode)] += share.requests_per_second;
    }
    for (size_t i = 0; i < placement.replicas.size(); ++i) {
      const PlacedReplica& placed = placement.replicas[i];
      const double rate = std::max(prefills[i], decodes[i]);
      v1::Prediction* prediction =
          plan_.mutable_replicas(static_cast<int>(i))->mutable_prediction();
      prediction->set_requests_per_second(placed.rate.requests_per_second);
      prediction->set_kv_capacity_tokens(static_cast<int64_t>(placed.rate.kv_capacity_tokens));
      if (placed.role != Role::kPrefill) {
        prediction->set_output_tokens_per_second(placed.rate.requests_per_second *
                                                 lengths.output_tokens);
      }
      if (rate > 0 && PriceKnown(placed) && placed.role != Role::kPrefill) {
        prediction->set_usd_per_million_output_tokens(placed.usd_per_hour / 3600 /
                                                      (rate * lengths.output_tokens) * 1e6);
      }
    }
  }

  // The same of the whole plan, and what there is to say of the load that they hold at.
  void Predict(const Placement& placement) {
    const double asked =
        workload_.requests_per_second > 0 ? workload_.requests_per_second : kUnlimited;
    // A goodput that bounds no wait is what devices can do: its queues are long.
    const bool unbounded = options_.goal == Goal::kGoodput && !LimitsWaits(workload_.classes);
    const double highest = options_.goal == Goal::kGoodput && !unbounded ? 1 : kUsualLoad;
    const double load =
        asked < placement.requests_per_second ? asked / placement.requests_per_second : highest;
    const LengthMoments lengths = MomentsOf(workload_.samples);
    PredictReplicas(placement, lengths);
    v1::Prediction* all = plan_.mutable_prediction();
    all->set_requests_per_second(placement.requests_per_second);
    all->set_output_tokens_per_second(placement.requests_per_second * lengths.output_tokens);
    if (PricesKnown(placement)) {
      const double usd_per_million =
          placement.usd_per_hour / 3600 / all->output_tokens_per_second() * 1e6;
      all->set_usd_per_million_output_tokens(usd_per_million);
      v1::Rent& rent = *plan_.add_notes()->mutable_rent();
      rent.set_usd_per_hour(placement.usd_per_hour);
      rent.set_minimised(options_.goal == Goal::kPrice);
      rent.set_usd_per_million_output_tokens(usd_per_million);
      if (asked < placement.requests_per_second) {
        rent.set_asked_usd_per_million_output_tokens(usd_per_million / load);
        rent.set_asked_requests_per_second(asked);
      }
    }
    plan_.mutable_basis()->set_requests_per_second(load * placement.requests_per_second);
    if (unbounded && load == kUsualLoad) TellAtPromise(placement);
    const bool waits_end = PredictLatencies({&problem_, &placement, load}, &plan_);
    if (options_.goal == Goal::kPrice && !waits_end) {
      v1::TooFull& full = *plan_.add_notes()->mutable_too_full();
      full.set_asked_requests_per_second(asked);
      full.set_load(load);
      full.set_better_requests_per_second(asked / kUsualLoad);
    }
    if (options_.goal == Goal::kGoodput) {
      if (auto hardest = HardestLimitOf({&problem_, &placement, load}, plan_))
        *plan_.add_notes()->mutable_hardest_limit() = *std::move(hardest);
    }
    const bool price = options_.goal == Goal::kPrice;
    plan_.mutable_certificate()->set_value(price ? placement.usd_per_hour : Promised(placement));
    v1::LatencyLoad& at = *plan_.add_notes()->mutable_latency_load();
    at.set_requests_per_second(load * placement.requests_per_second);
    at.set_load(load);
    at.set_below_capacity(load == kUsualLoad);
    if (load > kUsualLoad && options_.goal != Goal::kGoodput) {
      v1::LongWaits& waits = *plan_.add_notes()->mutable_long_waits();
      waits.set_above_load(kUsualLoad);
      waits.set_without_end(!waits_end);
    }
    if (asked != kUnlimited && asked > Promised(placement))
      plan_.add_notes()->set_asked_too_much(asked);
  }

  // What figures at less than the promised rate do not tell.
  void TellAtPromise(const Placement& placement) {
    v1::DeploymentPlan at_most = plan_;
    const bool waits_end = PredictLatencies({&problem_, &placement, 1}, &at_most);
    const v1::Prediction& prediction = at_most.prediction();
    v1::WaitsAtPromise& waits = *plan_.add_notes()->mutable_waits_at_promise();
    waits.set_requests_per_second(placement.requests_per_second);
    waits.set_attainment(prediction.attainment());
    if (waits_end) waits.set_time_to_first_token_seconds(prediction.time_to_first_token_seconds());
  }

  void WriteBasis() {
    const LengthMoments lengths = MomentsOf(workload_.samples);
    v1::PlanBasis& basis = *plan_.mutable_basis();
    basis.set_prompt_tokens(lengths.prompt_tokens);
    basis.set_uncached_prompt_tokens(lengths.uncached_prompt_tokens);
    basis.set_output_tokens(lengths.output_tokens);
    basis.set_decode_context_tokens(lengths.mean_decode_context());
    basis.set_longest_sequence_tokens(lengths.max_sequence_tokens);
    basis.set_max_step_tokens(options_.max_step_tokens);
    basis.set_memory_utilisation(options_.utilisation);
    basis.set_runtime_reserve_bytes(options_.runtime_reserve_bytes);
    basis.set_kv_headroom(options_.kv_headroom);
    basis.set_arrival_variation(workload_.arrival_variation);
    basis.set_cut_requests_share(workload_.cut_share);
    basis.set_goodput(options_.goal == Goal::kGoodput);
  }

  void Explain(const Placement& placement) {
    for (v1::Pace& pace : PacesOf(problem_, placement, plan_))
      *plan_.mutable_certificate()->add_pace() = std::move(pace);
    if (placement.interrupted) plan_.add_notes()->set_interrupted_search(true);
    for (const v1::Note& note : context_.preferred_notes) *plan_.add_notes() = note;
    for (const v1::Note& note : placement.notes) {
      // Searches bound the rate of steps without drafts.
      if (!note.has_bound_error() || !shape_.drafts.any()) *plan_.add_notes() = note;
    }
    Bound(placement);
    if (options_.goal == Goal::kPrice) return;
    if (options_.given_search && placement.shadow_prices.empty()) return;
    for (v1::DevicePrice& price :
         ShadowPrices(problem_, placement, options_.search, plan_.has_survival()))
      *plan_.add_device_prices() = std::move(price);
  }

  void Bound(const Placement& placement) {
    const double asked = workload_.requests_per_second;
    const bool price = options_.goal == Goal::kPrice;
    const bool bounds = !shape_.drafts.any();  // searches bound steps without drafts
    const bool proved = placement.proved && bounds && !planning_.spot() &&
                        (!price || placement.requests_per_second >= asked * (1 - 1e-6));
    v1::Certificate& certificate = *plan_.mutable_certificate();
    certificate.set_proved(proved);
    certificate.set_objective(ObjectiveOf(options_.goal));
    certificate.set_asked_requests_per_second(asked);
    const double tpot = problem_.options.max_tpot_seconds;
    if (std::isfinite(tpot)) certificate.set_max_tpot_seconds(tpot);
    if ((proved && price) || placement.upper_bound <= 0 || !bounds) return;
    certificate.set_upper_bound(placement.upper_bound);
    certificate.set_gap(
        std::max(0.0, (placement.upper_bound - Promised(placement)) / placement.upper_bound));
  }

  void Assume(const Placement& placement) {
    *plan_.mutable_assumptions() = AssumptionsOf(
        {&input_, &options_, &problem_, &workload_, planning_.context_tokens, context_.simulates});
    AddDraftCounts(problem_, placement, plan_.mutable_assumptions()->mutable_planning());
  }

  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  const PlanningProblem& planning_;
  const WrittenContext& context_;
  const PlannerInput& input_ = *planning_.input;
  const PlannerOptions& options_ = *planning_.options;
  const ModelShape& shape_ = planning_.shape;
  const ClusterGraph& graph_ = planning_.graph;
  const WorkloadSamples& workload_ = planning_.workload;
  const PlacementProblem& problem_;
  v1::DeploymentPlan plan_;
  std::vector<v1::SpotMix> spot_;
};

}  // namespace

v1::DeploymentPlan WritePlan(const PlanningProblem& planning, const WrittenContext& context,
                             const Placement& placement) {
  return PlanWriter(planning, planning.problem, context).Write(placement);
}

v1::DeploymentPlan WriteServedPlan(const PlanningProblem& planning, const PlacementProblem& problem,
                                   const Placement& placement) {
  const WrittenContext context;
  return PlanWriter(planning, problem, context).WriteServed(placement);
}

v1::DeploymentPlan WriteBarePlan(const PlanningProblem& planning, const PlacementProblem& problem,
                                 const Placement& placement) {
  const WrittenContext context;
  return PlanWriter(planning, problem, context).WriteBare(placement);
}

}  // namespace tessera::scheduler
