#include "worker/engine/fair_turns.h"

#include <algorithm>

namespace tessera::worker {

uint64_t FairTurns::Enter(int32_t priority, uint64_t group, uint64_t asked) {
  Queue& queue = queues_[priority];
  ++queue.waiting;
  if (group == 0) return asked > 0 ? asked : queue.turn + 1;
  Group& of = queue.groups[group];
  ++of.waiting;
  of.last_turn = asked > 0 ? asked : std::max(of.last_turn, queue.turn) + 1;
  return of.last_turn;
}

void FairTurns::Leave(int32_t priority, uint64_t group, uint64_t turn, bool started) {
  const auto found = queues_.find(priority);
  if (found == queues_.end()) return;
  Queue& queue = found->second;
  if (started) queue.turn = std::max(queue.turn, turn);
  const auto of = queue.groups.find(group);
  if (of != queue.groups.end() && --of->second.waiting == 0) queue.groups.erase(of);
  if (--queue.waiting == 0) queues_.erase(found);
}

}  // namespace tessera::worker
