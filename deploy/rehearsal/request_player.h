// Plays requests against a coordinator, each at its time, as streams over its HTTP door, and notes
// when their tokens came. A stream has a connection of its own, as a client's has; ones that are
// free carry the next requests.
//
// Thread rule: one thread, which blocks until all have ended. Prompts are token ids that depend on
// the request's number alone; of each, the part that the workload has in a prefix cache is the same
// in all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/simulator/request.h"

namespace tessera::deploy {

struct PlayOptions {
  uint16_t http_port = 0;       // of the coordinator, on this machine
  int64_t vocabulary = 0;       // prompts are of ids below it
  double speed = 1;             // workload's seconds that pass in one second
  double patience_seconds = 0;  // for the last answers, behind the last arrival
  // Asked between events, some ten times a second; true ends the play. May be empty.
  std::function<bool()> stop = nullptr;
};

// Seconds of the clock since the play began, not slowed; -1: it never came.
struct PlayedRequest {
  double sent_seconds = -1;
  double first_token_seconds = -1;
  double last_token_seconds = -1;
  double longest_gap_seconds = 0;  // between two of its tokens
  double longest_gap_end_seconds = -1;
  int64_t tokens = 0;
  bool finished = false;  // with all tokens that it was to get
  std::string error;      // of one that failed
};

struct Play {
  std::vector<PlayedRequest> requests;  // one for each
  double seconds = 0;                   // that it took
  int64_t most_streams = 0;             // at once
  bool stopped = false;
};

Play PlayRequests(const PlayOptions& options,
                  const std::vector<scheduler::SimulatedRequest>& requests);

}  // namespace tessera::deploy
