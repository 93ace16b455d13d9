// What sets the pace of replicas, and the units of figures, in words. Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace tessera::scheduler {

// "requests/s", "requests/s after the loss of a machine", "times the asked rates", "USD/h".
std::string UnitText(v1::ValueUnit unit);

// "KV memory", "--max-sequences, 256 decoding at once": what keeps from more requests at once.
std::string LimitText(const v1::LimitedBy& limit);

// "stage 0 (L4) is the slowest, requests at once are limited by KV memory of stage 1 (T4)".
std::string PaceText(const v1::Pace& pace);

}  // namespace tessera::scheduler
