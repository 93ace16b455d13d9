// How much later than the cost model says emulated steps end: what decides whether a rehearsal on
// this machine says anything.
//
// Values fall into buckets, each a fifth wider than the one before it, so that the figures of
// several processes can be added up.
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

namespace tessera::worker {

class Lateness {
 public:
  // One step of `model_seconds` that ended so much later.
  void Note(double model_seconds, double late_seconds);

  // {"steps": ..., "model_seconds": ..., "late_seconds": [[upper bound, steps], ...],
  // "late_share": [...]}: of the buckets that are not empty; a share is one of the step's time.
  std::string Json() const;

 private:
  static constexpr int kBuckets = 128;
  using Counts = std::array<int64_t, kBuckets>;

  mutable std::mutex mutex_;
  int64_t steps_ = 0;
  double model_seconds_ = 0;
  Counts late_{}, share_{};
};

}  // namespace tessera::worker
