#include "scheduler/planner/plan_assumptions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "scheduler/input/catalogue.h"
#include "scheduler/input/described_device.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/plan_attainment.h"
#include "scheduler/search/search_options.h"

namespace tessera::scheduler {
namespace {

// The flags that gave limits of a class without its own; the workload gave the rest.
void AddLimitOrigins(const WorkloadOptions& options, v1::ClassTerms* terms) {
  const v1::ServiceObjectives& limits = terms->objectives();
  for (const auto& [seconds, given, flag] :
       {std::tuple(limits.time_to_first_token_seconds(), options.max_ttft, "--max-ttft"),
        {limits.time_per_output_token_seconds(), options.max_tpot, "--max-tpot"},
        {limits.end_to_end_seconds(), options.max_end_to_end, "--max-e2e"}}) {
    if (seconds <= 0) continue;
    if (given) {
      terms->add_flags(flag);
    } else {
      terms->set_rest_of_workload(true);
    }
  }
}

// What is asked of latencies.
void AddClasses(const AssumedFigures& f, v1::Assumptions* out) {
  if (!AnyLimits(f.workload->classes)) return;
  const v1::Workload& workload = f.input->workload;
  for (const RequestClass& one : f.workload->classes) {
    v1::ClassTerms& terms = *out->add_classes();
    terms.set_name(one.name);
    terms.set_share(one.share);
    terms.set_prefix_hit_rate(one.samples.front().prefix_hit_rate);
    *terms.mutable_objectives() = ObjectivesOf(one);
    terms.set_own(one.judged_with > 0);
    if (!terms.own()) AddLimitOrigins(f.input->workload_options, &terms);
    const v1::ServiceObjectives& given =
        terms.own() ? workload.classes(one.judged_with - 1).objectives() : workload.objectives();
    if (given.attainment() <= 0) continue;
    terms.set_attainment_origin(!terms.own() && f.input->workload_options.attainment
                                    ? v1::FIGURE_ORIGIN_OPTION
                                    : v1::FIGURE_ORIGIN_WORKLOAD);
  }
}

void SetSearch(const AssumedFigures& f, v1::PlanningTerms* p) {
  const PlannerOptions& o = *f.options;
  const PlannerOptions ever;
  const std::string search = o.search.empty() ? ever.search : o.search;
  if (!o.given_search) p->set_search(search);
  p->set_search_given(o.given_search || search != ever.search);
  p->set_split(o.require_split ? v1::SPLIT_TERMS_ALL
               : o.allow_split ? v1::SPLIT_TERMS_UNSPECIFIED
                               : v1::SPLIT_TERMS_NONE);
  p->set_simulated(f.simulates);
  p->set_simulation_given(o.simulate.has_value());
  p->set_survives(o.survive_machine_loss);
  p->set_seed(o.seed);
  if (o.given_search) return;
  for (v1::SearchConstant& constant : SearchConstantsOf(o.search, f.problem->search_options))
    *p->add_constants() = std::move(constant);
}

void SetPlanning(const AssumedFigures& f, v1::PlanningTerms* p) {
  const PlannerOptions& o = *f.options;
  const PlannerOptions ever;
  p->set_objective(ObjectiveOf(o.goal));
  p->set_objective_given(o.goal != ever.goal);
  p->set_budget_usd_per_hour(f.problem->budget_usd_per_hour);
  SetSearch(f, p);
  p->set_weight_bytes_per_element(MatrixElementBytes(*f.problem->model));
  p->set_weight_given(o.weight_dtype != v1::DATA_TYPE_UNSPECIFIED);
  p->set_kv_bytes_per_element(f.problem->model->kv_bytes_per_element);
  p->set_kv_given(o.kv_dtype != v1::DATA_TYPE_UNSPECIFIED);
  *p->mutable_spot() = SpotTermsOf(o.spot);
  *p->mutable_move() = MoveTermsOf(o.move);
  p->set_memory_utilisation(o.utilisation);
  p->set_memory_utilisation_given(o.utilisation != ever.utilisation);
  p->set_runtime_reserve_bytes(o.runtime_reserve_bytes);
  p->set_runtime_reserve_given(o.runtime_reserve_bytes != RuntimeReserveBytes(f.input->cluster));
  p->set_kv_headroom(o.kv_headroom);
  p->set_kv_headroom_given(o.kv_headroom != ever.kv_headroom);
  p->set_max_step_tokens(o.max_step_tokens);
  p->set_max_step_tokens_given(o.max_step_tokens != ever.max_step_tokens);
  p->set_max_sequences(o.max_sequences);
  p->set_max_sequences_given(o.max_sequences != ever.max_sequences);
  const double tpot = f.problem->options.max_tpot_seconds;
  if (std::isfinite(tpot)) p->set_max_tpot_seconds(tpot);
  if (!o.drafts.source().empty()) *p->mutable_drafts() = o.drafts;
  p->set_kv_codec_bytes_per_second(f.problem->codec_rates.encode_bytes_per_second);
  p->set_kv_codec_measured(p->kv_codec_bytes_per_second() < o.kv_codec_bytes_per_second);
  p->set_kv_codec_given(o.kv_codec_bytes_per_second != ever.kv_codec_bytes_per_second);
}

void SetWorkload(const AssumedFigures& f, v1::WorkloadTerms* w) {
  const LengthMoments lengths = MomentsOf(f.workload->samples);
  const WorkloadOptions& given = f.input->workload_options;
  const int64_t longest = f.problem->model->max_positions;
  w->set_longest_sequence_tokens(f.context_tokens);
  w->set_longest_sequence_given(f.options->context_tokens > 0);
  if (longest > 0 && f.context_tokens > longest) w->set_beyond_model_tokens(longest);
  w->set_cut_share(f.workload->cut_share);
  w->set_prompt_tokens(lengths.prompt_tokens);
  w->set_output_tokens(lengths.output_tokens);
  w->set_length_pairs(static_cast<int>(f.workload->samples.size()));
  w->set_lengths_origin(given.lengths ? v1::FIGURE_ORIGIN_OPTION : v1::FIGURE_ORIGIN_WORKLOAD);
  w->set_requests_per_second(f.workload->requests_per_second);
  w->set_rate_origin(given.rate ? v1::FIGURE_ORIGIN_OPTION : v1::FIGURE_ORIGIN_WORKLOAD);
  double shares = 0;
  for (const v1::WorkloadClass& c : f.input->workload.classes()) shares += c.share();
  if (f.input->workload.classes_size() > 1 && std::abs(shares - 1) > 1e-6)
    w->set_class_shares(shares);
  w->set_prefix_hit_rate(f.workload->prefix_hit_rate);
  w->set_arrival_variation(f.workload->arrival_variation);
  w->set_arrival_origin(f.workload->arrival_variation_measured ? v1::FIGURE_ORIGIN_MEASURED
                        : given.arrival_variation              ? v1::FIGURE_ORIGIN_OPTION
                        : f.input->workload.arrival_variation() > 0
                            ? v1::FIGURE_ORIGIN_WORKLOAD
                            : v1::FIGURE_ORIGIN_UNSPECIFIED);
}

void Widen(double value, v1::MeasuredSpan* span) {
  if (value <= 0) return;
  span->set_least(span->least() > 0 ? std::min(span->least(), value) : value);
  span->set_most(std::max(span->most(), value));
}

// A kind as the description uses it.
struct UsedKind {
  v1::KindTerms terms;
  std::set<std::string> measured_on, products;
  // Which figures of the kind count on some device: those that are not measured there.
  bool compute = false, memory = false, overhead = false;

  void Add(const v1::DeviceGroup& group, const std::string& machine) {
    const v1::MeasuredProfile& profile = group.profile();
    compute = compute || profile.prefill_efficiency() <= 0;
    memory =
        memory || (profile.memory_read_bytes_per_second() <= 0 && profile.decode_efficiency() <= 0);
    overhead = overhead || profile.step_overhead_seconds() <= 0;
    if (!group.has_profile()) return;
    Widen(profile.memory_read_bytes_per_second(), terms.mutable_memory_bytes_per_second());
    Widen(profile.prefill_efficiency(), terms.mutable_measured_compute());
    Widen(profile.decode_efficiency(), terms.mutable_measured_memory());
    Widen(profile.step_overhead_seconds(), terms.mutable_step_overhead_seconds());
    for (const v1::ProductRate& product : profile.products()) products.insert(product.weights());
    measured_on.insert(machine);
  }
};

// What of its peaks the kind is said to reach, and who says so; what is measured everywhere is
// left out. `own`: where the description has it.
void SetEfficiencies(const v1::DeviceKind& kind, const v1::DeviceKind* own, UsedKind* used) {
  v1::KindTerms& terms = used->terms;
  const double compute = kind.prefill_efficiency(), memory = kind.decode_efficiency();
  if (used->compute)
    terms.set_compute_efficiency(compute > 0 ? compute : kDefaultComputeEfficiency);
  if (used->memory) terms.set_memory_efficiency(memory > 0 ? memory : kDefaultMemoryEfficiency);
  if (used->overhead) terms.set_layer_overhead_seconds(kind.layer_overhead_seconds());
  terms.set_efficiencies_default((used->compute && compute <= 0) || (used->memory && memory <= 0));
  const bool described =
      own != nullptr && (own->prefill_efficiency() > 0 || own->decode_efficiency() > 0);
  terms.set_efficiencies_described(described);
  terms.set_efficiency_source(described ? own->efficiency_source() : kind.efficiency_source());
}

// Figures and efficiencies of each kind, each with who says so.
void AddKinds(const PlannerInput& input, v1::Assumptions* out) {
  std::map<std::string, UsedKind> kinds;
  for (const v1::Machine& machine : input.cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices())
      kinds[group.kind()].Add(group, machine.name());
  }
  for (auto& [name, used] : kinds) {
    const v1::DeviceKind kind =
        DescribedKind(input.cluster, input.catalogue, name).value_or(v1::DeviceKind());
    const auto& described = input.cluster.kinds();
    const auto own = std::find_if(described.begin(), described.end(),
                                  [&, &name = name](const auto& k) { return k.name() == name; });
    v1::KindTerms& terms = used.terms;
    terms.set_kind(name);
    terms.set_described(own != described.end());
    terms.set_source(kind.source());
    terms.set_source_date(kind.source_date());
    SetEfficiencies(kind, own != described.end() ? &*own : nullptr, &used);
    terms.mutable_measured_products()->Assign(used.products.begin(), used.products.end());
    constexpr int kListed = 4;
    for (const std::string& machine : used.measured_on) {
      if (terms.measured_on_size() < kListed) {
        terms.add_measured_on(machine);
      } else {
        terms.set_more_measured_on(terms.more_measured_on() + 1);
      }
    }
    *out->add_kinds() = std::move(terms);
  }
}

// Machines whose inner links are the catalogue's: few of them were measured.
int EstimatedInside(const v1::Cluster& cluster) {
  if (cluster.tiers().has_machine()) return 0;
  int machines = 0;
  for (const v1::Machine& machine : cluster.machines()) {
    int devices = 0;
    for (const v1::DeviceGroup& group : machine.devices()) devices += std::max(1, group.count());
    if (devices > 1 && !machine.has_inside()) ++machines;
  }
  return machines;
}

// What money figures rest on: where a machine has a price of its own, that of its devices does not
// count.
v1::PriceTerms PricesOf(const PlannerInput& input) {
  std::set<std::string> kinds;
  std::map<std::string, std::set<std::pair<std::string, double>>> by_source;
  v1::PriceTerms prices;
  for (const v1::Machine& machine : input.cluster.machines()) {
    if (machine.price_usd_per_hour() > 0) {
      prices.set_priced_machines(prices.priced_machines() + 1);
      continue;
    }
    for (const v1::DeviceGroup& group : machine.devices()) {
      if (group.price_usd_per_hour() > 0) {
        by_source[""].insert({group.kind(), group.price_usd_per_hour()});
      } else {
        kinds.insert(group.kind());
      }
    }
  }
  for (const std::string& name : kinds) {
    const v1::DeviceKind* known = FindKind(input.catalogue, name);
    double price = known != nullptr ? known->price_usd_per_hour() : 0;
    std::string source = known != nullptr ? known->price_source() : "";
    for (const v1::DeviceKind& kind : input.cluster.kinds()) {
      if (kind.name() != name || kind.price_usd_per_hour() <= 0) continue;
      price = kind.price_usd_per_hour();
      source = "";
    }
    if (price <= 0) {
      prices.add_unknown_kinds(name);
    } else {
      by_source[source].insert({name, price});
    }
  }
  for (const auto& [source, devices] : by_source) {
    v1::SourcedPrices& sourced = *prices.add_devices();
    sourced.set_source(source);
    for (const auto& [kind, price] : devices) {
      v1::KindPrice& one = *sourced.add_prices();
      one.set_kind(kind);
      one.set_usd_per_hour(price);
    }
  }
  return prices;
}

}  // namespace

void AddDraftCounts(const PlacementProblem& problem, const Placement& placement,
                    v1::PlanningTerms* terms) {
  if (!problem.model->drafts.any()) return;
  const LengthMoments lengths = MomentsOf(problem.samples);
  const StepWork one = DecodeWork(1, lengths.mean_decode_context());
  int alone = 0, at_rate = 0;
  for (const PlacedReplica& replica : placement.replicas) {
    if (replica.role == Role::kPrefill) continue;
    const ReplicaSpec spec = SpecOf(problem, replica);
    alone = std::max(alone, DraftedStepOf(*problem.model, spec, one, 1).drafts);
    const StepWork steady =
        SteadyWork(replica.role, lengths, replica.rate.decode_rows, problem.options);
    const int lanes = std::max(1, replica.rate.micro_batches);
    at_rate = std::max(at_rate, DraftedStepOf(*problem.model, spec, steady, lanes).drafts);
  }
  for (const auto& [name, drafts] : {std::pair(kDraftsAlone, alone), {kDraftsAtRate, at_rate}}) {
    v1::SearchConstant& constant = *terms->add_constants();
    constant.set_name(name);
    constant.set_value(drafts);
    constant.set_origin("of each sequence in a step; as many as do best (cost model)");
  }
}

v1::Objective ObjectiveOf(Goal goal) {
  switch (goal) {
    case Goal::kPrice: return v1::OBJECTIVE_PRICE;
    case Goal::kBudget: return v1::OBJECTIVE_BUDGET;
    case Goal::kGoodput: return v1::OBJECTIVE_GOODPUT;
    default: return v1::OBJECTIVE_THROUGHPUT;
  }
}

v1::Assumptions AssumptionsOf(const AssumedFigures& figures) {
  v1::Assumptions out;
  SetPlanning(figures, out.mutable_planning());
  AddClasses(figures, &out);
  SetWorkload(figures, out.mutable_workload());
  AddKinds(*figures.input, &out);
  out.set_estimated_inside_machines(EstimatedInside(figures.input->cluster));
  for (const auto& [tier, seconds] : figures.problem->graph->default_latencies()) {
    v1::DefaultLatency& latency = *out.add_latencies();
    latency.set_tier(tier);
    latency.set_seconds(seconds);
  }
  *out.mutable_prices() = PricesOf(*figures.input);
  return out;
}

}  // namespace tessera::scheduler
