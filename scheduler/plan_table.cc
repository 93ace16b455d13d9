#include "absl/strings/str_format.h"
#include "scheduler/plan_text.h"
#include "scheduler/planner.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

void AppendReplica(const v1::Replica& replica, std::string* out) {
  const v1::Prediction& p = replica.prediction();
  absl::StrAppendFormat(out, "\n%s: %s; up to %.3f requests/s", replica.name(),
                        RoleText(replica.role()), p.requests_per_second());
  if (p.output_tokens_per_second() > 0)
    absl::StrAppendFormat(out, ", %.0f tokens/s", p.output_tokens_per_second());
  if (p.time_to_first_token_seconds() > 0)
    absl::StrAppendFormat(out, ", TTFT %.2f s", p.time_to_first_token_seconds());
  if (p.time_per_output_token_seconds() > 0) {
    absl::StrAppendFormat(out, ", TPOT %.1f ms", p.time_per_output_token_seconds() * 1e3);
  }
  if (p.usd_per_million_output_tokens() > 0) {
    absl::StrAppendFormat(out, ", %.2f USD per million tokens", p.usd_per_million_output_tokens());
  }
  absl::StrAppendFormat(out, ", KV for %d tokens\n", p.kv_capacity_tokens());
  absl::StrAppendFormat(out, "  %-5s  %-24s  %5s  %-9s  %7s  %7s  %7s  %s\n", "stage", "devices",
                        "width", "layers", "weights", "KV", "buffers",
                        "used of available, GiB per device");
  for (int j = 0; j < replica.stages_size(); ++j) {
    const v1::Stage& stage = replica.stages(j);
    const v1::PlannedWorker& w = stage.workers(0);
    const double used =
        static_cast<double>(w.weight_bytes() + w.kv_bytes() + w.activation_bytes()) / kGib;
    absl::StrAppendFormat(out, "  %-5d  %-24s  %5d  %-9s  %7.2f  %7.2f  %7.2f  %.2f of %.2f\n", j,
                          StageDevicesText(stage), stage.workers_size(),
                          StrCat(w.share().layers().begin(), "-", w.share().layers().end() - 1),
                          static_cast<double>(w.weight_bytes()) / kGib,
                          static_cast<double>(w.kv_bytes()) / kGib,
                          static_cast<double>(w.activation_bytes()) / kGib, used,
                          static_cast<double>(w.available_bytes()) / kGib);
  }
}

}  // namespace

std::string PlanTable(const v1::DeploymentPlan& plan) {
  const v1::Prediction& p = plan.prediction();
  std::string out = absl::StrFormat(
      "%s on %d replica%s: up to %.3f requests/s, %.0f output tokens/s", plan.model().name(),
      plan.replicas_size(), plan.replicas_size() == 1 ? "" : "s", p.requests_per_second(),
      p.output_tokens_per_second());
  if (p.time_to_first_token_seconds() > 0) {
    absl::StrAppendFormat(&out, ", mean TTFT %.2f s", p.time_to_first_token_seconds());
  }
  absl::StrAppendFormat(&out, ", mean TPOT %.1f ms", p.time_per_output_token_seconds() * 1e3);
  if (p.usd_per_million_output_tokens() > 0) {
    absl::StrAppendFormat(&out, ", %.2f USD per million output tokens",
                          p.usd_per_million_output_tokens());
  }
  out += "\n";
  for (const v1::Replica& replica : plan.replicas()) AppendReplica(replica, &out);
  out += "\nrouting:\n";
  for (const v1::RoutingShare& share : plan.routing()) {
    const bool one = share.prefill_replica() == share.decode_replica();
    absl::StrAppendFormat(&out, "  %5.1f %%  %s%s\n", 100 * share.share(), share.prefill_replica(),
                          one ? "" : StrCat(" -> ", share.decode_replica()));
  }
  out += "\nbottleneck: " + plan.certificate().bottleneck() + "\n\nwhy:\n";
  for (const std::string& line : plan.explanation()) out += StrCat("  ", line, "\n");
  out += "\nassumptions:\n";
  for (const std::string& line : plan.assumptions()) out += StrCat("  ", line, "\n");
  return out;
}

}  // namespace tessera::scheduler
