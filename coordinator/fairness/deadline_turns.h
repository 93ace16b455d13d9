// Turns of requests that have deadlines, among those of the same client that wait: least slack
// first (scheduler/deadline_order.h). A request with less slack than others that wait gets a turn
// before theirs; one that cannot make its deadline any more gets a turn far behind, which comes all
// the same. Fairness between clients counts tokens as ever: whoever is served earlier pays as much.
//
// Requests of one workflow have one deadline: who names it once need not do so again.
//
// Thread rule: one thread. Units: monotonic seconds; turns as of FairClock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/flow/generation.h"
#include "scheduler/deadline_order.h"

namespace tessera::coordinator {

// A turn later than those of what is asked for within a while, in tokens.
inline constexpr uint64_t kBehindTokens = uint64_t{1} << 17;

class DeadlineTurns {
 public:
  struct Place {
    uint64_t turn = 0;
    double asked_seconds = 0;
    double deadline_seconds = 0;
    double latest_begin_seconds = 0;  // then it gets `late_turn`
    uint64_t late_turn = 0;
    double rank = 0;
  };

  // Nullopt: the request has no deadline. `turn`: its own, without one. `expected_seconds`: that it
  // takes once it has begun.
  std::optional<Place> Enter(const GenerationRequest& request, uint64_t turn,
                             double expected_seconds, double now_seconds);
  // It waits no more.
  void Leave(const std::string& client, const Place& place);

 private:
  // The request's own, which it then sets for its workflow, or the workflow's.
  std::optional<double> DeadlineOf(const GenerationRequest& request, double now_seconds);

  std::map<std::string, std::multimap<double, uint64_t>> waiting_;   // by client: turns by rank
  std::map<std::pair<std::string, std::string>, double> workflows_;  // by client and id: deadlines
};

}  // namespace tessera::coordinator
