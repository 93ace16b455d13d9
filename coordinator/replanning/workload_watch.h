// What requests of the last minutes were like, and whether they still are what plans were judged
// for.
//
// Figures are means over the newest requests that ended: those of the last seconds, and as many
// before them as a mean needs. A figure is off where it differs from the reference by more than a
// factor; it stays off until it is within a smaller one. Where one has been off for some seconds,
// and nothing was judged for a minute, the workload has changed.
//
// Thread rule: one thread at a time. Time is an argument (monotonic seconds). Memory is bounded by
// WorkloadWatchOptions::max_requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "proto/workload.pb.h"

namespace tessera::coordinator {

// One that was answered.
struct ServedRequest {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, that a prefix cache had
  int64_t output_tokens = 0;  // of all choices
};

// Means over requests. Zeros: there are none.
struct WorkloadFigures {
  double requests_per_second = 0;
  double prompt_tokens = 0;
  double uncached_prompt_tokens = 0;
  double output_tokens = 0;
};

struct WorkloadWatchOptions {
  double window_seconds = 300;   // requests that ended before are forgotten
  size_t max_requests = 4096;    // that are remembered
  double recent_seconds = 15;    // whose requests count, and
  size_t min_requests = 40;      // so many; where the window has fewer, nothing is said
  double band = 1.5;             // a figure is off beyond this factor
  double inner_band = 1.25;      // and is not any more within this one
  double settle_seconds = 5;     // that it must be off
  double interval_seconds = 60;  // between two times that something is judged
};

class WorkloadWatch {
 public:
  explicit WorkloadWatch(const WorkloadWatchOptions& options) : options_(options) {}

  void Add(const ServedRequest& request, double now_seconds);
  // What requests are compared with from now on. A rate of 0 is not compared.
  void SetReference(const WorkloadFigures& reference);
  const WorkloadFigures& reference() const { return reference_; }
  // Asked about once a second, after SetReference: requests have changed for long enough, and may
  // be judged now.
  bool Changed(double now_seconds);
  // They were: nothing is judged again within interval_seconds.
  void NoteJudged(double now_seconds);
  // What the newest requests say; zeros where there are too few.
  WorkloadFigures Recent(double now_seconds) const;
  // The same requests as a workload of one class, with their rate. Requires that there are some.
  v1::Workload Observed(double now_seconds) const;

 private:
  using Ended = std::pair<double, ServedRequest>;  // when, what

  std::deque<Ended>::const_iterator FirstRecent(double now_seconds) const;
  bool IsOff(const WorkloadFigures& recent, double band) const;

  const WorkloadWatchOptions options_;
  std::deque<Ended> ended_;
  WorkloadFigures reference_;
  bool off_ = false;
  double off_since_seconds_ = 0;
  bool judged_ = false;
  double judged_seconds_ = 0;
};

}  // namespace tessera::coordinator
