#include "scheduler/planner/report/assumption_text.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

using absl::StrFormat;
using Lines = std::vector<std::string>;

constexpr char kInside[] = "links inside ";

std::string TypeName(double bytes) {
  if (bytes < 1) return "4 bits";
  return bytes == 4 ? "32 bits" : bytes == 1 ? "8 bits" : "16 bits";
}

const char* ObjectiveName(v1::Objective objective) {
  switch (objective) {
    case v1::OBJECTIVE_PRICE: return "lowest price for the asked rate";
    case v1::OBJECTIVE_BUDGET: return "most requests per second within the budget";
    case v1::OBJECTIVE_GOODPUT:
      return "most requests per second that meet their latency objectives";
    default: return "most requests per second";
  }
}

const char* Origin(bool given) { return given ? "option" : "default"; }

std::string SearchText(const v1::PlanningTerms& p) {
  if (p.dealt()) {
    return StrCat("search = ", p.search(),
                  " on parts of the cluster, dealt to models; splitting prefill and decode ",
                  p.split() == v1::SPLIT_TERMS_NONE ? "not allowed" : "allowed", " (options)");
  }
  return StrCat("search = ", p.search().empty() ? "none, the layout is given" : p.search(), " (",
                Origin(p.search_given()), "), replicas that only prefill or only decode = ",
                p.split() == v1::SPLIT_TERMS_ALL    ? "all of them (option)"
                : p.split() == v1::SPLIT_TERMS_NONE ? "not allowed (option)"
                                                    : "allowed (default)");
}

void AddObjectives(const v1::Assumptions& a, Lines* lines) {
  if (a.classes().empty()) return;
  for (const v1::ClassTerms& one : a.classes()) {
    const std::string flags = absl::StrJoin(one.flags(), ", ");
    const std::string origin = one.own()       ? "its own objectives"
                               : flags.empty() ? "objectives of the workload"
                               : one.rest_of_workload()
                                   ? StrCat(flags, ", the rest objectives of the workload")
                                   : flags;
    lines->push_back(StrFormat(
        "%s: %.1f %% of the requests, prefix hits %g %%, %s (%s); %g %% must meet it (%s)",
        one.name(), 100 * one.share(), 100 * one.prefix_hit_rate(), LimitsText(one.objectives()),
        origin, 100 * one.objectives().attainment(),
        one.attainment_origin() == v1::FIGURE_ORIGIN_UNSPECIFIED ? "default"
        : one.attainment_origin() == v1::FIGURE_ORIGIN_OPTION    ? "--attainment"
                                                                 : "objective"));
  }
  lines->push_back(
      a.planning().objective() == v1::OBJECTIVE_GOODPUT
          ? "goodput: every replica attains it alone, all pairs of split ones together (cost model)"
          : "TTFT and end to end are predicted, not optimised; --objective goodput optimises them "
            "(objective)");
  lines->push_back(
      "attainment = waits for earlier prompts and for KV room with exponential tails, TPOT by the "
      "number of sequences that decode at once, KV links shared evenly (cost model; tessera "
      "simulate shows what requests meet)");
}

void AddMemory(const v1::PlanningTerms& p, Lines* lines) {
  lines->push_back(StrFormat("memory used = %g %% of each device's (%s)",
                             100 * p.memory_utilisation(), Origin(p.memory_utilisation_given())));
  lines->push_back(StrFormat("runtime reserve = %.2f GiB per device (%s)",
                             p.runtime_reserve_bytes() / kGib, Origin(p.runtime_reserve_given())));
  lines->push_back(StrFormat("KV headroom = %g %% of the KV memory is kept free (%s)",
                             100 * p.kv_headroom(), Origin(p.kv_headroom_given())));
}

std::string DraftsText(const v1::DraftTerms& drafts) {
  if (drafts.draft_tokens() == 0) {
    return StrCat("drafts = none (--speculate ", drafts.source(),
                  ": the model computes in fewer than 32 bits, where drafts could move a token; "
                  "--speculate mtp, ngram or draft:PATH allows that)");
  }
  if (drafts.acceptance() <= 0) {
    return StrCat("drafts = ", drafts.source(),
                  ", counted for nothing: how many are accepted depends on the text; "
                  "--draft-acceptance says it (option)");
  }
  return StrFormat(
      "drafts = %s, up to %d of a sequence in a step, of which %g %% are accepted where those "
      "before them are (%s); none where they gain less than 5 %% (option); searches bound steps "
      "without them",
      drafts.source(), drafts.draft_tokens(), 100 * drafts.acceptance(),
      drafts.acceptance_origin() == v1::FIGURE_ORIGIN_OPTION     ? "--draft-acceptance"
      : drafts.acceptance_origin() == v1::FIGURE_ORIGIN_MEASURED ? "measured, by what workers tried"
                                                                 : "ESTIMATED, of published runs");
}

void AddPlanning(const v1::Assumptions& a, Lines* lines) {
  const v1::PlanningTerms& p = a.planning();
  const auto add = [&](std::string line) { lines->push_back(std::move(line)); };
  add(StrCat("objective = ", ObjectiveName(p.objective()), " (", Origin(p.objective_given()), ")"));
  if (p.budget_usd_per_hour() > 0) {
    add(StrFormat("budget = %g USD/h (description)%s", p.budget_usd_per_hour(),
                  p.objective() == v1::OBJECTIVE_BUDGET ? "" : ", not used by the objective"));
  }
  add(SearchText(p));
  add(StrCat("weights = ", TypeName(p.weight_bytes_per_element()), " (",
             p.weight_given() ? "option" : "as stored",
             "), KV = ", TypeName(p.kv_bytes_per_element()), " (", Origin(p.kv_given()), ")"));
  add(StrCat("judged by simulation as well = ", p.simulated() ? "yes" : "no",
             p.simulation_interrupted() ? " (interrupted)"
             : p.simulation_given()
                 ? " (option)"
                 : " (default, by the number of devices and whether the plan splits)"));
  add(p.survives() ? "must survive the loss of any one machine = yes, judged by the rate that then "
                     "remains (option)"
                   : "must survive the loss of any one machine = no (default)");
  add(SpotAssumption(p.spot()));
  add(MoveAssumption(p.move()));
  AddMemory(p, lines);
  if (p.max_step_tokens() > 0) {
    add(StrFormat(
        "at most %d tokens in one step (%s) and %g sequences decoding at once in one replica (%s), "
        "on average; a replica may run a quarter more sequences, plus those in prefill",
        p.max_step_tokens(), Origin(p.max_step_tokens_given()), p.max_sequences(),
        Origin(p.max_sequences_given())));
  }
  if (p.has_drafts()) add(DraftsText(p.drafts()));
  for (const v1::SearchConstant& one : p.constants()) {
    add(StrFormat("%s = %g (%s; %s)", one.name(), one.value(), Origin(one.given()), one.origin()));
  }
  if (p.seed() > 0) add(StrFormat("seed = %d, of searches that draw (option)", p.seed()));
  add(p.max_tpot_seconds() > 0
          ? StrFormat(
                "time per output token <= %.1f ms on average, kept by every replica (objective)",
                p.max_tpot_seconds() * 1e3)
          : std::string("time per output token = no limit (default)"));
  AddObjectives(a, lines);
  add(StrFormat(
      "KV sent from prefill to decode may be compressed (int8, int4); encoding and decoding run at "
      "%.3g GB/s of KV each (%s)",
      p.kv_codec_bytes_per_second() / 1e9,
      p.kv_codec_measured() ? "measured on the slowest device" : Origin(p.kv_codec_given())));
}

void AddWorkload(const v1::WorkloadTerms& w, Lines* lines) {
  const auto add = [&](std::string line) { lines->push_back(std::move(line)); };
  if (w.longest_sequence_tokens() > 0) {
    add(StrCat("longest sequence = ", w.longest_sequence_tokens(), " tokens (",
               w.longest_sequence_given() ? "option" : "the model's", ")",
               w.beyond_model_tokens() > 0
                   ? StrCat(", BEYOND the ", w.beyond_model_tokens(), " of the model")
                   : std::string(),
               w.cut_share() > 0
                   ? StrFormat(", to which %.3g %% of the requests are CUT", 100 * w.cut_share())
                   : std::string()));
  }
  if (w.length_pairs() == 0) return;
  add(StrFormat(
      "prompts = %.0f tokens and answers = %.0f on average, over %d pair%s of lengths "
      "(%s)",
      w.prompt_tokens(), w.output_tokens(), w.length_pairs(), w.length_pairs() == 1 ? "" : "s",
      w.lengths_origin() == v1::FIGURE_ORIGIN_OPTION ? "--prompt and --output" : "workload"));
  add(w.requests_per_second() > 0
          ? StrFormat("rate = %g requests/s (%s)", w.requests_per_second(),
                      w.rate_origin() == v1::FIGURE_ORIGIN_OPTION ? "--rate" : "workload")
          : std::string("rate = as much as the cluster can serve (no rate was given)"));
  if (w.class_shares() > 0) {
    add(StrFormat("shares of the classes sum to %g: each is taken as its part of that (workload)",
                  w.class_shares()));
  }
  add(StrFormat("prefix hits = %.1f %% of prompt tokens (%s)", 100 * w.prefix_hit_rate(),
                w.prefix_hit_rate() > 0 ? "workload" : "default"));
  add(
      StrFormat("gaps between arrivals: deviation = %.3g of the mean gap (%s), squared %.3g; "
                "1: Poisson, above 1: bursts; --arrival-variation sets it",
                w.arrival_variation(),
                w.arrival_origin() == v1::FIGURE_ORIGIN_MEASURED   ? "MEASURED in the trace"
                : w.arrival_origin() == v1::FIGURE_ORIGIN_OPTION   ? "--arrival-variation"
                : w.arrival_origin() == v1::FIGURE_ORIGIN_WORKLOAD ? "workload"
                                                                   : "default",
                w.arrival_variation() * w.arrival_variation()));
}

std::string MeasuredText(const v1::KindTerms& kind) {
  std::string text;
  const auto add = [&](const v1::MeasuredSpan& span, double unit, const char* name,
                       const char* unit_name) {
    if (span.most() <= 0) return;
    const std::string least = StrFormat("%.3g", span.least() / unit);
    const std::string most = StrFormat("%.3g", span.most() / unit);
    text += StrCat(text.empty() ? "" : ", ", name, " ", least,
                   least == most ? "" : StrCat(" to ", most), " ", unit_name);
  };
  add(kind.memory_bytes_per_second(), 1e9, "memory bandwidth", "GB/s");
  add(kind.measured_compute(), 0.01, "compute efficiency", "%");
  add(kind.measured_memory(), 0.01, "memory efficiency", "%");
  add(kind.step_overhead_seconds(), 1e-6, "overhead", "us per step");
  if (!kind.measured_products().empty()) {
    text += StrCat(text.empty() ? "" : ", ", "products with ",
                   absl::StrJoin(kind.measured_products(), ", "), " by rows");
  }
  return text;
}

bool HasEfficiencies(const v1::KindTerms& kind) {
  return kind.compute_efficiency() > 0 || kind.memory_efficiency() > 0;
}

bool Estimated(const v1::KindTerms& kind) {
  return HasEfficiencies(kind) &&
         (kind.efficiencies_default() ||
          (!kind.efficiencies_described() && kind.efficiency_source().empty()));
}

std::string EfficienciesText(const v1::KindTerms& kind) {
  std::vector<std::string> parts;
  const auto part = [&](double efficiency, const char* of) {
    if (efficiency > 0) parts.push_back(StrFormat("%.3g %% of %s", 100 * efficiency, of));
  };
  part(kind.compute_efficiency(), "FLOP/s");
  part(kind.memory_efficiency(), "memory bandwidth");
  if (kind.layer_overhead_seconds() > 0)
    parts.push_back(StrFormat("%.3g us per layer", 1e6 * kind.layer_overhead_seconds()));
  if (parts.empty()) return "";
  const std::string figures = absl::StrJoin(parts, ", ");
  if (!HasEfficiencies(kind)) return StrCat("; overhead of the kind, ", figures);
  return StrCat("; efficiencies ", figures,
                kind.efficiencies_default()
                    ? ", ESTIMATED: the default where the description gives none"
                : !kind.efficiency_source().empty() ? StrCat(", ", kind.efficiency_source())
                : kind.efficiencies_described()     ? std::string(", of the description")
                                                    : ", ESTIMATED by likeness to measured cards");
}

std::string KindText(const v1::KindTerms& kind) {
  std::string line = StrCat(
      kind.kind(), ": peaks ",
      kind.described() ? std::string("of the description")
                       : StrCat("from ", kind.source(), ", compared on ", kind.source_date()),
      EfficienciesText(kind));
  if (kind.measured_on().empty()) return line;
  return StrCat(
      line, "; MEASURED on ", absl::StrJoin(kind.measured_on(), ", "),
      kind.more_measured_on() > 0 ? StrCat(" and ", kind.more_measured_on(), " more") : "", ": ",
      MeasuredText(kind));
}

void AddLinks(const v1::Assumptions& a, Lines* lines) {
  if (const int machines = a.estimated_inside_machines(); machines > 0) {
    lines->push_back(
        StrCat(kInside, machines, machines == 1 ? " machine" : " machines",
               " = peer links of the catalogue, ESTIMATED unless its source says fitted; "
               "a machine's `inside` says otherwise"));
  }
  std::vector<std::string> parts;
  for (const v1::DefaultLatency& one : a.latencies()) {
    const bool short_one = one.seconds() < 1e-3;
    parts.push_back(StrFormat("%g %s %s", (short_one ? 1e6 : 1e3) * one.seconds(),
                              short_one ? "us" : "ms",
                              one.tier() == "machine"  ? "inside machines"
                              : one.tier() == "rack"   ? "within racks"
                              : one.tier() == "region" ? "between sites"
                                                       : "within sites"));
  }
  if (!parts.empty())
    lines->push_back(
        StrCat("latency of links that give none = ", absl::StrJoin(parts, ", "), " (default)"));
}

void AddPrices(const v1::PriceTerms& prices, Lines* lines) {
  if (const int machines = prices.priced_machines(); machines > 0) {
    lines->push_back(StrCat("prices of ", machines, machines == 1 ? " machine" : " machines",
                            " = as the description says, of the whole machine, paid once any of "
                            "its devices is used"));
  }
  for (const std::string& kind : prices.unknown_kinds()) {
    lines->push_back(StrCat("price of ", kind,
                            " = unknown; a plan that uses it has no price of its own, and "
                            "beside others that of its other devices, with a +"));
  }
  for (const v1::SourcedPrices& sourced : prices.devices()) {
    std::vector<std::string> parts;
    for (const v1::KindPrice& one : sourced.prices())
      parts.push_back(StrFormat("%s %.2f", one.kind(), one.usd_per_hour()));
    lines->push_back(StrCat(
        "USD per hour of one device that is rented by itself: ", absl::StrJoin(parts, ", "), " (",
        sourced.source().empty()
            ? "description"
            : StrCat("ESTIMATED, one provider's on one day: ", sourced.source()),
        ")"));
  }
}

}  // namespace

std::string SpotAssumption(const v1::SpotTerms& spot) {
  if (spot.share() <= 0) return "spot share = 0: every machine is rented on demand (default)";
  return StrFormat(
      "spot share = %g of the machines that have a spot price, %d extra of each (%s); on demand = "
      "clamp(target + extra - ready spot, 0, target)",
      spot.share(), spot.extra(), spot.extra() > 0 ? "options" : "option and default");
}

std::string MoveAssumption(const v1::MoveTerms& move) {
  return StrCat(StrFormat("weights are read at %.3g GB/s per machine (%s)",
                          move.disk_bytes_per_second() / 1e9,
                          move.disk_given() ? "option" : "default: an NVMe drive on PCIe 3.0 x4"),
                move.network_bytes_per_second() > 0
                    ? StrFormat(", over a network of %.3g Gbit/s per machine (option)",
                                move.network_bytes_per_second() * 8e-9)
                    : std::string(", no network in between (default)"),
                move.keeps_weights()
                    ? "; workers keep weights that they hold (option)"
                    : "; a worker whose share changes reads all of its weights (default)");
}

std::vector<std::string> AssumptionLines(const v1::Assumptions& a) {
  Lines lines;
  if (a.has_planning()) AddPlanning(a, &lines);
  AddWorkload(a.workload(), &lines);
  if (a.has_planning()) {
    lines.push_back(
        "a stage has devices of one kind in one machine; over at most 8 unlike devices, or "
        "machines joined by 25 Gbit/s and more, stages are tried as a whole replica, and in "
        "pipelines laid out for one user, where there are at most 64 devices in all; for what one "
        "user alone gets soonest, at most 1024 (search)");
    lines.push_back("latencies, rates and bytes are computed by the cost model, not measured");
  }
  for (const v1::KindTerms& kind : a.kinds()) lines.push_back(KindText(kind));
  if (a.has_planning()) {
    lines.push_back(
        "memory of a device = the data sheet's GB as GiB where the description gives none; with "
        "ECC cards report up to 6 % less (catalogue)");
  }
  AddLinks(a, &lines);
  AddPrices(a.prices(), &lines);
  for (const v1::RegisteredMemory& memory : a.memory()) {
    lines.push_back(StrFormat(
        "memory of %s = %.1f GiB, less than %s registered (%s)",
        absl::StrJoin(memory.devices(), ", "), static_cast<double>(memory.bytes()) / kGib,
        memory.devices_size() == 1 ? "its worker" : "their workers", memory.cluster_file()));
  }
  return lines;
}

std::string EstimatesText(const v1::DeploymentPlan& plan) {
  const v1::Assumptions& a = plan.assumptions();
  std::vector<std::string> kinds, parts;
  for (const v1::KindTerms& kind : a.kinds()) {
    if (Estimated(kind)) kinds.push_back(kind.kind());
  }
  if (!kinds.empty()) parts.push_back(StrCat("efficiencies of ", absl::StrJoin(kinds, ", ")));
  if (const int machines = a.estimated_inside_machines(); machines > 0)
    parts.push_back(StrCat(kInside, machines, machines == 1 ? " machine" : " machines"));
  if (PricesEstimated(plan)) parts.emplace_back("prices of devices");
  return parts.empty() ? "" : StrCat("ESTIMATED, not measured: ", absl::StrJoin(parts, "; "));
}

bool PricesEstimated(const v1::DeploymentPlan& plan) {
  const auto& devices = plan.assumptions().prices().devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const v1::SourcedPrices& one) { return !one.source().empty(); });
}

}  // namespace tessera::scheduler
