#include "scheduler/simulator/arrivals.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::scheduler {

double Random::Uniform() { return (static_cast<double>(bits_() >> 11) + 0.5) * 0x1.0p-53; }

double Random::Exponential() { return -std::log(Uniform()); }

double Random::Normal() {  // Box-Muller
  const double radius = std::sqrt(2 * Exponential());
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double Random::Gamma(double shape) {
  if (shape < 1) return Gamma(shape + 1) * std::pow(Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal();
    const double v = (1 + c * x) * (1 + c * x) * (1 + c * x);
    if (v <= 0) continue;
    if (std::log(Uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

int64_t Random::Integer(int64_t low, int64_t high) {
  const double span = static_cast<double>(high - low + 1);
  return std::min(high, low + static_cast<int64_t>(Uniform() * span));
}

std::vector<SimulatedRequest> RequestsFromTrace(const std::vector<TraceRequest>& trace,
                                                double rate_scale, int64_t context_tokens) {
  std::vector<SimulatedRequest> requests;
  requests.reserve(trace.size());
  for (const TraceRequest& r : trace) {
    SimulatedRequest request;
    request.arrival_seconds = r.arrival_seconds / rate_scale;
    request.prompt_tokens = std::max<int64_t>(1, std::llround(r.prompt_tokens));
    request.output_tokens = std::max<int64_t>(1, std::llround(r.output_tokens));
    if (context_tokens > 1 && request.prompt_tokens + request.output_tokens > context_tokens) {
      request.output_tokens = std::min(request.output_tokens, context_tokens - 1);
      request.prompt_tokens = context_tokens - request.output_tokens;
    }
    requests.push_back(request);
  }
  return requests;
}

namespace {

// `class_of`: of each sample; empty: all of class 0.
std::vector<SimulatedRequest> Draw(const ArrivalProcess& process,
                                   std::span<const RequestLengths> samples,
                                   std::span<const int32_t> class_of) {
  std::vector<double> sums;
  double weight = 0;
  for (const RequestLengths& sample : samples) sums.push_back(weight += sample.weight);
  Random random(process.seed);
  // Gaps and lengths are drawn alternately, so the first requests do not depend on their number.
  const double shape = 1 / std::max(process.variation * process.variation, 1e-12);
  std::vector<SimulatedRequest> requests;
  requests.reserve(static_cast<size_t>(process.requests));
  double now = 0;
  for (int64_t i = 0; i < process.requests; ++i) {
    const double gap = process.variation == 1   ? random.Exponential()
                       : process.variation <= 0 ? 1.0
                                                : random.Gamma(shape) / shape;
    now += gap / process.requests_per_second;
    const auto at = std::upper_bound(sums.begin(), sums.end(), random.Uniform() * weight);
    const size_t index = std::min<size_t>(static_cast<size_t>(at - sums.begin()), sums.size() - 1);
    SimulatedRequest request;
    request.arrival_seconds = now;
    request.prompt_tokens = std::max<int64_t>(1, std::llround(samples[index].prompt_tokens));
    request.output_tokens = std::max<int64_t>(1, std::llround(samples[index].output_tokens));
    request.cached_prompt_tokens = static_cast<int64_t>(samples[index].prefix_hit_rate *
                                                        static_cast<double>(request.prompt_tokens));
    if (!class_of.empty()) request.request_class = class_of[index];
    requests.push_back(request);
  }
  if (!process.exact || now <= 0) return requests;
  const double factor = static_cast<double>(process.requests) / process.requests_per_second / now;
  for (SimulatedRequest& request : requests) request.arrival_seconds *= factor;
  return requests;
}

}  // namespace

std::vector<SimulatedRequest> RequestsFromProcess(const ArrivalProcess& process,
                                                  std::span<const RequestLengths> samples) {
  return Draw(process, samples, {});
}

std::vector<SimulatedRequest> RequestsFromProcess(const ArrivalProcess& process,
                                                  std::span<const RequestClass> classes) {
  std::vector<RequestLengths> samples;
  std::vector<int32_t> class_of;
  for (size_t i = 0; i < classes.size(); ++i) {
    for (RequestLengths sample : classes[i].samples) {
      sample.weight *= classes[i].share;
      samples.push_back(sample);
      class_of.push_back(static_cast<int32_t>(i));
    }
  }
  return Draw(process, samples, class_of);
}

void AskForAtMost(int64_t tokens, std::vector<SimulatedRequest>* requests) {
  if (tokens == 0) {
    for (const SimulatedRequest& request : *requests)
      tokens = std::max(tokens, request.output_tokens);
  }
  for (SimulatedRequest& request : *requests) {
    request.max_tokens = tokens;
    request.output_tokens = std::min(request.output_tokens, tokens);
  }
}

}  // namespace tessera::scheduler
