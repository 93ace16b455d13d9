// The order of the prompts of one request among those of others, so that a request of many prompts
// does not hold up the rest: round robin. A request has one prompt in each turn; one that comes
// again gets the turn that is next; within a turn the earlier arrival goes first. Requests of one
// prompt among themselves go by arrival. Nothing starves: a turn takes no more prompts once one of
// it was started. Time is logarithmic in the requests that wait; what it knows of a request goes
// with the last of its prompts that wait.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>

namespace tessera::worker {

class FairTurns {
 public:
  // The turn of a prompt that begins to wait among those of its priority. `group` names its
  // request; 0: one without other prompts. `asked`: the turn that whoever sends it has chosen; 0:
  // none.
  uint64_t Enter(int32_t priority, uint64_t group, uint64_t asked = 0);
  // The prompt waits no more. `started`: its turn has come.
  void Leave(int32_t priority, uint64_t group, uint64_t turn, bool started);

 private:
  struct Group {
    uint64_t last_turn = 0;
    int64_t waiting = 0;
  };
  struct Queue {
    uint64_t turn = 0;  // the latest of which a prompt was started
    int64_t waiting = 0;
    std::map<uint64_t, Group> groups;
  };

  std::map<int32_t, Queue> queues_;  // by priority, those in which something waits
};

}  // namespace tessera::worker
