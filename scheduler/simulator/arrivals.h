// Requests for the simulator: from a trace, or from a process with lengths drawn from samples.
//
// Thread rule: pure functions. Deterministic: a seed gives the same requests on every machine (the
// distributions are made here from the bits of std::mt19937_64, not by the standard library).
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "scheduler/cost/lengths.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/simulator/request.h"

namespace tessera::scheduler {

// Portable draws.
class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  double Uniform();                            // in (0, 1)
  double Exponential();                        // mean 1
  double Normal();                             // mean 0, variance 1
  double Gamma(double shape);                  // mean `shape`, scale 1; shape > 0
  int64_t Integer(int64_t low, int64_t high);  // both included

 private:
  std::mt19937_64 bits_;
};

// The trace as it is, at `rate_scale` times its rate; the context limit cuts like SamplesOf does.
std::vector<SimulatedRequest> RequestsFromTrace(const std::vector<TraceRequest>& trace,
                                                double rate_scale = 1, int64_t context_tokens = 0);

struct ArrivalProcess {
  double requests_per_second = 1;
  double variation = 1;  // of the gaps: 1 is Poisson, above it bursts, 0 is a clock; gamma gaps
  int64_t requests = 1000;
  uint64_t seed = 1;
  // So many come per second in this draw, not on average over all draws: near capacity the few per
  // cent that a short draw is off by make queues many times as long.
  bool exact = false;
};
// `samples` by weight; of each prompt its sample's part is cached.
std::vector<SimulatedRequest> RequestsFromProcess(const ArrivalProcess& process,
                                                  std::span<const RequestLengths> samples);
// The same with the samples of classes by their shares; each request knows its class.
std::vector<SimulatedRequest> RequestsFromProcess(const ArrivalProcess& process,
                                                  std::span<const RequestClass> classes);

// Every request asks for at most `tokens`, where longer answers end, as a server ends them; 0: the
// longest answer of them all, which cuts none. A router knows no more of an answer's length.
void AskForAtMost(int64_t tokens, std::vector<SimulatedRequest>* requests);

}  // namespace tessera::scheduler
