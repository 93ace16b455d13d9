#include "scheduler/planner/report/plan_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/layers/layers.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/report/pace_text.h"
#include "scheduler/planner/report/plan_attainment.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMaxNames = 6;  // of what has a line in common

std::string NamesText(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i)
    text += StrCat(i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMaxNames) text += StrCat(" and ", names.size() - kMaxNames, " more");
  return text;
}

// Lines that read alike but for a name are one with all names, at the first one's place.
class NamedLines {
 public:
  void Add(const std::string& name, const std::string& text) {
    const auto [at, added] = index_.emplace(text, lines_.size());
    if (added) lines_.emplace_back();
    Line& line = lines_[at->second];
    line.text = text;
    line.names.push_back(name);
  }

  struct Line {
    std::string text;
    std::vector<std::string> names;
  };
  const std::vector<Line>& lines() const { return lines_; }

 private:
  std::map<std::string, size_t> index_;
  std::vector<Line> lines_;
};

// A row for all devices of a stage, or for each of one whose devices hold unlike parts.
std::vector<v1::Stage> RowsOf(const v1::Stage& stage) {
  if (!IsMixed(stage)) return {stage};
  std::vector<v1::Stage> rows;
  for (const v1::PlannedWorker& worker : stage.workers())
    *rows.emplace_back().add_workers() = worker;
  return rows;
}

void AppendStage(const v1::Stage& row, int stage, int stage_width, size_t width, std::string* out) {
  const v1::PlannedWorker& w = row.workers(0);
  const double used =
      static_cast<double>(w.weight_bytes() + w.kv_bytes() + w.activation_bytes()) / kGib;
  absl::StrAppendFormat(out, "  %-5d  %-*s  %3d  %-9s  %7.2f  %7.2f  %7.2f  %.2f of %.2f\n", stage,
                        width, StageDevicesText(row), stage_width,
                        StrCat(w.share().layers().begin(), "-", w.share().layers().end() - 1),
                        static_cast<double>(w.weight_bytes()) / kGib,
                        static_cast<double>(w.kv_bytes()) / kGib,
                        static_cast<double>(w.activation_bytes()) / kGib,
                        std::max(0.0, static_cast<double>(w.available_bytes()) / kGib - used),
                        static_cast<double>(w.available_bytes()) / kGib);
}

// Where layers keep a state of each sequence: how many of the longest fit, and what limits them.
std::string LongestText(const v1::Model& model, const v1::Replica& replica) {
  const int64_t longest = model.max_positions(), seats = replica.max_sequences();
  if (!KeepsStates(model) || longest <= 0 || seats <= 0) return "";
  const int64_t by_kv = replica.prediction().kv_capacity_tokens() / longest;
  const bool kv_limits = by_kv < seats;
  return absl::StrFormat("  %d sequences of %d tokens fit at once: room for %s limits them\n",
                         std::min(by_kv, seats), longest, kv_limits ? "KV" : "their states");
}

// Behind its name. routed: requests are sent to it, and their latencies were predicted.
void AppendReplica(const v1::Model& model, const v1::Replica& replica, bool routed,
                   std::string* out) {
  const v1::Prediction& p = replica.prediction();
  absl::StrAppendFormat(out, ": %s; up to %.3f requests/s", RoleText(replica.role()),
                        p.requests_per_second());
  if (p.output_tokens_per_second() > 0)
    absl::StrAppendFormat(out, ", %.0f output tokens/s", p.output_tokens_per_second());
  if (p.time_to_first_token_seconds() > 0) {
    absl::StrAppendFormat(out, ", TTFT %.3g s", p.time_to_first_token_seconds());
  } else if (routed && replica.role() != v1::REPLICA_ROLE_DECODE) {
    *out += ", TTFT unknown (by the formula requests wait without end)";
  }
  if (p.time_per_output_token_seconds() > 0) {
    absl::StrAppendFormat(out, ", TPOT %.1f ms", p.time_per_output_token_seconds() * 1e3);
  }
  if (p.usd_per_million_output_tokens() > 0) {
    absl::StrAppendFormat(out, ", %s USD per million output tokens when fully used",
                          UsdText(p.usd_per_million_output_tokens()));
  }
  absl::StrAppendFormat(out, "\n  room for the KV of %d tokens", p.kv_capacity_tokens());
  if (replica.max_batched_tokens() > 0)
    absl::StrAppendFormat(out, ", steps of up to %d tokens", replica.max_batched_tokens());
  if (replica.max_sequences() > 0)
    absl::StrAppendFormat(out, ", up to %d sequences at once (those in prefill included)",
                          replica.max_sequences());
  *out += "\n" + LongestText(model, replica);
  size_t width = 24;
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::Stage& row : RowsOf(stage))
      width = std::max(width, StageDevicesText(row).size());
  }
  absl::StrAppendFormat(out, "  %-5s  %-*s  %3s  %-9s  %7s  %7s  %7s  %s\n", "stage", width,
                        "devices", "TP", "layers", "weights", "KV", "buffers",
                        "free of usable; all in GiB per device");
  for (int j = 0; j < replica.stages_size(); ++j) {
    const v1::Stage& stage = replica.stages(j);
    for (const v1::Stage& row : RowsOf(stage))
      AppendStage(row, j, stage.workers_size(), width, out);
  }
}

// The devices of those that are shown as another one, a line each while `lines` are left.
void AppendAlike(const std::vector<std::string>& names,
                 const std::map<std::string, const v1::Replica*>& replicas, size_t* lines,
                 std::string* out) {
  const size_t shown = std::min({names.size(), kMaxNames, *lines + 1});
  for (size_t i = 1; i < shown; ++i)
    *out += StrCat("  ", names[i], ": ", ReplicaDevicesText(*replicas.at(names[i])), "\n");
  *lines -= shown - 1;
  if (shown < names.size())
    *out += StrCat("  plan.json has the devices of ", names.size() - shown, " more\n");
}

// Replicas that differ in nothing but which devices they have are shown as the first of them.
void AppendReplicas(const v1::DeploymentPlan& plan, std::string* out) {
  size_t lines_of_alike = 40;  // of clusters of thousands nobody reads more
  std::set<std::string> routed;
  if (plan.prediction().time_per_output_token_seconds() > 0) {
    for (const v1::RoutingShare& share : plan.routing()) routed.insert(share.prefill_replica());
  }
  NamedLines alike;
  std::map<std::string, const v1::Replica*> replicas;
  for (const v1::Replica& replica : plan.replicas()) {
    replicas[replica.name()] = &replica;
    v1::Replica nameless = replica;
    for (v1::Stage& stage : *nameless.mutable_stages()) {
      for (v1::PlannedWorker& worker : *stage.mutable_workers()) worker.clear_device();
    }
    std::string text;
    AppendReplica(plan.model(), nameless, routed.contains(replica.name()), &text);
    alike.Add(replica.name(), text);
  }
  for (const NamedLines::Line& line : alike.lines()) {
    *out += StrCat("\n", NamesText(line.names));
    if (line.names.size() > 1)
      *out +=
          StrCat(" (", line.names.size(), " alike, shown with the devices of ", line.names[0], ")");
    AppendReplica(plan.model(), *replicas[line.names[0]], routed.contains(line.names[0]), out);
    AppendAlike(line.names, replicas, &lines_of_alike, out);
  }
}

void AppendRouting(const v1::DeploymentPlan& plan, std::string* out) {
  NamedLines lines;
  for (const v1::RoutingShare& share : plan.routing()) {
    const bool one = share.prefill_replica() == share.decode_replica();
    const bool packed = !share.kv_codec().empty() && share.kv_codec() != "raw";
    lines.Add(one ? share.prefill_replica()
                  : StrCat(share.prefill_replica(), " -> ", share.decode_replica(),
                           packed ? StrCat(" (KV sent as ", share.kv_codec(), ")") : ""),
              absl::StrFormat("  %5.1f %%  ", 100 * share.share()));
  }
  *out += "\nrouting:\n";
  for (const NamedLines::Line& line : lines.lines())
    *out += StrCat(line.text, line.names.size() > 1 ? "each of " : "", NamesText(line.names), "\n");
}

// Like replicas have like bottlenecks; plan.json has them all.
void AppendPace(const v1::DeploymentPlan& plan, std::string* out) {
  constexpr size_t kShown = 12;
  NamedLines reasons;
  for (const v1::Pace& pace : plan.certificate().pace())
    reasons.Add(pace.replica(), StrCat(": ", PaceText(pace)));
  *out += "\nwhat sets the pace:\n";
  std::vector<std::string> others;
  for (size_t i = 0; i < reasons.lines().size(); ++i) {
    const NamedLines::Line& line = reasons.lines()[i];
    if (i < kShown) {
      *out += StrCat("  ", NamesText(line.names), line.text, "\n");
    } else {
      others.insert(others.end(), line.names.begin(), line.names.end());
    }
  }
  if (!others.empty()) *out += StrCat("  ", NamesText(others), ": see plan.json\n");
}

// The busiest few; plan.json has them all.
void AppendLinks(const v1::DeploymentPlan& plan, std::string* out) {
  constexpr size_t kShown = 8;
  std::vector<const v1::LinkLoad*> links;
  for (const v1::LinkLoad& link : plan.links()) links.push_back(&link);
  if (links.empty()) return;
  const auto load = [](const v1::LinkLoad* link) {
    return link->bytes_per_second() / link->capacity_bytes_per_second();
  };
  std::stable_sort(links.begin(), links.end(),
                   [&](const v1::LinkLoad* a, const v1::LinkLoad* b) { return load(a) > load(b); });
  *out += StrCat("\n", links.size() > kShown ? "the busiest links" : "links",
                 ", at the most that the plan serves:\n");
  for (size_t i = 0; i < std::min(kShown, links.size()); ++i) {
    absl::StrAppendFormat(out, "  %5.1f %%  %s: %.3f of %s\n", 100 * load(links[i]),
                          links[i]->to().empty() ? StrCat("uplink of ", links[i]->from())
                                                 : StrCat(links[i]->from(), " -> ", links[i]->to()),
                          links[i]->bytes_per_second() * 8e-9,
                          GbitText(links[i]->capacity_bytes_per_second()));
  }
}

// What another draw of requests may come to.
bool IsLuck(double simulated, double predicted, double standard_error) {
  return std::abs(simulated - predicted) <= 2 * standard_error;
}

// The mark of a figure that is far from what was predicted.
std::string TimesText(double simulated, double predicted, double error = 0) {
  constexpr double kFar = 1.25;
  const double times = predicted > 0 ? simulated / predicted : 1;
  if ((times < kFar && times > 1 / kFar) || IsLuck(simulated, predicted, error)) return "";
  return absl::StrFormat(" (%.2g times the predicted)", times);
}

// By more than a reader would expect of two figures of one thing.
bool Disagree(double simulated, double predicted, double error = 0) {
  constexpr double kMuch = 4.0 / 3;
  return predicted > 0 && simulated > 0 && !IsLuck(simulated, predicted, error) &&
         std::max(simulated / predicted, predicted / simulated) > kMuch;
}

// Part of all requests that must be within their limits; 0: none has limits.
double AskedAttainment(const v1::DeploymentPlan& plan) {
  double asked = 0;
  for (const v1::ClassPrediction& one : plan.prediction().classes())
    asked += one.share() * one.objectives().attainment();
  return asked;
}

// "90 % are asked", with each class's part where they differ.
std::string AskedText(const v1::DeploymentPlan& plan) {
  const auto& classes = plan.prediction().classes();
  std::string text = absl::StrFormat("%.3g %% are asked", 100 * AskedAttainment(plan));
  const bool alike = std::all_of(classes.begin(), classes.end(), [&](const auto& one) {
    return one.objectives().attainment() == classes[0].objectives().attainment();
  });
  if (alike) return text;
  std::string parts;
  for (const v1::ClassPrediction& one : classes) {
    absl::StrAppendFormat(&parts, "%s%.3g %% of %s", parts.empty() ? "" : ", ",
                          100 * one.objectives().attainment(), one.name());
  }
  return StrCat(text, " (", parts, ")");
}

// What a request takes on average.
double StaySeconds(const v1::DeploymentPlan& plan) {
  return plan.prediction().time_to_first_token_seconds() +
         plan.prediction().time_per_output_token_seconds() * plan.basis().output_tokens();
}

// Up to which rate enough are in time, where that was promised.
void AppendAttained(const v1::DeploymentPlan& plan, std::string* out) {
  if (!plan.simulated().has_attained_requests_per_second()) return;
  if (plan.simulated().attained_seeds() > 0 && !SimulatedToAttainLess(plan)) return;
  const double attained = plan.simulated().attained_requests_per_second();
  if (!SimulatedToAttainLess(plan)) {
    absl::StrAppendFormat(out,
                          "  in longer simulations enough requests are within their limits up to "
                          "%.3f requests/s (cost model: %.3f)\n",
                          attained, plan.prediction().requests_per_second());
    return;
  }
  if (plan.simulated().attained_seeds() > 0 && !plan.basis().goodput()) {
    absl::StrAppendFormat(out,
                          "  the cost model predicts %.3f requests/s, simulations of longer runs "
                          "serve %.3f: rely on these\n",
                          plan.prediction().requests_per_second(), attained);
    return;
  }
  absl::StrAppendFormat(
      out,
      "warning: the cost model predicts that enough requests are within their limits up to %.3f "
      "requests/s, the simulation shows it up to %s: rely on the simulation\n",
      plan.prediction().requests_per_second(),
      attained > 0 ? absl::StrFormat("%.3f", attained) : "none of the tried rates");
}

// The second opinion, beside the predicted figures.
void AppendSimulated(const v1::DeploymentPlan& plan, std::string* out) {
  if (!plan.has_simulated()) return;
  constexpr double kNotLuck = 0.02;
  constexpr double kManyStays = 10;  // of a request, in which replicas fill
  const v1::SimulatedFigures& s = plan.simulated();
  const double predicted = plan.prediction().requests_per_second();
  absl::StrAppendFormat(out,
                        "simulated (%d requests, seed %d; an estimate without a bound): %.3f "
                        "requests/s when %.3f arrive, %.0f %% of the prediction\n",
                        s.requests(), s.seed(), s.requests_per_second(),
                        s.offered_requests_per_second(),
                        predicted > 0 ? 100 * s.requests_per_second() / predicted : 0.0);
  absl::StrAppendFormat(out, "  at %.3f requests/s: ", s.latency_requests_per_second());
  if (s.time_to_first_token_mean_seconds() > 0) {
    const double error = s.time_to_first_token_error_seconds();
    absl::StrAppendFormat(out, "TTFT mean %.3g s%s%s, p50 %.3g s, p99 %.3g s",
                          s.time_to_first_token_mean_seconds(),
                          error > 0 ? absl::StrFormat(" +- %.2g s", error) : "",
                          TimesText(s.time_to_first_token_mean_seconds(),
                                    plan.prediction().time_to_first_token_seconds(), error),
                          s.time_to_first_token_p50_seconds(), s.time_to_first_token_p99_seconds());
  } else {
    *out += "no request was answered";
  }
  if (s.time_per_output_token_mean_seconds() > 0) {
    absl::StrAppendFormat(out, "; TPOT mean %.1f ms%s, p50 %.1f ms, p99 %.1f ms",
                          1e3 * s.time_per_output_token_mean_seconds(),
                          TimesText(s.time_per_output_token_mean_seconds(),
                                    plan.prediction().time_per_output_token_seconds()),
                          1e3 * s.time_per_output_token_p50_seconds(),
                          1e3 * s.time_per_output_token_p99_seconds());
  }
  if (s.attainment() > 0)
    absl::StrAppendFormat(out, "; %.2f %% within the objectives", 100 * s.attainment());
  *out += "\n";
  AppendAttained(plan, out);
  const double asked = AskedAttainment(plan);
  if (!s.has_attained_requests_per_second() && s.attainment() > 0 &&
      s.attainment() < asked - kNotLuck) {
    absl::StrAppendFormat(out,
                          "warning: in the simulation %.1f %% of the requests are within their "
                          "limits, where %s: below %.3f requests/s more are\n",
                          100 * s.attainment(), AskedText(plan), s.latency_requests_per_second());
  }
  const double stays = StaySeconds(plan);
  const double lasts = static_cast<double>(s.requests()) / s.offered_requests_per_second();
  if (stays > 0 && lasts < kManyStays * stays) {
    absl::StrAppendFormat(
        out,
        "  these requests arrive within %.0f s, and one takes %.0f s: too few to fill the "
        "replicas, which can serve more; tessera simulate --requests simulates more requests\n",
        lasts, stays);
  } else if (Disagree(s.time_to_first_token_mean_seconds(),
                      plan.prediction().time_to_first_token_seconds(),
                      s.time_to_first_token_error_seconds()) ||
             Disagree(s.time_per_output_token_mean_seconds(),
                      plan.prediction().time_per_output_token_seconds())) {
    *out +=
        "  trust the simulation where times differ by more than a third: it sends request by "
        "request through the daemon's router and batcher; the prediction is a formula\n";
  }
}

// Latencies are of less than the most, at which queues have no end.
void AppendLatencies(const v1::DeploymentPlan& plan, std::string* out) {
  const v1::Prediction& p = plan.prediction();
  *out +=
      plan.basis().requests_per_second() > 0
          ? absl::StrFormat("\npredicted at %.3f requests/s: ", plan.basis().requests_per_second())
          : std::string("\npredicted: ");
  *out += p.time_to_first_token_seconds() > 0
              ? absl::StrFormat("mean TTFT %.3g s", p.time_to_first_token_seconds())
              : std::string("TTFT unknown (by the formula some requests wait without end)");
  if (p.time_per_output_token_seconds() > 0)
    absl::StrAppendFormat(out, ", mean TPOT %.1f ms", p.time_per_output_token_seconds() * 1e3);
}

// The promise, and what is left of it where less than all of it is to be counted on.
std::string HeadText(const v1::DeploymentPlan& plan) {
  if (plan.simulated().attained_seeds() > 0) {
    return absl::StrFormat(
        "%s on %d replica%s: %s, %.0f output tokens/s", plan.model().name(), plan.replicas_size(),
        plan.replicas_size() == 1 ? "" : "s", HeadlineRate(plan),
        plan.simulated().attained_requests_per_second() * plan.basis().output_tokens());
  }
  const std::string less = CountedOnText(plan);
  return absl::StrFormat(
      "%s on %d replica%s: up to %.3f requests/s%s, %.0f output tokens/s", plan.model().name(),
      plan.replicas_size(), plan.replicas_size() == 1 ? "" : "s",
      plan.prediction().requests_per_second(), less.empty() ? "" : StrCat(" (", less, ")"),
      plan.prediction().output_tokens_per_second());
}

}  // namespace

std::string PlanTable(const v1::DeploymentPlan& plan) {
  const v1::Prediction& p = plan.prediction();
  const std::string missed = MissedLine(plan);
  std::string out = missed.empty() ? HeadText(plan) : StrCat(missed, "\n", HeadText(plan));
  if (p.usd_per_million_output_tokens() > 0) {
    absl::StrAppendFormat(&out, ", %s USD per million output tokens when fully used%s",
                          UsdText(p.usd_per_million_output_tokens()),
                          PricesEstimated(plan) ? " (at ESTIMATED prices)" : "");
  }
  if (const std::string estimates = EstimatesText(plan); !estimates.empty())
    out += StrCat("\n", estimates, "; see assumptions");
  if (const std::string cut = CutText(plan); !cut.empty()) out += StrCat("\n", cut);
  const std::vector<std::string> notes = NoteLines(plan);
  for (const std::string& line : notes) {
    if (IsWarning(line) && line != missed) out += StrCat("\n", line);
  }
  if (p.time_per_output_token_seconds() > 0 || p.time_to_first_token_seconds() > 0)
    AppendLatencies(plan, &out);
  out += "\n";
  out += AttainmentTable(plan);
  AppendSimulated(plan, &out);
  if (plan.has_basis()) {
    absl::StrAppendFormat(&out,
                          "usable memory: %.0f %% of a device's memory, less %.2f GiB for the "
                          "runtime; KV may fill it after weights and buffers\n",
                          100 * plan.basis().memory_utilisation(),
                          plan.basis().runtime_reserve_bytes() / kGib);
  }
  out +=
      "TTFT: time to the first token, waiting included; TPOT: time per token after it; KV: keys "
      "and values of the requests in progress; TP: devices that share every layer of a stage; "
      "stage: holds some of the layers and passes each step on to the next stage; step: computes "
      "one token of every decoding request and a part of new prompts\n";
  AppendReplicas(plan, &out);
  AppendRouting(plan, &out);
  AppendPace(plan, &out);
  AppendLinks(plan, &out);
  AppendLines("why", notes, &out);
  AppendOutlook(plan, &out);
  AppendLines("assumptions", AssumptionLines(plan.assumptions()), &out);
  const std::vector<std::string> choices = PreferenceRows(plan);
  if (!choices.empty()) out += "\n";
  for (const std::string& row : choices) out += StrCat(row, "\n");
  return out;
}

}  // namespace tessera::scheduler
