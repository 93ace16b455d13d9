#include "scheduler/input/length_buckets.h"

#include <algorithm>
#include <span>

namespace tessera::scheduler {
namespace {

constexpr int kSides = 16;

using Length = double RequestLengths::*;

// Parts of about equal size, sorted by `length`: each request counts as one and as its part of all
// such tokens.
std::vector<std::span<RequestLengths>> EqualParts(std::span<RequestLengths> samples,
                                                  Length length) {
  std::stable_sort(samples.begin(), samples.end(),
                   [&](auto& a, auto& b) { return a.*length < b.*length; });
  double requests = 0, tokens = 0, before = 0;
  for (const RequestLengths& sample : samples) {
    requests += sample.weight;
    tokens += sample.weight * sample.*length;
  }
  std::vector<std::span<RequestLengths>> parts;
  size_t begin = 0;
  int full = 0;  // parts that are behind
  for (size_t i = 0; i < samples.size(); ++i) {
    before += samples[i].weight / requests + samples[i].weight * samples[i].*length / tokens;
    const int now = static_cast<int>(before / 2 * kSides);
    if (now == full && i + 1 < samples.size()) continue;
    parts.push_back(samples.subspan(begin, i + 1 - begin));
    begin = i + 1;
    full = now;
  }
  return parts;
}

RequestLengths MeanOf(std::span<const RequestLengths> samples) {
  RequestLengths mean = {0, 0, 0, 0};
  double cached = 0;
  for (const RequestLengths& sample : samples) {
    mean.weight += sample.weight;
    mean.prompt_tokens += sample.weight * sample.prompt_tokens;
    mean.output_tokens += sample.weight * sample.output_tokens;
    cached += sample.weight * sample.prompt_tokens * sample.prefix_hit_rate;
  }
  mean.prefix_hit_rate = mean.prompt_tokens > 0 ? cached / mean.prompt_tokens : 0;
  mean.prompt_tokens /= mean.weight;
  mean.output_tokens /= mean.weight;
  return mean;
}

std::vector<RequestLengths> BucketsOf(std::vector<RequestLengths> samples) {
  const auto longest = std::max_element(samples.begin(), samples.end(), [](auto& a, auto& b) {
    return a.prompt_tokens + a.output_tokens < b.prompt_tokens + b.output_tokens;
  });
  std::vector<RequestLengths> buckets = {*longest};
  samples.erase(longest);
  for (const std::span<RequestLengths> part : EqualParts(samples, &RequestLengths::prompt_tokens)) {
    for (const std::span<RequestLengths> bucket : EqualParts(part, &RequestLengths::output_tokens))
      buckets.push_back(MeanOf(bucket));
  }
  return buckets;
}

}  // namespace

WorkloadSamples Bucketed(WorkloadSamples workload) {
  const bool many = std::any_of(workload.classes.begin(), workload.classes.end(),
                                [](const auto& c) { return c.samples.size() > kMaxBuckets + 1; });
  if (!many) return workload;
  workload.samples.clear();
  for (RequestClass& one : workload.classes) {
    if (one.samples.size() > kMaxBuckets + 1) one.samples = BucketsOf(std::move(one.samples));
    for (RequestLengths sample : one.samples) {
      sample.weight *= one.share;
      workload.samples.push_back(sample);
    }
  }
  return workload;
}

}  // namespace tessera::scheduler
