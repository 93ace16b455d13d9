// How many drafts are worth a step's time: as many as give the most tokens a second, by how often
// drafts stood and by how long steps took.
//
// E(k) = 1 + a1 + a1 a2 + ... + a1...ak tokens come of a sequence with k drafts, where ai is how
// often draft i stood behind those before it: of late, of the sequence, and of all of the engine
// while it has had few. T(rows) is what steps of so many rows took that had no prompts. A step of
// which `tokens` are expected without it and which has `rows` gives (tokens + E(k) - 1) / T(rows
// + k) a second; where drafts that stood are computed again, the next step has these rows, too. So
// drafts are tried in rows that hide behind reading weights, and end by
// themselves where many sequences fill those.
//
// Thread rule: one thread (the engine's). Deterministic. Memory is allocated by the constructors.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "worker/drafts/draft_source.h"

namespace tessera::worker {

// How often drafts stood, by their place in the list; the older, the less it counts.
class Acceptance {
 public:
  // A list of `tried` drafts, of which the first `accepted` stood.
  void Note(int64_t tried, int64_t accepted);
  // The share of drafts at `place` (from 0) that stood behind those before it; `prior` counts like
  // a few that were tried first.
  double At(int64_t place, double prior) const;

 private:
  struct Place {
    double tried = 0, stood = 0;
    double prior_left = 1;  // of its weight
  };
  std::array<Place, kMaxDrafts> places_;
};

// Seconds of steps by their rows; the older, the less it counts.
class StepTimes {
 public:
  static constexpr int64_t kMaxRows = 512;  // more count as so many

  StepTimes() : seconds_(kMaxRows + 1, 0.0), noted_(kMaxRows + 1, 0) {}
  void Note(int64_t rows, double seconds);
  // Between measured ones by interpolation, beyond them as the nearest. 0: nothing was measured.
  double At(int64_t rows) const;
  // Whether steps of so many rows were never measured, or not for a while.
  bool IsStale(int64_t rows) const;

 private:
  static constexpr int64_t kFresh = 256;  // notes

  std::vector<double> seconds_;  // by rows; 0: not measured
  std::vector<int64_t> noted_;   // by rows: which note was the last
  int64_t notes_ = 0;
};

// What a step has so far: expected tokens, and rows.
struct DraftedStep {
  double tokens = 0;
  int64_t rows = 0;
  bool repeats = false;  // a draft that stands is a row of the next step once more
};

class DraftLengths {
 public:
  // The next longer list than one of so many drafts that Choose may choose.
  static int64_t Longer(int64_t length);
  // How many of `most` drafts (kMaxDrafts at most) of a sequence to try, for which `before` were
  // tried last: none, or more than those, only for a gain of 5 % of the step's tokens, of 16 at
  // most. Adds them to `step`.
  int64_t Choose(const Acceptance& own, int64_t most, int64_t before, DraftedStep* step) const;
  void NoteList(int64_t tried, int64_t accepted) { all_.Note(tried, accepted); }
  // Whether the next step, of so many rows without drafts, is to have none: a source that always
  // proposes some leaves nothing to compare with.
  bool WantsPlainStep(int64_t rows) const { return times_.IsStale(rows); }
  // For a step without prompts.
  void NoteStep(int64_t rows, double seconds) {
    times_.Note(rows, seconds);
    ++steps_;
  }
  int64_t steps() const { return steps_; }  // that were noted

 private:
  Acceptance all_;
  StepTimes times_;
  int64_t steps_ = 0;
};

}  // namespace tessera::worker
