#include "scheduler/planner/report/plan_diff.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "proto/layers/layers.h"
#include "scheduler/plan_check/parts.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/note_text.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

v1::Range Common(const v1::Range& a, const v1::Range& b) {
  v1::Range common;
  common.set_begin(std::max(a.begin(), b.begin()));
  common.set_end(std::max(common.begin(), std::min(a.end(), b.end())));
  return common;
}

v1::LayerShare Common(const v1::LayerShare& a, const v1::LayerShare& b) {
  v1::LayerShare common;
  *common.mutable_query_heads() = Common(a.query_heads(), b.query_heads());
  *common.mutable_kv_heads() = Common(a.kv_heads(), b.kv_heads());
  *common.mutable_ffn_columns() = Common(a.ffn_columns(), b.ffn_columns());
  *common.mutable_experts() = Common(a.experts(), b.experts());
  return common;
}

// What two shares have in common, again a share; its weights are computed like any other's.
v1::WorkerShare Common(const v1::WorkerShare& a, const v1::WorkerShare& b) {
  v1::WorkerShare common;
  *common.mutable_layers() = Common(a.layers(), b.layers());
  for (int i = 0; i < std::min(a.kinds_size(), b.kinds_size()); ++i) {
    *common.add_kinds() = Common(a.kinds(i), b.kinds(i));
  }
  *common.mutable_vocabulary_rows() = Common(a.vocabulary_rows(), b.vocabulary_rows());
  common.set_holds_embedding(a.holds_embedding() && b.holds_embedding());
  common.set_holds_head(a.holds_head() && b.holds_head());
  return common;
}

std::map<std::string, const v1::PlannedWorker*> WorkersOf(const v1::DeploymentPlan& plan) {
  std::map<std::string, const v1::PlannedWorker*> workers;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) workers[worker.device()] = &worker;
    }
  }
  return workers;
}

// Replicas are the same whatever their name, if they stand on the same devices in the same way.
std::string Describe(const v1::Replica& replica) {
  std::string text = RoleText(replica.role()) + ":";
  for (const v1::Stage& stage : replica.stages()) {
    const v1::Range& layers = stage.workers(0).share().layers();
    text += StrCat(text.back() == ':' ? " " : " | ", StageDevicesText(stage), " layers ",
                   layers.begin(), "-", layers.end() - 1);
  }
  return text;
}

void AppendFigure(const char* name, const char* format, double from, double to, double factor,
                  std::string* out) {
  if (from == 0 && to == 0) return;
  const auto show = [&](double value) {
    const auto parsed = absl::ParsedFormat<'f'>::New(format);
    return value == 0 ? std::string("-") : absl::StrFormat(*parsed, value * factor);
  };
  absl::StrAppendFormat(out, "  %-28s %14s %14s", name, show(from), show(to));
  if (from > 0 && to > 0) absl::StrAppendFormat(out, "  %10s", ChangeText(to / from));
  *out += "\n";
}

void AppendFigures(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to, std::string* out) {
  const v1::Prediction &a = from.prediction(), &b = to.prediction();
  AppendFigure("requests/s, at most", "%.3f", a.requests_per_second(), b.requests_per_second(), 1,
               out);
  AppendFigure("  attained in simulation", "%.3f", from.simulated().attained_requests_per_second(),
               to.simulated().attained_requests_per_second(), 1, out);
  AppendFigure("  after a machine's loss", "%.3f", from.survival().requests_per_second(),
               to.survival().requests_per_second(), 1, out);
  AppendFigure("output tokens/s, at most", "%.0f", a.output_tokens_per_second(),
               b.output_tokens_per_second(), 1, out);
  AppendFigure("latencies at requests/s", "%.3f", from.basis().requests_per_second(),
               to.basis().requests_per_second(), 1, out);
  AppendFigure("mean TTFT, ms", "%.1f", a.time_to_first_token_seconds(),
               b.time_to_first_token_seconds(), 1e3, out);
  AppendFigure("mean TPOT, ms", "%.1f", a.time_per_output_token_seconds(),
               b.time_per_output_token_seconds(), 1e3, out);
  AppendFigure("USD per million tokens", "%.2f", a.usd_per_million_output_tokens(),
               b.usd_per_million_output_tokens(), 1, out);
  AppendFigure("replicas", "%.0f", from.replicas_size(), to.replicas_size(), 1, out);
  AppendFigure("devices in use", "%.0f", static_cast<double>(WorkersOf(from).size()),
               static_cast<double>(WorkersOf(to).size()), 1, out);
}

// Returns how many replicas stay.
void AppendReplicas(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to,
                    std::string* out) {
  std::multiset<std::string> before;
  for (const v1::Replica& replica : from.replicas()) before.insert(Describe(replica));
  std::vector<std::string> added;
  int kept = 0;
  for (const v1::Replica& replica : to.replicas()) {
    const auto found = before.find(Describe(replica));
    if (found == before.end()) {
      added.push_back(Describe(replica));
    } else {
      before.erase(found);
      ++kept;
    }
  }
  *out += StrCat("\nreplicas: ", kept, " stay, ", before.size(), " go, ", added.size(), " come\n");
  for (const std::string& gone : before) *out += StrCat("  - ", gone, "\n");
  for (const std::string& come : added) *out += StrCat("  + ", come, "\n");
}

void AppendLoading(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to, std::string* out) {
  const std::map<std::string, double> bytes = BytesToLoad(from, to);
  if (bytes.empty()) {
    *out += "weights to load: none\n";
    return;
  }
  double sum = 0;
  const std::pair<const std::string, double>* most = &*bytes.begin();
  for (const auto& entry : bytes) {
    sum += entry.second;
    if (entry.second > most->second) most = &entry;
  }
  absl::StrAppendFormat(
      out, "weights to load: %.2f GiB on %d device%s, most of them on %s (%.2f GiB)\n", sum / kGib,
      bytes.size(), bytes.size() == 1 ? "" : "s", most->first, most->second / kGib);
}

void AppendLines(const char* heading, const auto& from, const auto& to, std::string* out) {
  const std::set<std::string> before(from.begin(), from.end()), after(to.begin(), to.end());
  if (before == after) return;
  *out += StrCat("\n", heading, "\n");
  for (const std::string& line : from) {
    if (!after.contains(line)) *out += StrCat("  - ", line, "\n");
  }
  for (const std::string& line : to) {
    if (!before.contains(line)) *out += StrCat("  + ", line, "\n");
  }
}

}  // namespace

std::map<std::string, double> BytesToLoad(const v1::DeploymentPlan& from,
                                          const v1::DeploymentPlan& to) {
  const bool same_model = from.model().name() == to.model().name() &&
                          SameLayers(from.model(), to.model()) &&
                          from.weight_dtype() == to.weight_dtype();
  const auto before = WorkersOf(from);
  std::map<std::string, double> bytes;
  for (const auto& [device, worker] : WorkersOf(to)) {
    double wanted = HeldBy(to, worker->share()).weight_bytes;
    const auto had = before.find(device);
    if (same_model && had != before.end())
      wanted -= HeldBy(to, Common(had->second->share(), worker->share())).weight_bytes;
    if (wanted > 0) bytes[device] = wanted;
  }
  return bytes;
}

std::string PlanDiff(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to,
                     const std::string& from_name, const std::string& to_name) {
  std::string out;
  if (from.model().name() != to.model().name()) {
    out = StrCat("warning: the models differ: ", from.model().name(), " in ", from_name, ", ",
                 to.model().name(), " in ", to_name, "\n");
  }
  absl::StrAppendFormat(&out, "  %-28s %14s %14s  %10s\n", "", from_name, to_name, "change");
  AppendFigures(from, to, &out);
  AppendReplicas(from, to, &out);
  AppendLoading(from, to, &out);
  AppendLines("explanation:", NoteLines(from), NoteLines(to), &out);
  AppendLines("assumptions:", AssumptionLines(from.assumptions()),
              AssumptionLines(to.assumptions()), &out);
  if (const std::string estimates = EstimatesText(to); !estimates.empty())
    out += StrCat("\n", estimates, "\n");
  return out;
}

}  // namespace tessera::scheduler
