#include "coordinator/replanning/workload_watch.h"

#include <algorithm>
#include <map>

namespace tessera::coordinator {
namespace {

bool Beyond(double a, double b, double factor) {
  const auto [low, high] = std::minmax(a, b);
  return high > factor * low;
}

}  // namespace

void WorkloadWatch::Add(const ServedRequest& request, double now_seconds) {
  ended_.emplace_back(now_seconds, request);
  while (ended_.size() > options_.max_requests ||
         ended_.front().first < now_seconds - options_.window_seconds)
    ended_.pop_front();
}

void WorkloadWatch::SetReference(const WorkloadFigures& reference) {
  reference_ = reference;
  off_ = false;
}

std::deque<WorkloadWatch::Ended>::const_iterator WorkloadWatch::FirstRecent(
    double now_seconds) const {
  const auto since = [&](double seconds) {
    return std::lower_bound(ended_.begin(), ended_.end(), now_seconds - seconds,
                            [](const Ended& one, double when) { return one.first < when; });
  };
  const auto oldest = since(options_.window_seconds);
  if (static_cast<size_t>(ended_.end() - oldest) < options_.min_requests) return ended_.end();
  const auto enough = ended_.end() - static_cast<std::ptrdiff_t>(options_.min_requests);
  return std::min(since(options_.recent_seconds), enough);
}

WorkloadFigures WorkloadWatch::Recent(double now_seconds) const {
  WorkloadFigures figures;
  const auto first = FirstRecent(now_seconds);
  if (first == ended_.end()) return figures;
  for (auto one = first; one != ended_.end(); ++one) {
    const ServedRequest& request = one->second;
    figures.prompt_tokens += static_cast<double>(request.prompt_tokens);
    figures.uncached_prompt_tokens +=
        static_cast<double>(request.prompt_tokens - request.cached_tokens);
    figures.output_tokens += static_cast<double>(request.output_tokens);
  }
  const auto count = static_cast<double>(ended_.end() - first);
  figures.prompt_tokens /= count;
  figures.uncached_prompt_tokens /= count;
  figures.output_tokens /= count;
  // All that ended since the first of them count, which itself only opens the time.
  const double seconds = std::max(now_seconds - first->first, 1e-3);
  figures.requests_per_second = (count - 1) / seconds;
  return figures;
}

bool WorkloadWatch::IsOff(const WorkloadFigures& recent, double band) const {
  // Less than a token is as good as one.
  const auto tokens = [band](double a, double b) {
    return Beyond(std::max(a, 1.0), std::max(b, 1.0), band);
  };
  return tokens(recent.prompt_tokens, reference_.prompt_tokens) ||
         tokens(recent.uncached_prompt_tokens, reference_.uncached_prompt_tokens) ||
         tokens(recent.output_tokens, reference_.output_tokens) ||
         (reference_.requests_per_second > 0 &&
          Beyond(recent.requests_per_second, reference_.requests_per_second, band));
}

bool WorkloadWatch::Changed(double now_seconds) {
  const WorkloadFigures recent = Recent(now_seconds);
  if (recent.prompt_tokens <= 0) {  // too few to say anything
    off_ = false;
    return false;
  }
  const bool off = IsOff(recent, off_ ? options_.inner_band : options_.band);
  if (off && !off_) off_since_seconds_ = now_seconds;
  off_ = off;
  if (!off || now_seconds - off_since_seconds_ < options_.settle_seconds) return false;
  return !judged_ || now_seconds - judged_seconds_ >= options_.interval_seconds;
}

void WorkloadWatch::NoteJudged(double now_seconds) {
  judged_ = true;
  judged_seconds_ = now_seconds;
}

v1::Workload WorkloadWatch::Observed(double now_seconds) const {
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  double prompts = 0, cached = 0;
  for (auto one = FirstRecent(now_seconds); one != ended_.end(); ++one) {
    const ServedRequest& request = one->second;
    // The first token comes with the prompt.
    ++counts[{std::max<int64_t>(1, request.prompt_tokens),
              std::max<int64_t>(1, request.output_tokens)}];
    prompts += static_cast<double>(request.prompt_tokens);
    cached += static_cast<double>(request.cached_tokens);
  }
  v1::Workload workload;
  workload.set_requests_per_second(Recent(now_seconds).requests_per_second);
  v1::WorkloadClass& all = *workload.add_classes();
  all.set_name("observed");
  all.set_share(1);
  if (prompts > 0) all.set_prefix_hit_rate(std::clamp(cached / prompts, 0.0, 1.0));
  for (const auto& [lengths, count] : counts) {
    v1::LengthSample& sample = *all.add_lengths();
    sample.set_prompt_tokens(lengths.first);
    sample.set_output_tokens(lengths.second);
    sample.set_weight(static_cast<double>(count));
  }
  return workload;
}

}  // namespace tessera::coordinator
