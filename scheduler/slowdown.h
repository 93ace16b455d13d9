// Which replicas have become slow: the time of their steps over the time predicted for them,
// against their own past and against the others'.
//
// Idea: a step has a kind (it computes prompts, or it only decodes) and a size (tokens per step).
// What a step of one size takes is learnt per replica, over some ten minutes of steps; sizes
// between known ones are interpolated, larger ones are taken in proportion. Tokens per second are
// no measure: they fall with demand, and a replica that got less would look slower still. A
// slowness that all replicas share is none: then the prediction is wrong, or all of them are
// crowded. After Malleus (arXiv 2410.13333), which plans by such rates.
//
//   usual -> slow   (more than kSlowFrom times, over kWindowSeconds of steps)
//   slow  -> usual  (the factor below kUsualBelow)
//
// The factor rises at once and falls slowly: by half of the difference each half window, and only
// while the replica runs steps. One that stands still from time to time has good seconds between
// bad ones; a factor that followed them would send it requests again each time. A slow replica
// without steps stays slow: whoever routes sends it a request now and then.
//
// Thread rule: one thread. Deterministic; time is an argument (monotonic seconds). Complexity:
// O(replicas x sizes) per call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace tessera::scheduler {

// Counters of a replica's engine, or of one worker's part in its steps, that only grow.
struct StepTotals {
  int64_t decode_steps = 0;
  double decode_seconds = 0;
  int64_t prefill_steps = 0;  // those that computed prompt tokens
  double prefill_seconds = 0;
  int64_t prompt_tokens = 0;
  int64_t generation_tokens = 0;  // sampled, in steps of both kinds
};

// The time of steps by their size.
class StepHistory {
 public:
  // Steps of `size` tokens took so long. Where they were `usual` they weigh as much as each before
  // them, until those are many; else little, and a new size is not learnt.
  void Learn(double size, double seconds_per_step, bool usual);
  // Seconds of one step; 0: too little is known. A size below all that are known takes as long as
  // the least.
  double Predict(double size) const;

 private:
  struct Known {
    double size = 0, seconds = 0;
    int64_t samples = 0;
  };
  std::map<int, Known> known_;  // by quarters of an octave
};

class SlowdownWatch {
 public:
  static constexpr double kWindowSeconds = 3;
  static constexpr double kSlowFrom = 1.25, kUsualBelow = 1.1;

  // The totals of one replica now; where they fell, they are another process's, and its past is
  // forgotten. Call a few times a second.
  void Observe(const std::string& replica, const StepTotals& totals, double now_seconds);
  // After all were observed.
  void Judge(double now_seconds);
  // How many times longer its steps take than they did; 1: it is not slow, or not known.
  double Of(const std::string& replica) const;
  void Forget(const std::string& replica);

 private:
  // What was done between two observations.
  struct Interval {
    double end_seconds = 0;
    int64_t steps = 0;
    double taken_seconds = 0, predicted_seconds = 0;
  };
  struct Replica {
    StepTotals last;
    double last_seconds = 0;
    bool seen = false;
    StepHistory decode, prefill;
    std::deque<Interval> window;
    double factor = 1;
    double lowered_seconds = 0;  // when the factor fell last
    // The window against its own past alone; 0: too little was done.
    double own = 0;
  };

  static double Ratio(const Replica& replica);

  std::map<std::string, Replica> replicas_;
};

}  // namespace tessera::scheduler
