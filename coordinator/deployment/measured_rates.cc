#include "coordinator/deployment/measured_rates.h"

#include <prometheus/metric_family.h>

#include <string>

namespace tessera::coordinator {
namespace {

constexpr double kWindowSeconds = 10;

void AddHistograms(const prometheus::MetricFamily& family, double* sum, double* count) {
  for (const prometheus::ClientMetric& metric : family.metric) {
    *sum += metric.histogram.sample_sum;
    *count += static_cast<double>(metric.histogram.sample_count);
  }
}

}  // namespace

void MeasuredRates::Sample(const std::vector<prometheus::MetricFamily>& families,
                           double now_seconds) {
  Sums sums;
  sums.seconds = now_seconds;
  double unused = 0;
  for (const prometheus::MetricFamily& family : families) {
    if (family.name == "vllm:time_to_first_token_seconds")
      AddHistograms(family, &sums.first_token_seconds, &sums.first_tokens);
    if (family.name == "vllm:inter_token_latency_seconds")
      AddHistograms(family, &sums.gap_seconds, &sums.gaps);
    if (family.name == "vllm:e2e_request_latency_seconds")
      AddHistograms(family, &unused, &sums.requests);
  }
  std::lock_guard lock(mutex_);
  points_.push_back(sums);
  while (points_.size() > 2 && points_[1].seconds <= now_seconds - kWindowSeconds)
    points_.pop_front();
}

v1::Prediction MeasuredRates::Recent() const {
  std::lock_guard lock(mutex_);
  v1::Prediction recent;
  if (points_.size() < 2) return recent;
  const Sums &from = points_.front(), &to = points_.back();
  const double seconds = to.seconds - from.seconds;
  if (seconds <= 0) return recent;
  const double first = to.first_tokens - from.first_tokens, gaps = to.gaps - from.gaps;
  recent.set_requests_per_second((to.requests - from.requests) / seconds);
  recent.set_output_tokens_per_second((first + gaps) / seconds);
  if (first > 0) {
    recent.set_time_to_first_token_seconds((to.first_token_seconds - from.first_token_seconds) /
                                           first);
  }
  if (gaps > 0)
    recent.set_time_per_output_token_seconds((to.gap_seconds - from.gap_seconds) / gaps);
  return recent;
}

}  // namespace tessera::coordinator
