// Layouts that a person wrote (`tessera plan --layout FILE`), judged by the planner's own code.
//
//   replicas:
//   - role: both                          # both, prefill or decode; both where it is not given
//     stages:
//     - {devices: [a/0..3], layers: 48}   # as plans name them; the width is their number
//     - {devices: [b/0..1], layers: 32}
//     - {devices: [c/0, c/1], layers: 4, fractions: [0.64, 0.36]}   # unlike devices share layers;
//                                         # without fractions they are cut by speed and memory
//
// Thread rule: pure functions. Errors: InvalidArgument naming file, key and reason;
// ResourceExhausted naming every device without room and the GiB it lacks.
#pragma once

#include <string>

#include "proto/plan.pb.h"
#include "scheduler/search/layout/problem.h"

namespace tessera::scheduler {

// A search that answers with this layout, for PlannerOptions::given_search. `file` is for messages.
Search GivenLayout(v1::WrittenLayout layout, std::string file);

// What somebody would have to write to get this plan.
v1::WrittenLayout LayoutOf(const v1::DeploymentPlan& plan);

}  // namespace tessera::scheduler
