#include "scheduler/planner/plan_assumptions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/planner/report/plan_attainment.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/search/search_options.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

std::string TypeName(double bytes) {
  return bytes == 4 ? "32 bits" : bytes == 1 ? "8 bits" : "16 bits";
}

const char* GoalName(Goal goal) {
  switch (goal) {
    case Goal::kThroughput: return "most requests per second";
    case Goal::kPrice: return "lowest price for the asked rate";
    case Goal::kBudget: return "most requests per second within the budget";
    case Goal::kGoodput: return "most requests per second that meet their latency objectives";
    default: return "as asked";
  }
}

// Who gave the limits of a class without its own: the options, the workload, or both.
std::string LimitsOrigin(const v1::ServiceObjectives& limits, const WorkloadOptions& options) {
  std::string flags;
  bool workload = false;
  for (const auto& [seconds, given, flag] :
       {std::tuple(limits.time_to_first_token_seconds(), options.max_ttft, "--max-ttft"),
        {limits.time_per_output_token_seconds(), options.max_tpot, "--max-tpot"},
        {limits.end_to_end_seconds(), options.max_end_to_end, "--max-e2e"}}) {
    if (seconds <= 0) continue;
    if (given) flags += StrCat(flags.empty() ? "" : ", ", flag);
    workload = workload || !given;
  }
  if (flags.empty()) return "objectives of the workload";
  return workload ? StrCat(flags, ", the rest objectives of the workload") : flags;
}

// What is asked of latencies, and how it was judged.
void AddObjectives(const AssumedFigures& f, std::vector<std::string>* lines) {
  if (!AnyLimits(f.workload->classes)) return;
  const v1::Workload& workload = f.input->workload;
  for (const RequestClass& one : f.workload->classes) {
    const bool own = one.judged_with > 0;
    const v1::ServiceObjectives& given =
        own ? workload.classes(one.judged_with - 1).objectives() : workload.objectives();
    lines->push_back(absl::StrFormat(
        "%s: %.1f %% of the requests, prefix hits %g %%, %s (%s); %g %% must meet it (%s)",
        one.name, 100 * one.share, 100 * one.samples.front().prefix_hit_rate,
        LimitsText(ObjectivesOf(one)),
        own ? "its own objectives" : LimitsOrigin(ObjectivesOf(one), f.input->workload_options),
        100 * one.required_attainment,
        given.attainment() <= 0                        ? "default"
        : !own && f.input->workload_options.attainment ? "--attainment"
                                                       : "objective"));
  }
  if (f.options->goal == Goal::kGoodput) {
    lines->push_back(
        "goodput: every replica attains it alone, all pairs of split ones together (cost model)");
  } else {
    lines->push_back(
        "TTFT and end to end are predicted, not optimised; --objective goodput optimises them "
        "(objective)");
  }
  lines->push_back(
      "attainment = waits for earlier prompts and for KV room with exponential tails, TPOT by the "
      "number of sequences that decode at once, KV links shared evenly (cost model; tessera "
      "simulate shows what requests meet)");
}

// Where an option's value is from.
const char* Origin(bool as_ever) { return as_ever ? "default" : "option"; }

void AddOptions(const AssumedFigures& f, std::vector<std::string>* lines) {
  const PlannerOptions& o = *f.options;
  const PlannerOptions ever;
  const ModelShape& model = *f.problem->model;
  const auto add = [&](std::string line) { lines->push_back(std::move(line)); };
  add(StrCat("objective = ", GoalName(o.goal), " (", Origin(o.goal == ever.goal), ")"));
  if (f.problem->budget_usd_per_hour > 0) {
    add(absl::StrFormat("budget = %g USD/h (description)%s", f.problem->budget_usd_per_hour,
                        o.goal == Goal::kBudget ? "" : ", not used by the objective"));
  }
  add(StrCat("search = ",
             o.given_search     ? "none, the layout is given"
             : o.search.empty() ? "best"
                                : o.search,
             " (", Origin(!o.given_search && (o.search.empty() || o.search == ever.search)),
             "), replicas that only prefill or only decode = ",
             o.require_split ? "all of them (option)"
             : o.allow_split ? "allowed (default)"
                             : "not allowed (option)"));
  add(StrCat("weights = ", TypeName(model.weight_bytes_per_element), " (",
             o.weight_dtype == v1::DATA_TYPE_UNSPECIFIED ? "as stored" : "option",
             "), KV = ", TypeName(model.kv_bytes_per_element), " (",
             o.kv_dtype == v1::DATA_TYPE_UNSPECIFIED ? "default" : "option", ")"));
  add(StrCat("judged by simulation as well = ", f.simulates ? "yes" : "no",
             f.interrupted ? " (interrupted)"
             : o.simulate.has_value()
                 ? " (option)"
                 : " (default, by the number of devices and whether the plan splits)"));
  add(o.survive_machine_loss ? "must survive the loss of any one machine = yes, judged by the rate "
                               "that then remains (option)"
                             : "must survive the loss of any one machine = no (default)");
  add(SpotAssumption(o.spot));
  add(MoveAssumption(o.move));
  add(absl::StrFormat("memory used = %g %% of each device's (%s)", 100 * o.utilisation,
                      Origin(o.utilisation == ever.utilisation)));
  add(absl::StrFormat("runtime reserve = %.2f GiB per device (%s)", o.runtime_reserve_bytes / kGib,
                      Origin(o.runtime_reserve_bytes == RuntimeReserveBytes(f.input->cluster))));
  add(absl::StrFormat("KV headroom = %g %% of the KV memory is kept free (%s)", 100 * o.kv_headroom,
                      Origin(o.kv_headroom == ever.kv_headroom)));
  add(absl::StrFormat(
      "at most %d tokens in one step (%s) and %g sequences decoding at once in one replica (%s), "
      "on average; a replica may run a quarter more sequences, plus those in prefill",
      o.max_step_tokens, Origin(o.max_step_tokens == ever.max_step_tokens), o.max_sequences,
      Origin(o.max_sequences == ever.max_sequences)));
  if (!o.given_search) {
    for (std::string& line : SearchOptionLines(o.search, f.problem->search_options))
      add(std::move(line));
  }
  if (o.seed > 0) add(absl::StrFormat("seed = %d, of searches that draw (option)", o.seed));
  const double tpot = f.problem->options.max_tpot_seconds;
  add(std::isfinite(tpot)
          ? absl::StrFormat(
                "time per output token <= %.1f ms on average, kept by every replica (objective)",
                tpot * 1e3)
          : std::string("time per output token = no limit (default)"));
  AddObjectives(f, lines);
  add(absl::StrFormat(
      "KV sent from prefill to decode may be compressed (int8, int4); encoding and decoding run at "
      "%.3g GB/s of KV each (%s)",
      o.kv_codec_bytes_per_second / 1e9,
      Origin(o.kv_codec_bytes_per_second == ever.kv_codec_bytes_per_second)));
}

void AddWorkload(const AssumedFigures& f, std::vector<std::string>* lines) {
  const LengthMoments lengths = MomentsOf(f.workload->samples);
  const double cut = f.workload->cut_share;
  const WorkloadOptions& given = f.input->workload_options;
  lines->push_back(StrCat(
      "longest sequence = ", f.context_tokens, " tokens (",
      f.options->context_tokens > 0 ? "option" : "the model's", ")",
      f.problem->model->max_positions > 0 && f.context_tokens > f.problem->model->max_positions
          ? StrCat(", BEYOND the ", f.problem->model->max_positions, " of the model")
          : std::string(),
      cut > 0 ? absl::StrFormat(", to which %.3g %% of the requests are CUT", 100 * cut)
              : std::string()));
  lines->push_back(absl::StrFormat(
      "prompts = %.0f tokens and answers = %.0f on average, over %d pair%s of lengths "
      "(%s)",
      lengths.prompt_tokens, lengths.output_tokens, f.workload->samples.size(),
      f.workload->samples.size() == 1 ? "" : "s",
      given.lengths ? "--prompt and --output" : "workload"));
  lines->push_back(
      f.workload->requests_per_second > 0
          ? absl::StrFormat("rate = %g requests/s (%s)", f.workload->requests_per_second,
                            given.rate ? "--rate" : "workload")
          : std::string("rate = as much as the cluster can serve (no rate was given)"));
  double shares = 0;
  for (const v1::WorkloadClass& c : f.input->workload.classes()) shares += c.share();
  if (f.input->workload.classes_size() > 1 && std::abs(shares - 1) > 1e-6) {
    lines->push_back(absl::StrFormat(
        "shares of the classes sum to %g: each is taken as its part of that (workload)", shares));
  }
  const double variation = f.workload->arrival_variation;
  lines->push_back(absl::StrFormat("prefix hits = %.1f %% of prompt tokens (%s)",
                                   100 * f.workload->prefix_hit_rate,
                                   f.workload->prefix_hit_rate > 0 ? "workload" : "default"));
  lines->push_back(
      absl::StrFormat("gaps between arrivals: deviation = %.3g of the mean gap (%s), squared %.3g; "
                      "1: Poisson, above 1: bursts; --arrival-variation sets it",
                      variation,
                      f.workload->arrival_variation_measured      ? "MEASURED in the trace"
                      : given.arrival_variation                   ? "--arrival-variation"
                      : f.input->workload.arrival_variation() > 0 ? "workload"
                                                                  : "default",
                      variation * variation));
}

// "a, b, c, d and 3 more".
std::string FirstOf(const std::set<std::string>& names) {
  constexpr size_t kListed = 4;
  std::string text;
  size_t listed = 0;
  for (const std::string& name : names) {
    if (listed == kListed) break;
    text += StrCat(listed++ == 0 ? "" : ", ", name);
  }
  return names.size() > listed ? StrCat(text, " and ", names.size() - listed, " more") : text;
}

// What was measured of devices of one kind; the rest is as their kind says.
struct MeasuredFigures {
  struct Range {
    double least = 0, most = 0;  // 0: not measured
    void Add(double value) {
      if (value <= 0) return;
      least = least > 0 ? std::min(least, value) : value;
      most = std::max(most, value);
    }
  };
  Range memory, compute, memory_part, overhead;  // bytes per second, parts of the peaks, seconds
  std::set<std::string> machines;

  void Add(const v1::MeasuredProfile& profile, const std::string& machine) {
    memory.Add(profile.memory_read_bytes_per_second());
    compute.Add(profile.prefill_efficiency());
    memory_part.Add(profile.decode_efficiency());
    overhead.Add(profile.step_overhead_seconds());
    machines.insert(machine);
  }
};

std::string MeasuredText(const MeasuredFigures& measured) {
  std::string text;
  const auto add = [&](const MeasuredFigures::Range& range, double unit, const char* name,
                       const char* unit_name) {
    if (range.most <= 0) return;
    const std::string least = absl::StrFormat("%.3g", range.least / unit);
    const std::string most = absl::StrFormat("%.3g", range.most / unit);
    text += StrCat(text.empty() ? "" : ", ", name, " ", least,
                   least == most ? "" : StrCat(" to ", most), " ", unit_name);
  };
  add(measured.memory, 1e9, "memory bandwidth", "GB/s");
  add(measured.compute, 0.01, "compute efficiency", "%");
  add(measured.memory_part, 0.01, "memory efficiency", "%");
  add(measured.overhead, 1e-6, "overhead", "us per step");
  return text;
}

// Which figures of a kind count on some device: those that are not measured there.
struct CountedFigures {
  bool compute = false, memory = false, overhead = false;

  void Add(const v1::MeasuredProfile& profile) {
    compute = compute || profile.prefill_efficiency() <= 0;
    memory =
        memory || (profile.memory_read_bytes_per_second() <= 0 && profile.decode_efficiency() <= 0);
    overhead = overhead || profile.step_overhead_seconds() <= 0;
  }
};

// What of its peaks a kind is said to reach, and who says so; what is measured everywhere is left
// out.
std::string EfficienciesText(const v1::DeviceKind& kind, const v1::DeviceKind* own,
                             const CountedFigures& counts) {
  std::vector<std::string> parts;
  const auto part = [&](double given, double otherwise, const char* of) {
    parts.push_back(absl::StrFormat("%.3g %% of %s", 100 * (given > 0 ? given : otherwise), of));
  };
  if (counts.compute) part(kind.prefill_efficiency(), kDefaultComputeEfficiency, "FLOP/s");
  if (counts.memory) part(kind.decode_efficiency(), kDefaultMemoryEfficiency, "memory bandwidth");
  const bool efficiencies = !parts.empty();
  if (counts.overhead && kind.layer_overhead_seconds() > 0)
    parts.push_back(absl::StrFormat("%.3g us per layer", 1e6 * kind.layer_overhead_seconds()));
  if (parts.empty()) return "";
  const std::string figures = absl::StrJoin(parts, ", ");
  if (!efficiencies) return StrCat("; overhead of the kind, ", figures);
  const std::string text = StrCat("; efficiencies ", figures);
  if ((counts.compute && kind.prefill_efficiency() <= 0) ||
      (counts.memory && kind.decode_efficiency() <= 0))
    return text + ", ESTIMATED: the default where the description gives none";
  if (own != nullptr && (own->prefill_efficiency() > 0 || own->decode_efficiency() > 0)) {
    return StrCat(
        text, ", ",
        own->efficiency_source().empty() ? "of the description" : own->efficiency_source());
  }
  return StrCat(text, ", ",
                kind.efficiency_source().empty() ? "ESTIMATED by likeness to measured cards"
                                                 : kind.efficiency_source());
}

// A line per kind: figures and efficiencies, each marked.
void AddKinds(const PlannerInput& input, std::vector<std::string>* lines) {
  struct OfKind {
    MeasuredFigures measured;
    CountedFigures counts;
  };
  std::map<std::string, OfKind> kinds;
  for (const v1::Machine& machine : input.cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices()) {
      OfKind& of = kinds[group.kind()];
      of.counts.Add(group.profile());
      if (group.has_profile()) of.measured.Add(group.profile(), machine.name());
    }
  }
  for (const auto& [name, of] : kinds) {
    const v1::DeviceKind kind =
        DescribedKind(input.cluster, input.catalogue, name).value_or(v1::DeviceKind());
    const auto own =
        std::find_if(input.cluster.kinds().begin(), input.cluster.kinds().end(),
                     [&, &name = name](const v1::DeviceKind& k) { return k.name() == name; });
    const bool described = own != input.cluster.kinds().end();
    std::string line =
        StrCat(name, ": peaks ",
               described ? std::string("of the description")
                         : StrCat("from ", kind.source(), ", compared on ", kind.source_date()),
               EfficienciesText(kind, described ? &*own : nullptr, of.counts));
    if (!of.measured.machines.empty())
      line +=
          StrCat("; MEASURED on ", FirstOf(of.measured.machines), ": ", MeasuredText(of.measured));
    lines->push_back(std::move(line));
  }
}

// Latencies that the description leaves out.
void AddLatencies(const ClusterGraph& graph, std::vector<std::string>* lines) {
  std::string text;
  for (const auto& [tier, seconds] : graph.default_latencies()) {
    text += absl::StrFormat("%s%g %s %s", text.empty() ? "" : ", ",
                            seconds < 1e-3 ? 1e6 * seconds : 1e3 * seconds,
                            seconds < 1e-3 ? "us" : "ms",
                            tier == "machine"  ? "inside machines"
                            : tier == "rack"   ? "within racks"
                            : tier == "region" ? "between sites"
                                               : "within sites");
  }
  if (!text.empty())
    lines->push_back(StrCat("latency of links that give none = ", text, " (default)"));
}

// Links inside machines that give none are the catalogue's: few of them were measured.
void AddInside(const PlannerInput& input, std::vector<std::string>* lines) {
  if (input.cluster.tiers().has_machine()) return;
  int machines = 0;
  for (const v1::Machine& machine : input.cluster.machines()) {
    int devices = 0;
    for (const v1::DeviceGroup& group : machine.devices()) devices += std::max(1, group.count());
    if (devices > 1 && !machine.has_inside()) ++machines;
  }
  if (machines == 0) return;
  lines->push_back(
      StrCat("links inside ", machines, machines == 1 ? " machine" : " machines",
             " = peer links of the catalogue, ESTIMATED unless its source says fitted; "
             "a machine's `inside` says otherwise"));
}

// What money figures rest on, a line per kind whose price counts: where a machine has a price of
// its own, that of its devices does not.
void AddPrices(const PlannerInput& input, std::vector<std::string>* lines) {
  std::set<std::string> kinds;
  std::map<std::string, std::set<std::string>> by_source;  // "A40 0.44"
  const auto price_text = [](const std::string& name, double price) {
    return absl::StrFormat("%s %.2f", name, price);
  };
  int own = 0;
  for (const v1::Machine& machine : input.cluster.machines()) {
    if (machine.price_usd_per_hour() > 0) {
      ++own;
      continue;
    }
    for (const v1::DeviceGroup& group : machine.devices()) {
      if (group.price_usd_per_hour() > 0) {
        by_source[""].insert(price_text(group.kind(), group.price_usd_per_hour()));
      } else {
        kinds.insert(group.kind());
      }
    }
  }
  if (own > 0) {
    lines->push_back(StrCat("prices of ", own, own == 1 ? " machine" : " machines",
                            " = as the description says, of the whole machine, paid once any of "
                            "its devices is used"));
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
      lines->push_back(
          StrCat("price of ", name, " = unknown; plans that use it are shown without a price"));
      continue;
    }
    by_source[source].insert(price_text(name, price));
  }
  for (const auto& [source, prices] : by_source) {
    lines->push_back(StrCat(
        "USD per hour of one device that is rented by itself: ", absl::StrJoin(prices, ", "), " (",
        source.empty() ? "description" : StrCat("ESTIMATED, one provider's on one day: ", source),
        ")"));
  }
}

}  // namespace

std::vector<std::string> Assumptions(const AssumedFigures& figures) {
  std::vector<std::string> lines;
  AddOptions(figures, &lines);
  AddWorkload(figures, &lines);
  lines.push_back(
      "a stage has devices of one kind in one machine: the search tries no others (search)");
  lines.push_back("latencies, rates and bytes are computed by the cost model, not measured");
  AddKinds(*figures.input, &lines);
  lines.push_back(
      "memory of a device = the data sheet's GB as GiB where the description gives none; with ECC "
      "cards report up to 6 % less (catalogue)");
  AddInside(*figures.input, &lines);
  AddLatencies(*figures.problem->graph, &lines);
  AddPrices(*figures.input, &lines);
  return lines;
}

}  // namespace tessera::scheduler
