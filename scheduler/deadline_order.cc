#include "scheduler/deadline_order.h"

namespace tessera::scheduler {
namespace {

constexpr double kBehindSeconds = 1e9;  // longer than any deadline is away

}  // namespace

double LatestBegin(const DeadlineCall& call, double now_seconds) {
  return now_seconds + (call.deadline_seconds - now_seconds) / call.stages_left -
         call.expected_seconds;
}

bool CanMakeIt(const DeadlineCall& call, double now_seconds) {
  return LatestBegin(call, now_seconds) >= now_seconds;
}

double DeadlineRank(const DeadlineCall& call, double now_seconds) {
  return CanMakeIt(call, now_seconds) ? LatestBegin(call, now_seconds)
                                      : kBehindSeconds + now_seconds;
}

}  // namespace tessera::scheduler
