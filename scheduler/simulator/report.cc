#include "scheduler/simulator/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tessera::scheduler {
namespace {

void AppendPercentiles(const char* name, const Percentiles& p, double scale, const char* unit,
                       std::string* out) {
  absl::StrAppendFormat(out, "  %-22s", name);
  for (const double value : {p.mean, p.p50, p.p90, p.p95, p.p99}) {
    // No time was measured where nothing finished, or nothing came after a first token.
    absl::StrAppendFormat(out, " %9s", p.values > 0 ? absl::StrFormat("%.3f", value * scale) : "-");
  }
  absl::StrAppendFormat(out, "  %s\n", unit);
}

// Finished per second while requests came, once everything had filled.
double SteadyRate(const SimulationResult& result, double from, double to) {
  if (to <= from) return 0;
  int64_t finished = 0;
  for (const RequestOutcome& outcome : result.outcomes) {
    const bool counts = outcome.fate == Fate::kFinished && outcome.finished_seconds > from &&
                        outcome.finished_seconds <= to;
    finished += counts ? 1 : 0;
  }
  return static_cast<double>(finished) / (to - from);
}

// Output tokens per second while requests came, or, where too few came, over the whole time.
double SteadyTokens(const SimulationReport& report) {
  if (report.steady_requests_per_second <= 0) return report.output_tokens_per_second;
  return report.steady_requests_per_second * static_cast<double>(report.output_tokens) /
         static_cast<double>(report.finished);
}

void Attain(const SimulationResult& result, std::span<const RequestClass> classes,
            SimulationReport* report) {
  for (const RequestClass& one : classes)
    report->classes.push_back({one.name, 0, 0, one.required_attainment, one.limits});
  int64_t within = 0;
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const SimulatedRequest& request = result.requests[i];
    const auto c = static_cast<size_t>(request.request_class);
    const bool known = c < classes.size();
    const bool attains =
        WithinLimits(request, result.outcomes[i], known ? classes[c].limits : LatencyLimits());
    within += attains ? 1 : 0;
    if (!known) continue;
    ++report->classes[c].requests;
    report->classes[c].attainment += attains ? 1 : 0;
  }
  for (ClassAttainment& one : report->classes)
    one.attainment = one.requests > 0 ? one.attainment / static_cast<double>(one.requests) : 1;
  if (!result.requests.empty())
    report->attainment = static_cast<double>(within) / static_cast<double>(result.requests.size());
}

// "first token within 2 s, 80 ms per token".
std::string LimitsText(const LatencyLimits& limits) {
  std::vector<std::string> texts;
  if (std::isfinite(limits.ttft_seconds))
    texts.push_back(absl::StrFormat("first token within %g s", limits.ttft_seconds));
  if (std::isfinite(limits.tpot_seconds))
    texts.push_back(absl::StrFormat("%g ms per token", limits.tpot_seconds * 1e3));
  if (std::isfinite(limits.end_to_end_seconds))
    texts.push_back(absl::StrFormat("all within %g s", limits.end_to_end_seconds));
  return texts.empty() ? "no limit" : absl::StrJoin(texts, ", ");
}

void AppendAttainment(const SimulationReport& report, std::string* out) {
  if (std::none_of(report.classes.begin(), report.classes.end(),
                   [](const ClassAttainment& one) { return one.limits.any(); })) {
    return;
  }
  absl::StrAppendFormat(out, "\nobjectives met by %.2f %% of the requests",
                        100 * report.attainment);
  if (report.classes.size() == 1) {
    *out += absl::StrFormat(" (asked: %g %%): %s\n", 100 * report.classes.front().required,
                            LimitsText(report.classes.front().limits));
    return;
  }
  *out += "\n";
  for (const ClassAttainment& one : report.classes) {
    absl::StrAppendFormat(out, "  %s: %.2f %% of %d (asked: %g %%): %s\n", one.name,
                          100 * one.attainment, one.requests, 100 * one.required,
                          LimitsText(one.limits));
  }
}

// How busy devices and links were; needs the report's seconds. Devices while requests came: what
// they do afterwards, fewer and fewer of them, tells how long the run was.
void AddUse(const SimulationResult& result, double first, SimulationReport* report) {
  report->busy_seconds = std::max(0.0, result.coming_until_seconds - first);
  for (size_t r = 0; r < result.replicas.size(); ++r) {
    const ReplicaSetup& setup = result.replicas[r];
    const std::vector<double>& busy_seconds = result.counters[r].stage_busy_while_coming_seconds;
    for (size_t j = 0; j < busy_seconds.size(); ++j) {
      const double busy = report->busy_seconds > 0 ? busy_seconds[j] / report->busy_seconds : 0.0;
      report->devices.push_back({setup.name, static_cast<int>(j),
                                 j < setup.stage_devices.size() ? setup.stage_devices[j] : "",
                                 busy});
    }
  }
  for (size_t l = 0; l < result.links.size(); ++l) {
    const double rate = report->seconds > 0 ? result.link_bytes[l] / report->seconds : 0.0;
    if (rate > 0) {
      report->links.push_back(
          {result.links[l].name, rate, rate / result.links[l].bytes_per_second});
    }
  }
}

}  // namespace

bool WithinLimits(const SimulatedRequest& request, const RequestOutcome& outcome,
                  const LatencyLimits& limits) {
  return outcome.fate == Fate::kFinished && outcome.ttft_seconds(request) <= limits.ttft_seconds &&
         outcome.tpot_seconds() <= limits.tpot_seconds &&
         outcome.end_to_end_seconds(request) <= limits.end_to_end_seconds;
}

Percentiles PercentilesOf(std::vector<double>* values) {
  Percentiles out;
  if (values->empty()) return out;
  std::sort(values->begin(), values->end());
  double sum = 0;
  for (const double value : *values) sum += value;
  const auto at = [&](double part) {
    const double rank = std::ceil(part * static_cast<double>(values->size()));
    return (*values)[static_cast<size_t>(std::max(1.0, rank)) - 1];
  };
  out.mean = sum / static_cast<double>(values->size());
  out.p50 = at(0.5);
  out.p90 = at(0.9);
  out.p95 = at(0.95);
  out.p99 = at(0.99);
  out.values = static_cast<int64_t>(values->size());
  return out;
}

double ErrorOfMean(std::span<const double> values) {
  constexpr size_t kBatches = 10;
  const size_t length = values.size() / kBatches;
  if (length < 2) return std::numeric_limits<double>::infinity();
  double sum = 0, squares = 0;
  for (size_t batch = 0; batch < kBatches; ++batch) {
    const auto part = values.subspan(batch * length, length);
    const double mean =
        std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(length);
    sum += mean;
    squares += mean * mean;
  }
  const double variance = (squares - sum * sum / kBatches) / (kBatches - 1);
  return std::sqrt(std::max(0.0, variance) / kBatches);
}

SimulationReport ReportOf(const SimulationResult& result, std::span<const RequestClass> classes,
                          double usd_per_hour) {
  SimulationReport report;
  Attain(result, classes, &report);
  std::vector<double> ttft, tpot, end_to_end, wait;
  double first = result.end_seconds, last = 0;
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const SimulatedRequest& request = result.requests[i];
    const RequestOutcome& outcome = result.outcomes[i];
    ++report.requests;
    first = std::min(first, request.arrival_seconds);
    last = std::max(last, request.arrival_seconds);
    report.preemptions += outcome.preemptions;
    report.retries += std::max(0, outcome.attempts - 1);
    if (outcome.fate != Fate::kFinished) {
      ++report.failed;
      continue;
    }
    ++report.finished;
    report.prompt_tokens += request.prompt_tokens;
    report.output_tokens += request.output_tokens;
    ttft.push_back(outcome.ttft_seconds(request));
    wait.push_back(outcome.started_seconds - request.arrival_seconds);
    end_to_end.push_back(outcome.end_to_end_seconds(request));
    if (outcome.output_tokens > 1) tpot.push_back(outcome.tpot_seconds());
  }
  report.ttft_error_seconds = ErrorOfMean(ttft);
  report.ttft = PercentilesOf(&ttft);
  report.tpot = PercentilesOf(&tpot);
  report.end_to_end = PercentilesOf(&end_to_end);
  report.wait = PercentilesOf(&wait);
  report.seconds = std::max(0.0, result.end_seconds - first);
  if (last > first) {
    report.arrival_seconds = last - first;
    report.arrivals_per_second = static_cast<double>(report.requests - 1) / report.arrival_seconds;
  }
  if (report.seconds > 0) {
    report.requests_per_second = static_cast<double>(report.finished) / report.seconds;
    report.output_tokens_per_second = static_cast<double>(report.output_tokens) / report.seconds;
  }
  constexpr double kFilling = 0.5;
  report.steady_from_seconds = first + kFilling * (last - first);
  report.steady_to_seconds = last;
  report.steady_requests_per_second = SteadyRate(result, report.steady_from_seconds, last);
  const double tokens_per_second = SteadyTokens(report);
  if (usd_per_hour > 0 && tokens_per_second > 0)
    report.usd_per_million_output_tokens = usd_per_hour / 3600 / tokens_per_second * 1e6;
  AddUse(result, first, &report);
  return report;
}

std::string RateText(double asked_per_second, double drawn_per_second, std::string_view things) {
  const std::string drawn = absl::StrFormat("%.3f", drawn_per_second);
  if (asked_per_second <= 0) return absl::StrFormat("at %s %sper second", drawn, things);
  const std::string asked = absl::StrFormat("%.3f", asked_per_second);
  return absl::StrFormat("at %s %sper second", asked, things) +
         (asked == drawn ? "" : absl::StrFormat(" (%s as drawn)", drawn));
}

double MeanStaySeconds(const SimulationReport& report) {
  return report.end_to_end.mean - report.wait.mean;
}

std::string ReportTable(const SimulationReport& report, double asked_requests_per_second,
                        std::string_view caution) {
  std::string out =
      absl::StrFormat("%d requests %s: %d finished, %d failed, in %.1f s\n", report.requests,
                      RateText(asked_requests_per_second, report.arrivals_per_second, ""),
                      report.finished, report.failed, report.seconds);
  const bool steady = report.steady_requests_per_second > 0;
  const std::string window =
      steady ? absl::StrFormat(
                   " in the second half of the time in which requests came (%.1f to %.1f s)",
                   report.steady_from_seconds, report.steady_to_seconds)
             : std::string();
  absl::StrAppendFormat(&out, "throughput%s: %.3f requests/s, %.0f output tokens/s", window,
                        steady ? report.steady_requests_per_second : report.requests_per_second,
                        SteadyTokens(report));
  if (report.usd_per_million_output_tokens > 0) {
    absl::StrAppendFormat(&out, ", %.2f USD per million output tokens",
                          report.usd_per_million_output_tokens);
  }
  if (steady) {
    absl::StrAppendFormat(&out, "; until the last had finished %.3f requests/s",
                          report.requests_per_second);
  }
  if (!caution.empty()) absl::StrAppendFormat(&out, "\n%s", caution);
  absl::StrAppendFormat(&out, "\n\n  %-22s %9s %9s %9s %9s %9s\n", "", "mean", "p50", "p90", "p95",
                        "p99");
  AppendPercentiles("time to first token", report.ttft, 1, "s", &out);
  AppendPercentiles("  of it, queueing", report.wait, 1, "s", &out);
  AppendPercentiles("time per output token", report.tpot, 1e3, "ms", &out);
  AppendPercentiles("end to end", report.end_to_end, 1, "s", &out);
  AppendAttainment(report, &out);
  if (report.preemptions > 0 || report.retries > 0) {
    absl::StrAppendFormat(
        &out,
        "\n%d times a sequence lost its KV to others and was computed again; %d requests "
        "were submitted again\n",
        report.preemptions, report.retries);
  }
  absl::StrAppendFormat(
      &out, "\nbusy%s:\n",
      report.busy_seconds < report.seconds
          ? absl::StrFormat(", of the %.1f s in which requests came", report.busy_seconds)
          : std::string());
  for (const DeviceUse& use : report.devices) {
    absl::StrAppendFormat(&out, "  %-6s stage %-3d %-28s %5.1f %%\n", use.replica, use.stage,
                          use.devices, 100 * use.busy);
  }
  if (!report.links.empty() && report.busy_seconds < report.seconds)
    absl::StrAppendFormat(&out, "links, of all %.1f s:\n", report.seconds);
  for (const LinkUse& use : report.links) {
    absl::StrAppendFormat(&out, "  link %-38s %5.1f %%, %.2f Gbit/s\n", use.link, 100 * use.busy,
                          use.bytes_per_second * 8e-9);
  }
  return out;
}

std::string CsvComment(std::string_view text) {
  return text.empty() ? std::string() : absl::StrFormat("# %s\n", text);
}

std::string RequestsCsv(const SimulationResult& result, std::string_view rests_on) {
  std::string out = CsvComment(rests_on);
  out +=
      "request,arrival_seconds,prompt_tokens,output_tokens,fate,started_seconds,"
      "first_token_seconds,finished_seconds,first_token_missed_seconds,last_token_missed_seconds,"
      "ttft_seconds,tpot_seconds,end_to_end_seconds,prefill_replica,decode_replica,attempts,"
      "preemptions\n";
  const auto name = [&](int replica) {
    return replica < 0 ? std::string() : result.replicas[static_cast<size_t>(replica)].name;
  };
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const SimulatedRequest& r = result.requests[i];
    const RequestOutcome& o = result.outcomes[i];
    const bool finished = o.fate == Fate::kFinished;
    absl::StrAppendFormat(&out, "%d,%.9g,%d,%d,%s,%.9g,%.9g,%.9g,%.9g,%.9g,", i, r.arrival_seconds,
                          r.prompt_tokens, r.output_tokens, finished ? "finished" : "failed",
                          o.started_seconds, o.first_token_seconds, o.finished_seconds,
                          o.first_token_missed_seconds, o.last_token_missed_seconds);
    if (finished) {
      absl::StrAppendFormat(&out, "%.9g,%.9g,%.9g,", o.ttft_seconds(r), o.tpot_seconds(),
                            o.end_to_end_seconds(r));
    } else {
      out += ",,,";
    }
    absl::StrAppendFormat(&out, "%s,%s,%d,%d\n", name(o.prefill_replica), name(o.decode_replica),
                          o.attempts, o.preemptions);
  }
  return out;
}

std::string RatesCsv(std::span<const RatePoint> points, std::string_view rests_on) {
  std::string out = CsvComment(rests_on);
  out +=
      "requests_per_second,finished_per_second,output_tokens_per_second,attainment,"
      "ttft_p50_seconds,ttft_p99_seconds,tpot_p50_seconds,tpot_p99_seconds,"
      "end_to_end_p50_seconds,end_to_end_p99_seconds\n";
  for (const RatePoint& p : points) {
    const SimulationReport& r = p.report;
    absl::StrAppendFormat(&out, "%.9g,%.9g,%.9g,%.9g", p.requests_per_second,
                          r.steady_requests_per_second, r.output_tokens_per_second, r.attainment);
    for (const Percentiles* times : {&r.ttft, &r.tpot, &r.end_to_end}) {
      out += times->values > 0 ? absl::StrFormat(",%.9g,%.9g", times->p50, times->p99) : ",,";
    }
    out += "\n";
  }
  return out;
}

}  // namespace tessera::scheduler
