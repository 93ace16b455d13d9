// What a simulation says: throughput, latencies, attainment, how busy everything was.
//
// Thread rule: pure functions. Units: seconds, tokens; percentiles by nearest rank over finished
// requests. A request attains its objectives if it finished and met each that is given; failed
// ones never do. A request of one output token has no TPOT and misses none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/cost/attainment.h"
#include "scheduler/simulator/simulator.h"

namespace tessera::scheduler {

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0;
  int64_t values = 0;  // that they are of; 0: there are none, whatever stands above
};
// Standard error of the mean of values one after the other that hang together, such as waits: from
// the means of ten batches of them. Infinite: there are too few to tell.
double ErrorOfMean(std::span<const double> values);
// Sorts its argument.
Percentiles PercentilesOf(std::vector<double>* values);

struct DeviceUse {
  std::string replica;
  int stage = 0;
  std::string devices;
  double busy = 0;  // part of the time in which requests came
};

struct LinkUse {
  std::string link;
  double bytes_per_second = 0;
  double busy = 0;  // part of its bandwidth, over the whole time
};

struct ClassAttainment {
  std::string name;
  int64_t requests = 0;
  double attainment = 1;  // part of them within all limits
  double required = 0;
  LatencyLimits limits;
};

struct SimulationReport {
  int64_t requests = 0, finished = 0, failed = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;  // of finished requests
  int64_t preemptions = 0, retries = 0;
  double seconds = 0;          // first arrival to last event
  double arrival_seconds = 0;  // first arrival to last arrival
  double busy_seconds = 0;     // that devices' use is of: the same, or `seconds` where it is none
  double arrivals_per_second = 0;
  double requests_per_second = 0;  // finished, over all these seconds
  // Finished while requests came and everything had filled: in the second half of the time between
  // first and last arrival. What a deployment sustains; the figure above pays for
  // filling and draining it.
  double steady_requests_per_second = 0;
  double steady_from_seconds = 0, steady_to_seconds = 0;  // that time
  double output_tokens_per_second = 0;
  Percentiles ttft, tpot, end_to_end, wait;  // wait: arrival to first step
  double ttft_error_seconds = 0;             // of its mean, see ErrorOfMean
  double attainment = 1;  // of all requests, each with the limits of its class; failed ones miss
  std::vector<ClassAttainment> classes;  // those that were given
  std::vector<DeviceUse> devices;
  std::vector<LinkUse> links;                // that KV or activations passed, and codecs
  double usd_per_million_output_tokens = 0;  // at the steady rate, if there is one; 0: no price
};

bool WithinLimits(const SimulatedRequest& request, const RequestOutcome& outcome,
                  const LatencyLimits& limits);

// classes: by request_class; requests of others have no limits.
SimulationReport ReportOf(const SimulationResult& result,
                          std::span<const RequestClass> classes = {}, double usd_per_hour = 0);

// How long a finished request was served on average, without its wait, which has no end where more
// come than can be served; 0: none finished.
double MeanStaySeconds(const SimulationReport& report);

// For people. asked: the rate at which arrivals were drawn, beside what the draw came to; 0: they
// were not drawn. caution: a line below the throughput; empty: none.
std::string ReportTable(const SimulationReport& report, double asked_requests_per_second = 0,
                        std::string_view caution = "");

// "at 0.500 per second (0.520 as drawn)"; `things`: "", "requests ", ...
std::string RateText(double asked_per_second, double drawn_per_second, std::string_view things);

// A first line "# ..." with what the figures rest on, the names of the columns, then one line per
// request: arrival, lengths, times (missed: when a limit of the setup passed; -1: none did),
// replicas, attempts, preemptions.
std::string RequestsCsv(const SimulationResult& result, std::string_view rests_on);

// "# ...": a line of a CSV that is no row, where `text` is not empty.
std::string CsvComment(std::string_view text);

// One point of a curve over rates; latencies that nothing has are empty.
struct RatePoint {
  double requests_per_second = 0;
  SimulationReport report;
};
// Begins as RequestsCsv does; finished_per_second is what is sustained while requests come.
std::string RatesCsv(std::span<const RatePoint> points, std::string_view rests_on);

}  // namespace tessera::scheduler
