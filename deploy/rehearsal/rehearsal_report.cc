#include "deploy/rehearsal/rehearsal_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/file_text.h"

namespace tessera::deploy {
namespace {

constexpr int64_t kMaxFiguresBytes = 1 << 20;

using Counts = std::map<double, int64_t>;  // steps by the upper bound of their bucket

void Add(const nlohmann::json& listed, Counts* counts) {
  for (const auto& [bound, steps] : listed.get<std::vector<std::pair<double, int64_t>>>())
    (*counts)[bound] += steps;
}

double QuantileOf(const Counts& counts, double share) {
  int64_t all = 0, seen = 0;
  for (const auto& [bound, steps] : counts) all += steps;
  for (const auto& [bound, steps] : counts) {
    seen += steps;
    if (static_cast<double>(seen) >= share * static_cast<double>(all)) return bound;
  }
  return 0;
}

std::string Row(const char* name, double promised, double rehearsed, const char* format) {
  const auto number = [&](double value) {
    char text[32];
    snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  const std::string differs =
      promised > 0 ? absl::StrFormat("%+.1f %%", 100 * (rehearsed / promised - 1)) : "-";
  return absl::StrFormat("  %-18s %12s %12s %10s\n", name, number(promised), number(rehearsed),
                         differs);
}

std::string LatenessText(const RehearsalFacts& facts) {
  const LatenessFigures& late = facts.lateness;
  std::string text = absl::StrFormat(
      "emulated steps: %d, which ended %.2g ms late (p50; p99 %.2g ms), %.1f %% of their time "
      "(p99 %.1f %%)\n",
      late.steps, 1e3 * late.p50, 1e3 * late.p99, 100 * late.share_p50, 100 * late.share_p99);
  if (late.kept()) return text;
  return text + absl::StrFormat(
                    "NOT VALID: this machine cannot keep up with the plan at --speed %.3g: p99 is "
                    "above %.0f %%; try --speed %.3g\n",
                    facts.speed, 100 * kMaxLateShare, ProposedSpeed(facts.speed, late.share_p99));
}

std::string CostText(const RehearsalFacts& facts) {
  const double tokens = std::max<double>(1, static_cast<double>(facts.tokens));
  return absl::StrFormat(
      "control plane: %.1f us of the coordinator's CPU a token, %.1f us of all workers' (%d "
      "processes, %d devices); at most %d streams at once\n",
      1e6 * facts.cpu.coordinator / tokens, 1e6 * facts.cpu.workers / tokens, facts.machines,
      facts.devices, facts.most_streams);
}

std::string FormingText(const RehearsalFacts& facts) {
  std::string text = absl::StrFormat(
      "time to form: coordinator listens %.2f s, workers registered %.2f s, replicas ready %.2f s",
      facts.forming.coordinator, facts.forming.workers, facts.forming.replicas);
  if (facts.load_seconds > 0)
    absl::StrAppendFormat(&text,
                          "; reading weights, which is predicted to take %.0f s, is not in it",
                          facts.load_seconds);
  return text + "\n";
}

std::string RecoveryText(const Recovery& recovery) {
  std::string text =
      absl::StrFormat("machine %s was killed at %.1f s: ", recovery.machine, recovery.at_seconds);
  if (recovery.ready_seconds.has_value()) {
    absl::StrAppendFormat(&text, "started again, all replicas were ready %.2f s later; ",
                          *recovery.ready_seconds);
  } else {
    text += "not all replicas were ready again when it was given up; ";
  }
  return text +
         absl::StrFormat("longest pause of a stream from then on %.2f s, %d requests failed\n",
                         recovery.longest_pause_seconds, recovery.failed_requests);
}

std::string LimitsText(const RehearsalFacts& facts) {
  std::string text =
      "\nPromised is a simulation of the same requests. Both take what steps cost from the same "
      "model:\nagreement proves router, queues, batching, links and hand-over as they really run, "
      "not how fast\ndevices are. Not rehearsed: reading weights, memory of devices, networks "
      "between machines (loopback).\n";
  if (!facts.knows_links)
    text +=
        "Links are as far as the plan tells; --cluster FILE gives the description that it was made "
        "for.\n";
  if (facts.hands_over)
    text +=
        "Of KV that is handed over, tickets, blocks and codecs are real; 2 numbers a head and "
        "token "
        "travel,\nand the sender waits for as long as all of it takes on the planned link.\n";
  return text;
}

nlohmann::json ToJson(const ServedFigures& figures) {
  return {{"finished", figures.finished},
          {"requests_per_second", figures.requests_per_second},
          {"tokens_per_second", figures.tokens_per_second},
          {"ttft_p50_seconds", figures.ttft.p50},
          {"ttft_p95_seconds", figures.ttft.p95},
          {"tpot_p50_seconds", figures.tpot.p50},
          {"tpot_p95_seconds", figures.tpot.p95}};
}

}  // namespace

bool LatenessFigures::kept() const { return share_p99 <= kMaxLateShare; }

ServedFigures FiguresOf(const scheduler::SimulationReport& simulated) {
  ServedFigures figures;
  figures.finished = simulated.finished;
  figures.requests_per_second = simulated.requests_per_second;
  figures.tokens_per_second = simulated.output_tokens_per_second;
  figures.ttft = simulated.ttft;
  figures.tpot = simulated.tpot;
  return figures;
}

ServedFigures FiguresOf(const Play& play, const std::vector<scheduler::SimulatedRequest>& requests,
                        double speed) {
  ServedFigures figures;
  std::vector<double> ttft, tpot;
  double last = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const PlayedRequest& played = play.requests[i];
    if (!played.finished) continue;
    ++figures.finished;
    tokens += played.tokens;
    last = std::max(last, speed * played.last_token_seconds);
    // From when it was due, as a queue in front of the coordinator is no excuse.
    ttft.push_back(speed * played.first_token_seconds - requests[i].arrival_seconds);
    if (played.tokens > 1)
      tpot.push_back(speed * (played.last_token_seconds - played.first_token_seconds) /
                     static_cast<double>(played.tokens - 1));
  }
  const double first = requests.empty() ? 0 : requests.front().arrival_seconds;
  const double seconds = std::max(1e-9, last - first);
  figures.requests_per_second = static_cast<double>(figures.finished) / seconds;
  figures.tokens_per_second = static_cast<double>(tokens) / seconds;
  figures.ttft = scheduler::PercentilesOf(&ttft);
  figures.tpot = scheduler::PercentilesOf(&tpot);
  return figures;
}

LatenessFigures ReadLateness(const std::string& folder) {
  LatenessFigures figures;
  Counts late, share;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->path().string().ends_with(".figures.json")) continue;
    const auto text = ReadFileText(at->path(), kMaxFiguresBytes);
    if (!text.ok()) continue;
    const nlohmann::json read = nlohmann::json::parse(*text, nullptr, false);
    if (read.is_discarded()) continue;
    figures.steps += read["steps"].get<int64_t>();
    figures.model_seconds += read["model_seconds"].get<double>();
    Add(read["late_seconds"], &late);
    Add(read["late_share"], &share);
  }
  figures.p50 = QuantileOf(late, 0.5);
  figures.p99 = QuantileOf(late, 0.99);
  figures.share_p50 = QuantileOf(share, 0.5);
  figures.share_p99 = QuantileOf(share, 0.99);
  return figures;
}

double ProposedSpeed(double speed, double late_share) {
  const double wanted = speed * 0.5 * kMaxLateShare / late_share;
  const double unit = std::pow(10, std::floor(std::log10(wanted)));
  return std::max(1e-3, std::floor(wanted / unit) * unit);
}

std::string RehearsalText(const RehearsalFacts& facts) {
  std::string text = absl::StrFormat(
      "rehearsal of %s: %s, %d replicas on %d emulated devices of %d machines; nothing was "
      "computed\n%d requests at %.4g a second, played in %.1f s at --speed %.3g\n\n",
      facts.plan_file, facts.model, facts.replicas, facts.devices, facts.machines, facts.requests,
      facts.rate, facts.play_seconds, facts.speed);
  text += absl::StrFormat("  %-18s %12s %12s %10s\n", "", "promised", "rehearsed", "");
  const ServedFigures& p = facts.promised;
  const ServedFigures& r = facts.rehearsed;
  text += Row("requests/s", p.requests_per_second, r.requests_per_second, "%.3f");
  text += Row("output tokens/s", p.tokens_per_second, r.tokens_per_second, "%.1f");
  text += Row("TTFT p50, s", p.ttft.p50, r.ttft.p50, "%.3f");
  text += Row("TTFT p95, s", p.ttft.p95, r.ttft.p95, "%.3f");
  text += Row("TPOT p50, ms", 1e3 * p.tpot.p50, 1e3 * r.tpot.p50, "%.2f");
  text += Row("TPOT p95, ms", 1e3 * p.tpot.p95, 1e3 * r.tpot.p95, "%.2f");
  text += "\n";
  if (facts.failed + facts.unfinished > 0) {
    absl::StrAppendFormat(&text, "%d requests failed, %d did not end in time%s%s\n", facts.failed,
                          facts.unfinished, facts.first_error.empty() ? "" : ": ",
                          facts.first_error);
  }
  text += LatenessText(facts) + CostText(facts) + FormingText(facts);
  if (facts.recovery.has_value()) text += RecoveryText(*facts.recovery);
  return text + LimitsText(facts);
}

std::string RehearsalJson(const RehearsalFacts& facts) {
  const double tokens = std::max<double>(1, static_cast<double>(facts.tokens));
  nlohmann::json json = {{"plan", facts.plan_file},
                         {"model", facts.model},
                         {"devices", facts.devices},
                         {"machines", facts.machines},
                         {"replicas", facts.replicas},
                         {"speed", facts.speed},
                         {"offered_requests_per_second", facts.rate},
                         {"requests", facts.requests},
                         {"failed", facts.failed},
                         {"unfinished", facts.unfinished},
                         {"most_streams", facts.most_streams},
                         {"play_seconds", facts.play_seconds},
                         {"tokens", facts.tokens},
                         {"promised", ToJson(facts.promised)},
                         {"rehearsed", ToJson(facts.rehearsed)},
                         {"steps", facts.lateness.steps},
                         {"late_p50_seconds", facts.lateness.p50},
                         {"late_p99_seconds", facts.lateness.p99},
                         {"late_p99_share", facts.lateness.share_p99},
                         {"valid", facts.lateness.kept()},
                         {"coordinator_cpu_seconds_per_token", facts.cpu.coordinator / tokens},
                         {"workers_cpu_seconds_per_token", facts.cpu.workers / tokens},
                         {"form_seconds",
                          {{"coordinator", facts.forming.coordinator},
                           {"workers", facts.forming.workers},
                           {"replicas", facts.forming.replicas}}}};
  if (facts.recovery.has_value()) {
    json["killed"] = {{"machine", facts.recovery->machine},
                      {"at_seconds", facts.recovery->at_seconds},
                      {"failed_requests", facts.recovery->failed_requests},
                      {"longest_pause_seconds", facts.recovery->longest_pause_seconds}};
    if (facts.recovery->ready_seconds.has_value())
      json["killed"]["ready_seconds"] = *facts.recovery->ready_seconds;
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::deploy
