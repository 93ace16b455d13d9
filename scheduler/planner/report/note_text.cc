#include "scheduler/planner/report/note_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/input/supported_devices.h"
#include "scheduler/planner/report/bound_text.h"
#include "scheduler/planner/report/plan_text.h"
#include "scheduler/planner/report/weak_replicas.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

using absl::StrFormat;

std::string LatencyName(v1::LatencyLimit limit) {
  switch (limit) {
    case v1::LATENCY_LIMIT_TTFT: return "TTFT";
    case v1::LATENCY_LIMIT_TPOT: return "TPOT";
    default: return "end to end";
  }
}

std::string RentText(const v1::Rent& rent, const v1::DeploymentPlan& plan) {
  return StrFormat(
      "it costs %.2f USD/h to rent%s: %s USD per million output tokens at %.3f requests/s, its "
      "capacity%s",
      rent.usd_per_hour(), rent.minimised() ? ", the minimised cost" : "",
      UsdText(rent.usd_per_million_output_tokens()), plan.prediction().requests_per_second(),
      rent.asked_requests_per_second() > 0
          ? StrFormat(", and %s at the asked %.3f",
                      UsdText(rent.asked_usd_per_million_output_tokens()),
                      rent.asked_requests_per_second())
          : std::string());
}

std::string HardestText(const v1::HardestLimit& hardest) {
  std::vector<std::string> parts;
  for (const v1::WithoutLimit& one : hardest.without())
    parts.push_back(
        StrFormat("%.1f %% without one of %s", 100 * one.attainment(), LatencyName(one.limit())));
  return StrFormat("the limit that most requests miss is %s: %s would meet the others",
                   LatencyName(hardest.without(0).limit()), absl::StrJoin(parts, ", "));
}

std::string SecondsText(double seconds) {
  return seconds < 1 ? StrFormat("%.3g ms", seconds * 1e3) : StrFormat("%.3g s", seconds);
}

std::string MissedText(const v1::MissedLimit& missed) {
  const double limit = missed.limit_seconds(), seconds = missed.seconds();
  const std::string kept = StrCat(LatencyName(missed.limit()), " <= ", SecondsText(limit));
  if (seconds <= 0) return StrCat(kept, " (here without end)");
  return StrCat(kept, " (here ", SecondsText(seconds), ", ", SecondsText(seconds - limit),
                " more)");
}

std::string LatenciesText(double tpot, double ttft, const char* between) {
  std::vector<std::string> parts;
  if (tpot > 0) parts.push_back(StrCat("TPOT ", between, SecondsText(tpot)));
  if (ttft > 0) parts.push_back(StrCat("TTFT ", between, SecondsText(ttft)));
  return absl::StrJoin(parts, ", ");
}

std::string LimitsCostText(const v1::LimitsCost& cost) {
  const std::string limits = LatenciesText(cost.tpot_seconds(), cost.ttft_seconds(), "<= ");
  const std::string full = LatenciesText(cost.full_tpot_seconds(), cost.full_ttft_seconds(), "> ");
  std::vector<std::string> what;
  if (!limits.empty()) what.push_back(StrCat("the limits ", limits));
  if (!full.empty()) what.push_back(StrCat("counting rates less for ", full));
  const std::string subject =
      StrCat(absl::StrJoin(what, " and "), limits.empty() ? " costs " : " cost ");
  if (cost.lost_share() <= 0)
    return StrCat(subject, "nothing: no plan was found that serves more without");
  return StrCat(subject,
                StrFormat("%.1f %% of the rate: %.3f requests/s without, with TPOT %s, TTFT %s",
                          100 * cost.lost_share(), cost.requests_per_second(),
                          SecondsText(cost.other_tpot_seconds()),
                          cost.other_ttft_seconds() > 0 ? SecondsText(cost.other_ttft_seconds())
                                                        : std::string("without end")));
}

std::string MixedStageText(const v1::MixedStage& mixed) {
  return StrFormat(
      "unlike devices of %s share layers: their sums take %s of the %s of a step of one sequence "
      "(links as described, not measured)",
      mixed.replica(), SecondsText(mixed.sum_seconds()), SecondsText(mixed.step_seconds()));
}

std::string OtherPlanText(const v1::SimplicityCost& cost) {
  if (cost.survives()) return "a plan that stops when one machine is lost";
  if (cost.other_stages() <= cost.stages()) return "a plan that loses more with a machine";
  return StrFormat("pipelines of %d stages instead of %d", cost.other_stages(), cost.stages());
}

std::string SimplicityText(const v1::SimplicityCost& cost) {
  return StrFormat(
      "simplicity costs %.1f %%%s: %.3f requests/s would take %s; plans within %g %% of the best "
      "are taken if they serve on without any one machine, then for fewer stages, then for what "
      "the loss of a machine leaves",
      100 * cost.lost_share(), cost.weighed() ? " of the rate, weighed by latency" : "",
      cost.requests_per_second(), OtherPlanText(cost), 100 * cost.within());
}

// What stands behind a price that may lack some devices.
const char* MoreText(const v1::DeploymentPlan& plan) {
  return plan.assumptions().prices().unknown_kinds_size() > 0 ? "+" : "";
}

std::string OtherSplitText(const v1::OtherSplit& other, const char* more) {
  if (other.requests_per_second() <= 0) {
    return other.splits()
               ? "no split of prefill and decode between replicas was found that serves more"
               : "without splitting prefill and decode between replicas nothing was found";
  }
  return StrFormat(
      "%s would serve %.3f requests/s%s",
      other.splits() ? "the search's best with some replicas that only prefill or only decode"
                     : "the search's best where every replica prefills and decodes",
      other.requests_per_second(),
      other.usd_per_hour() > 0 ? StrFormat(" for %.2f%s USD/h", other.usd_per_hour(), more)
                               : std::string());
}

std::string SearchLimitText(v1::SearchLimit limit) {
  switch (limit) {
    case v1::SEARCH_LIMIT_NEAR_THE_FASTEST:
      return "heuristic: device sets near those that serve most, dealt by their goodput";
    case v1::SEARCH_LIMIT_FASTEST_LAYOUTS:
      return "every way to deal the devices was tried, but each replica only in the layouts that "
             "serve most, with and without tighter limits of TPOT: others may serve more in time";
    default:
      return "every way to deal the devices was tried, but layouts of many devices are quick ones "
             "that need not be the best: --prove looks at all of them, which takes long";
  }
}

std::string IdleText(const v1::IdleDevices& idle) {
  std::vector<std::string> kinds;
  for (const v1::IdleKind& one : idle.kinds()) {
    kinds.push_back(
        StrCat(one.devices(), " ", one.kind(), " (", absl::StrJoin(one.machines(), ", "),
               one.more_machines() > 0 ? StrCat(" and ", one.more_machines(), " more") : "", ")"));
  }
  return StrCat("not used: ", absl::StrJoin(kinds, ", "),
                idle.searched() ? "; no plan was found that serves more with them" : "");
}

std::string LostMachineText(const v1::LostMachine& lost) {
  if (lost.replica_count() == lost.of_replicas()) {
    return StrCat("the loss of machine ", lost.machine(), " stops all of it: ",
                  lost.of_replicas() == 1 ? "its only replica" : "every replica", " uses it");
  }
  const int more = lost.replica_count() - lost.replicas_size();
  return StrFormat(
      "the loss of machine %s takes %d of %d replicas along (%s%s) and leaves %.3f of %.3f "
      "requests/s",
      lost.machine(), lost.replica_count(), lost.of_replicas(),
      absl::StrJoin(lost.replicas(), ", "), more > 0 ? StrCat(" and ", more, " more") : "",
      lost.requests_per_second(), lost.of_requests_per_second());
}

std::string SequencesText(const v1::SequenceLimit& limit) {
  constexpr int kNamed = 4;
  return StrFormat(
      "--max-sequences %d limits %s: --max-sequences %d %s", limit.most(),
      limit.replicas_size() > kNamed ? StrCat(limit.replicas_size(), " replicas")
                                     : absl::StrJoin(limit.replicas(), ", "),
      limit.raised(),
      limit.gain() > 0
          ? StrFormat("would serve %.3f requests/s with the same layout (%+.1f %%), each "
                      "request more slowly",
                      limit.requests_per_second(), 100 * limit.gain())
          : std::string("would bring next to nothing"));
}

std::string EightBitText(const v1::EightBitKv& kv) {
  constexpr int kNamed = 4;
  return StrFormat(
      "room for KV limits %s: KV in 8 bits (--kv-cache-dtype int8) has room for %d tokens instead "
      "of %d and %s",
      kv.replicas_size() > kNamed ? StrCat(kv.replicas_size(), " replicas")
                                  : absl::StrJoin(kv.replicas(), ", "),
      kv.raised_kv_tokens(), kv.kv_tokens(),
      kv.gain() > 0 ? StrFormat("would serve %.3f requests/s with the same layout (%+.1f %%)",
                                kv.requests_per_second(), 100 * kv.gain())
                    : std::string("would serve no more requests with the same layout"));
}

std::string OrdersText(const v1::RentOrders& rent, const char* more) {
  std::vector<std::string> orders;
  for (const v1::RentOrder& one : rent.orders()) {
    orders.push_back(
        one.machines() == 0 ? StrCat(one.devices().devices(), " ", one.devices().kind(), " of ",
                                     one.machine(), " one by one")
        : one.offered() > 1 ? StrCat(one.machines(), " of the ", one.offered(), " ", one.machine())
                            : one.machine());
  }
  std::string line = StrCat("rent ", absl::StrJoin(orders, ", "));
  if (rent.usd_per_hour() > 0)
    absl::StrAppendFormat(&line, ": %.2f%s USD/h", rent.usd_per_hour(), more);
  if (rent.unused_devices() == 0) return line;
  return StrCat(line, "; ", rent.unused_devices(), " of the ", rent.paid_devices(),
                " devices of whole machines ", rent.unused_devices() == 1 ? "is" : "are",
                " paid for and not used");
}

std::string JudgedText(const v1::JudgedChoice& judged) {
  return StrFormat("%.3f", judged.requests_per_second()) +
         (judged.attainment() > 0
              ? StrFormat(" (%.1f %% within their limits)", 100 * judged.attainment())
              : std::string());
}

std::string SimulatedText(const v1::SimulatedChoice& choice) {
  const char* ranked = choice.predicted_best()
                           ? "the simulation ranks no other choice clearly higher"
                           : "chosen because the simulation ranks it clearly higher";
  if (!choice.has_other()) return ranked;
  if (choice.goodput()) {
    return StrFormat(
        "%s: it meets the objectives up to %.3f requests/s, the choice with the best prediction "
        "(%.3f) up to %.3f",
        ranked, choice.plan().requests_per_second(), choice.other_predicted_requests_per_second(),
        choice.other().requests_per_second());
  }
  return StrFormat(
      "%s: at %.3f requests/s for each choice, the highest rate that one of them promises, this "
      "plan serves %s, and %s %s; the prediction for that one is %.3f",
      ranked, choice.offered_requests_per_second(), JudgedText(choice.plan()),
      choice.predicted_best() ? "the next best" : "the choice with the best prediction",
      JudgedText(choice.other()), choice.other_predicted_requests_per_second());
}

std::string WaitsText(const v1::WaitsAtPromise& waits) {
  return StrFormat(
      "no objective limits waiting times: at the promised %.3f requests/s %.1f %% of the "
      "requests are predicted within their limits, with a mean TTFT of %s",
      waits.requests_per_second(), 100 * waits.attainment(),
      waits.time_to_first_token_seconds() > 0
          ? StrFormat("%.3g s", waits.time_to_first_token_seconds())
          : std::string("unbounded length"));
}

// Notes of how the plan was found.
std::string SearchNoteText(const v1::Note& note, const v1::DeploymentPlan& plan) {
  switch (note.fact_case()) {
    case v1::Note::kInterruptedSearch:
      return "warning: interrupted: the best plan found until then";
    case v1::Note::kInterruptedSimulation: return "warning: interrupted: not simulated";
    case v1::Note::kSimulationError: return StrCat("not simulated: ", note.simulation_error());
    case v1::Note::kUnsimulatedSplit:
      return "not simulated: a plan with a split may serve only half of the prediction";
    case v1::Note::kOtherSplit: return OtherSplitText(note.other_split(), MoreText(plan));
    case v1::Note::kRentalSets:
      return StrFormat("machines are rented whole: of the sets that can be rented together %d %s",
                       note.rental_sets(),
                       note.rental_sets() == 1 ? "was planned" : "were planned");
    case v1::Note::kFastest:
      return StrFormat(
          "the placement that serves most, %.3f requests/s, would serve %.3f within their limits",
          note.fastest().requests_per_second(), note.fastest().goodput_requests_per_second());
    case v1::Note::kBoundError:
      return StrFormat(
          "the bound that was found, %.9g requests/s, is below the %.9g of this placement: this is "
          "an error in Tessera; please report it with this cluster",
          note.bound_error().bound(), note.bound_error().requests_per_second());
    case v1::Note::kClassChoice:
      return StrFormat(
          "configurations were chosen for %d classes of requests, each sent where it is served "
          "best: %.3f requests/s; the shares of this plan do not depend on the class",
          note.class_choice().classes(), note.class_choice().requests_per_second());
    case v1::Note::kSearchLimit: return SearchLimitText(note.search_limit());
    case v1::Note::kSimulatedChoice: return SimulatedText(note.simulated_choice());
    case v1::Note::kEveryDeviceAlone:
      return "no plan was given: every device holds the whole model as a replica of its own";
    case v1::Note::kSurvivalSearches:
      return StrFormat(
          "made to survive: %d searches of parts of the cluster (heuristic; the bound is that of "
          "the cluster without one machine)",
          note.survival_searches());
    case v1::Note::kCareless:
      return StrFormat(
          "a plan that need not survive serves %.3f requests/s, %.3f after the loss of %s",
          note.careless().requests_per_second(), note.careless().left_requests_per_second(),
          note.careless().machine());
    case v1::Note::kSharedWith:
      return StrFormat(
          "shares the cluster with %s; with all of it to itself it would serve %.3f requests/s",
          absl::StrJoin(note.shared_with().models(), ", "),
          note.shared_with().alone_requests_per_second());
    default: return "";
  }
}

// Notes of rates and latencies.
std::string RateNoteText(const v1::Note& note, const v1::DeploymentPlan& plan) {
  switch (note.fact_case()) {
    case v1::Note::kLinksShort:
      return StrFormat(
          "links that replicas share carry %.3f of the %.3f requests/s that the devices could "
          "serve",
          note.links_short().requests_per_second(),
          note.links_short().devices_requests_per_second());
    case v1::Note::kTooFull:
      return StrFormat(
          "warning: the asked %.3f requests/s are %.0f %% of the capacity of this cheapest plan: "
          "by the formula queues grow without bound; --rate %.3f avoids that",
          note.too_full().asked_requests_per_second(), 100 * note.too_full().load(),
          note.too_full().better_requests_per_second());
    case v1::Note::kHardestLimit: return HardestText(note.hardest_limit());
    case v1::Note::kLatencyLoad:
      return StrFormat("latencies are means at %.3f requests/s, %.0f %% of the plan's capacity%s",
                       note.latency_load().requests_per_second(), 100 * note.latency_load().load(),
                       note.latency_load().below_capacity()
                           ? ", because at full load queues would grow without bound"
                           : "");
    case v1::Note::kLongWaits:
      return StrFormat("above %.0f %% of a plan's capacity waiting times grow quickly%s",
                       100 * note.long_waits().above_load(),
                       note.long_waits().without_end()
                           ? ", and here they grow without bound at some replica"
                           : "");
    case v1::Note::kAskedTooMuch:
      return StrFormat("warning: the asked %.3f requests/s exceed what this plan serves%s",
                       note.asked_too_much(),
                       plan.has_survival() ? " after the loss of a machine" : "");
    case v1::Note::kWaitsAtPromise: return WaitsText(note.waits_at_promise());
    case v1::Note::kLimitsCost: return LimitsCostText(note.limits_cost());
    case v1::Note::kSimplicityCost: return SimplicityText(note.simplicity_cost());
    case v1::Note::kSequenceLimit: return SequencesText(note.sequence_limit());
    case v1::Note::kEightBitKv: return EightBitText(note.eight_bit_kv());
    default: return "";
  }
}

std::string ShortKvText(const v1::ShortKv& short_kv, const v1::DeploymentPlan& plan) {
  const v1::PlanningTerms& planning = plan.assumptions().planning();
  const bool given = planning.search_given() && planning.search().empty();  // nothing was searched
  return StrFormat(
      "warning: %s KV for a request of %d tokens, which may come, in every replica that "
      "decodes: %s has %d; --max-model-len %d (tessera plan: --context), or more memory",
      given ? "the layout lacks" : "no plan has", short_kv.longest_request_tokens(),
      short_kv.replica(), short_kv.kv_tokens(), short_kv.kv_tokens());
}

std::string WithoutWorkerText(const v1::WithoutWorker& without) {
  if (without.left_out().empty()) {
    return StrFormat(
        "warning: no worker runs on %s (compute capability below %.1f, or no NVIDIA GPU): take "
        "this plan as an estimate",
        absl::StrJoin(without.kinds(), ", "), without.least_capability());
  }
  std::map<std::string, int> devices;
  for (const v1::KindCount& count : without.left_out()) devices[count.kind()] += count.devices();
  std::string text =
      StrCat("warning: ", CountedKinds(devices), " left out: no worker runs on such devices; ");
  const double with = without.with_requests_per_second();
  if (with > without.requests_per_second()) {
    text += StrFormat("with them %.3f requests/s instead of %.3f; ", with,
                      without.requests_per_second());
  } else if (with > 0) {
    text += "they would bring nothing; ";
  }
  return text + "--include-unsupported plans for them";
}

// Notes of devices and machines.
std::string DeviceNoteText(const v1::Note& note, const v1::DeploymentPlan& plan) {
  switch (note.fact_case()) {
    case v1::Note::kRent: return RentText(note.rent(), plan);
    case v1::Note::kRentOrders: return OrdersText(note.rent_orders(), MoreText(plan));
    case v1::Note::kIdle: return IdleText(note.idle());
    case v1::Note::kWithoutWorker: return WithoutWorkerText(note.without_worker());
    case v1::Note::kWithoutBfloat16:
      return StrCat("warning: ", absl::StrJoin(note.without_bfloat16().kinds(), ", "),
                    note.without_bfloat16().kinds_size() == 1 ? " has" : " have",
                    " no bfloat16 units: the model's bfloat16 weights are computed in float16 "
                    "there; a model with a weight beyond float16 (65504) is refused");
    case v1::Note::kShortKv: return ShortKvText(note.short_kv(), plan);
    case v1::Note::kMixedStage: return MixedStageText(note.mixed_stage());
    case v1::Note::kUnmeasuredPipelines:
      return "stages on several machines: such pipelines are predicted, not measured yet";
    case v1::Note::kLostMachine: return LostMachineText(note.lost_machine());
    case v1::Note::kUnknownWorker:
      return StrCat("worker ", note.unknown_worker().worker(), " is not in ",
                    note.unknown_worker().cluster_file(), ": it is not used");
    default: return "";
  }
}

std::vector<std::string> WayLines(const v1::DeploymentPlan& plan) {
  const v1::Move& move = plan.move();
  if (move.flip().empty() && move.rebuilt().empty()) {
    return {StrCat("moving from the running plan: re-routing only",
                   move.gone() > 0 ? StrCat(", ", move.gone(),
                                            move.gone() == 1 ? " replica goes" : " replicas go")
                                   : "",
                   ": no weights are read, nothing is lost")};
  }
  const auto named = [](const char* before, const auto& names, const char* after) {
    return names.empty() ? std::string() : StrCat("; ", before, absl::StrJoin(names, ", "), after);
  };
  return {StrCat("moving from the running plan: ", move.stay_size(), " of ", plan.replicas_size(),
                 " replicas stay", named("", move.flip(), " change their role only"),
                 named("weights are read for ", move.rebuilt(), ""),
                 StrFormat("; %.2f GiB to read", move.bytes() / kGib)),
          StrFormat("the move takes %.0f s; at its start the cluster serves %.3f of the "
                    "running plan's %.3f requests/s: about %.0f requests wait or are lost",
                    move.seconds(), move.meanwhile_requests_per_second(),
                    move.running_requests_per_second(), move.lost_requests())};
}

}  // namespace

std::string NoteText(const v1::Note& note, const v1::DeploymentPlan& plan) {
  std::string text = SearchNoteText(note, plan);
  if (text.empty()) text = RateNoteText(note, plan);
  return text.empty() ? DeviceNoteText(note, plan) : text;
}

std::string MissedLine(const v1::DeploymentPlan& plan) {
  if (plan.missed_limits().empty()) return "";
  std::vector<std::string> missed;
  for (const v1::MissedLimit& one : plan.missed_limits()) missed.push_back(MissedText(one));
  return StrCat("warning: no plan keeps ", absl::StrJoin(missed, " and "),
                ": this is the nearest that serves");
}

std::string SpotLine(const v1::SpotMix& mix) {
  std::string line =
      StrFormat("rent %d %s on demand and %d as spot, for %d that the plan needs: %.2f USD/h",
                mix.on_demand(), mix.machine(), mix.spot(), mix.target(), mix.usd_per_hour());
  if (mix.extra() < mix.asked_extra()) {
    absl::StrAppendFormat(&line, "; of %d extra (--spot-extra) %d: `available` is %d",
                          mix.asked_extra(), mix.extra(), mix.available());
  }
  if (mix.few_spot()) {
    absl::StrAppendFormat(&line, "; no more than %d are offered as spot (spot_available)",
                          mix.spot());
  }
  return line;
}

std::vector<std::string> MoveLines(const v1::DeploymentPlan& plan) {
  const v1::Move& move = plan.move();
  if (!plan.has_move() || plan.replicas().empty()) return {};
  double longest = 0, shortest = move.load_seconds();
  for (const v1::Replica& replica : plan.replicas()) {
    longest = std::max(longest, replica.load_seconds());
    shortest = std::min(shortest, replica.load_seconds());
  }
  std::vector<std::string> lines = {
      StrFormat("weights load in %.0f s, machine %s last; one replica by itself in %.0f%s s",
                std::ceil(move.load_seconds()), move.slowest_machine(), std::ceil(shortest),
                std::ceil(longest) > std::ceil(shortest) ? StrFormat(" to %.0f", std::ceil(longest))
                                                         : std::string())};
  if (!move.has_running_requests_per_second()) return lines;
  for (std::string& line : WayLines(plan)) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> NoteLines(const v1::DeploymentPlan& plan) {
  std::vector<std::string> lines;
  if (std::string missed = MissedLine(plan); !missed.empty()) lines.push_back(std::move(missed));
  for (const v1::Note& note : plan.notes()) lines.push_back(NoteText(note, plan));
  if (plan.has_certificate()) lines.push_back(BoundLine(plan));
  if (plan.has_survival()) {
    lines.push_back(
        StrFormat("survives the loss of any machine with %.3f of %.3f requests/s; worst: %s",
                  plan.survival().requests_per_second(), plan.prediction().requests_per_second(),
                  plan.survival().worst_machine()));
  }
  if (plan.has_certificate()) {
    if (std::string weak = WeakReplicasLine(plan); !weak.empty()) lines.push_back(std::move(weak));
  }
  for (const v1::SpotMix& mix : plan.spot()) lines.push_back(SpotLine(mix));
  for (std::string& line : MoveLines(plan)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace tessera::scheduler
