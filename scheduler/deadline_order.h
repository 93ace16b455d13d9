// The order of calls that have deadlines in the queue of a replica: the least slack first among
// those that can still make it. The daemon and the simulator's workflows both order here.
//
// A call may be one of several stages of a workflow with one deadline for the whole: its part of
// what is left is then divided by the stages left, this one included (HexGen-Text2SQL). Its slack
// is that part less what the call takes. What cannot make it any more goes behind all that can:
// under overload the order by slack alone would serve the late ones first, and make the others
// late.
//
// Thread rule: pure functions. Units: seconds; deadlines on the clock of `now`.
#pragma once

namespace tessera::scheduler {

struct DeadlineCall {
  double deadline_seconds = 0;  // of its workflow
  double stages_left = 1;       // >= 1
  double expected_seconds = 0;  // that it takes once it has begun
};

// When it must have begun, so that its part of what is left suffices.
double LatestBegin(const DeadlineCall& call, double now_seconds);
bool CanMakeIt(const DeadlineCall& call, double now_seconds);
// By which queues are ordered: the lowest first. It holds from now on: slack shrinks for all alike.
// Those that cannot make it are ordered among themselves by when they were asked.
double DeadlineRank(const DeadlineCall& call, double now_seconds);

}  // namespace tessera::scheduler
