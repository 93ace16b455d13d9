// The ranges of the numbers that sampling takes: every door holds requests against them, and the
// worker too, which also takes 0 for a number that is not set. Thread rule: constants.
#pragma once

namespace tessera {

struct NumberRange {
  double min = 0;
  double max = 0;
  bool above_min = false;  // the least itself is none of them
};

inline constexpr NumberRange kTemperatureRange = {0, 1000};
inline constexpr NumberRange kTopPRange = {0, 1, /*above_min=*/true};
inline constexpr NumberRange kMinPRange = {0, 1};
inline constexpr NumberRange kRepetitionPenaltyRange = {1e-6, 1e6};
inline constexpr NumberRange kPenaltyRange = {-2, 2};  // of presence and of frequency

}  // namespace tessera
