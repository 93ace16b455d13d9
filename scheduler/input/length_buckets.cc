#include "scheduler/input/length_buckets.h"

#include <algorithm>
#include <span>

namespace tessera::scheduler {
namespace {

constexpr int kSides = 16;

// [begin, end) of each of kSides parts of about equal weight.
std::vector<std::span<RequestLengths>> EqualParts(std::span<RequestLengths> samples) {
  double all = 0, before = 0;
  for (const RequestLengths& sample : samples) all += sample.weight;
  std::vector<std::span<RequestLengths>> parts;
  size_t begin = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    before += samples[i].weight;
    const bool full = before >= all * static_cast<double>(parts.size() + 1) / kSides;
    if (!full && i + 1 < samples.size()) continue;
    parts.push_back(samples.subspan(begin, i + 1 - begin));
    begin = i + 1;
    // A heavy sample fills several parts.
    while (static_cast<double>(parts.size() + 1) * all < before * kSides && i + 1 < samples.size())
      parts.emplace_back();
  }
  std::erase_if(parts, [](const auto& part) { return part.empty(); });
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
  std::stable_sort(samples.begin(), samples.end(),
                   [](auto& a, auto& b) { return a.prompt_tokens < b.prompt_tokens; });
  for (const std::span<RequestLengths> part : EqualParts(samples)) {
    std::stable_sort(part.begin(), part.end(),
                     [](auto& a, auto& b) { return a.output_tokens < b.output_tokens; });
    for (const std::span<RequestLengths> bucket : EqualParts(part))
      buckets.push_back(MeanOf(bucket));
  }
  return buckets;
}

}  // namespace

WorkloadSamples Bucketed(WorkloadSamples workload) {
  const bool many = std::any_of(workload.classes.begin(), workload.classes.end(),
                                [](const auto& c) { return c.samples.size() > kMostBuckets; });
  if (!many) return workload;
  workload.samples.clear();
  for (RequestClass& one : workload.classes) {
    if (one.samples.size() > kMostBuckets) one.samples = BucketsOf(std::move(one.samples));
    for (RequestLengths sample : one.samples) {
      sample.weight *= one.share;
      workload.samples.push_back(sample);
    }
  }
  return workload;
}

}  // namespace tessera::scheduler
