#include "worker/drafts/draft_lengths.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tessera::worker {
namespace {

constexpr double kKeptTries = 0.85;   // of those noted, at each later note
constexpr double kKeptSeconds = 0.9;  // the same
constexpr double kPriorTries = 2;     // that a prior counts for
constexpr double kFirstGuess = 0.5;   // of acceptance, before anything was tried
constexpr double kMinGuess = 0.15;    // of a sequence for which none was tried
constexpr double kWorthIt = 0.05;     // of a step's tokens, gained in its time
// As many tokens of a step count for that: else one of many sequences, which adds two tokens to a
// hundred, would never be worth it, and all of them together would have none.
constexpr double kWorthOf = 16;
constexpr int64_t kLengths[] = {0, 1, 2, 3, 4, 6};

}  // namespace

void Acceptance::Note(int64_t tried, int64_t accepted) {
  for (int64_t place = 0; place < std::min(tried, accepted + 1); ++place) {
    Place& at = places_[place];
    at.prior_left *= kKeptTries;
    at.tried = kKeptTries * at.tried + 1;
    at.stood = kKeptTries * at.stood + (place < accepted ? 1 : 0);
  }
}

double Acceptance::At(int64_t place, double prior) const {
  const Place& at = places_[place];
  const double prior_tries = kPriorTries * at.prior_left;
  return (at.stood + prior_tries * prior) / (at.tried + prior_tries);
}

bool StepTimes::IsStale(int64_t rows) const {
  rows = std::clamp<int64_t>(rows, 0, kMaxRows);
  return seconds_[rows] == 0 || notes_ - noted_[rows] > kFresh;
}

void StepTimes::Note(int64_t rows, double seconds) {
  rows = std::clamp<int64_t>(rows, 0, kMaxRows);
  noted_[rows] = ++notes_;
  double& mean = seconds_[rows];
  mean = mean == 0 ? seconds : kKeptSeconds * mean + (1 - kKeptSeconds) * seconds;
}

double StepTimes::At(int64_t rows) const {
  rows = std::clamp<int64_t>(rows, 0, kMaxRows);
  int64_t below = rows, above = rows;
  while (below >= 0 && seconds_[below] == 0) --below;
  while (above <= kMaxRows && seconds_[above] == 0) ++above;
  if (below < 0) return above > kMaxRows ? 0 : seconds_[above];
  if (above > kMaxRows || above == below) return seconds_[below];
  const double share = static_cast<double>(rows - below) / static_cast<double>(above - below);
  return seconds_[below] + share * (seconds_[above] - seconds_[below]);
}

int64_t DraftLengths::Longer(int64_t length) {
  return *std::upper_bound(std::begin(kLengths), std::end(kLengths) - 1, length);
}

int64_t DraftLengths::Choose(const Acceptance& own, int64_t most, int64_t before,
                             DraftedStep* step) const {
  std::array<double, kMaxDrafts + 1> gained =
      {};             // tokens that so many drafts are expected to give
  double stands = 1;  // the chance that all of them do
  for (int64_t drafts = 1; drafts <= most; ++drafts) {
    const double prior = std::max(kMinGuess, all_.At(drafts - 1, kFirstGuess));
    stands *= own.At(drafts - 1, prior);
    gained[drafts] = gained[drafts - 1] + stands;
  }
  const auto rate = [&](int64_t drafts, double worth_it = 0) {
    const double again = step->repeats ? gained[drafts] : 0;
    const double seconds = times_.At(step->rows + drafts + std::lround(again));
    const double tokens = step->tokens + gained[drafts];
    return seconds > 0 ? (tokens + worth_it * std::min(tokens, kWorthOf)) / seconds
                       : gained[drafts];
  };
  int64_t best = 0;
  for (const int64_t length : kLengths) {
    if (length <= most && rate(length) > rate(best)) best = length;
  }
  if (rate(best) <= rate(0, kWorthIt)) {
    best = 0;
  } else if (best > before && rate(best) <= rate(before, kWorthIt)) {
    best = before;
  }
  step->tokens += gained[best];
  step->rows += best;
  return best;
}

}  // namespace tessera::worker
