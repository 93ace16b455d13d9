// What a rehearsal says: promised beside rehearsed, how late emulated steps were, what the control
// plane cost, how long it took to form and to recover.
//
// Thread rule: pure functions but for ReadLateness. Units: seconds of the workload's time, but for
// what names the machine's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deploy/rehearsal/request_player.h"
#include "scheduler/simulator/report.h"
#include "scheduler/simulator/request.h"

namespace tessera::deploy {

// Rates and latencies of requests, of the simulation or of the rehearsal.
struct ServedFigures {
  int64_t finished = 0;
  double requests_per_second = 0, tokens_per_second = 0;  // until the last token
  scheduler::Percentiles ttft, tpot;
};

ServedFigures FiguresOf(const scheduler::SimulationReport& simulated);
ServedFigures FiguresOf(const Play& play, const std::vector<scheduler::SimulatedRequest>& requests,
                        double speed);

// How late emulated steps ended, in seconds of this machine.
struct LatenessFigures {
  int64_t steps = 0;
  double model_seconds = 0;             // of all steps
  double p50 = 0, p99 = 0;              // seconds that a step ended late
  double share_p50 = 0, share_p99 = 0;  // of the step's time
  // Whether steps kept their time: share_p99 is at most kMaxLateShare.
  bool kept() const;
};
inline constexpr double kMaxLateShare = 0.05;

// Adds up *.figures.json of the folder.
LatenessFigures ReadLateness(const std::string& folder);

// Seconds that pass on this machine, not slowed.
struct FormingTimes {
  double coordinator = 0;  // until it listened
  double workers = 0;      // from then until all had registered
  double replicas = 0;     // from then until all were ready
};

// Processor time.
struct CpuSeconds {
  double coordinator = 0;
  double workers = 0;  // all processes that run
};

struct Recovery {
  std::string machine;
  double at_seconds = 0;  // of the workload's time
  std::optional<double>
      ready_seconds;  // of this machine's, from the kill until all replicas were ready
  int64_t failed_requests = 0;
  double longest_pause_seconds = 0;  // of this machine's: between two tokens, from the kill on
};

struct RehearsalFacts {
  std::string plan_file, model;
  size_t devices = 0, machines = 0, replicas = 0;
  double speed = 1;
  double rate = 0;          // requests/s that were drawn
  double load_seconds = 0;  // that reading weights is predicted to take; 0: not predicted
  bool knows_links = true;  // the cluster was described
  bool hands_over = false;  // prefill and decode are apart
  int64_t requests = 0, failed = 0, unfinished = 0;
  std::string first_error;  // of the failed ones
  int64_t most_streams = 0;
  double play_seconds = 0;  // of this machine's
  int64_t tokens = 0;       // that came
  ServedFigures promised, rehearsed;
  LatenessFigures lateness;
  CpuSeconds cpu;  // during the play
  FormingTimes forming;
  std::optional<Recovery> recovery;
};

std::string RehearsalText(const RehearsalFacts& facts);
std::string RehearsalJson(const RehearsalFacts& facts);

// At which lateness would be small; a round number.
double ProposedSpeed(double speed, double late_share);

}  // namespace tessera::deploy
