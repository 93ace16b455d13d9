// The role of a replica as plans write it. Thread rule: pure function.
#pragma once

#include "proto/plan.pb.h"
#include "scheduler/cost/replica_cost.h"

namespace tessera::scheduler {

inline v1::ReplicaRole ToProto(Role role) {
  switch (role) {
    case Role::kBoth: return v1::REPLICA_ROLE_BOTH;
    case Role::kPrefill: return v1::REPLICA_ROLE_PREFILL;
    case Role::kDecode: return v1::REPLICA_ROLE_DECODE;
  }
  return v1::REPLICA_ROLE_UNSPECIFIED;
}

}  // namespace tessera::scheduler
