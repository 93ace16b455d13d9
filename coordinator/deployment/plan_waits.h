// How far a plan is carried out, in words: for logs, /ready and `tessera status`. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "coordinator/deployment/worker_pool.h"
#include "proto/plan.pb.h"

namespace tessera::coordinator {

// Devices that the plan uses and no live worker stands for, in the plan's order.
std::vector<std::string> MissingDevices(const v1::DeploymentPlan& plan,
                                        const std::map<std::string, WorkerRecord>& workers);

// One line about these, and beside them the live workers whose names the plan does not have: one
// may be meant for the other. Empty: none is missing.
std::string DescribeMissing(const v1::DeploymentPlan& plan,
                            const std::map<std::string, WorkerRecord>& workers);

// Why no replica can count on `device` now: no such worker, lost, or draining. Empty: it can.
std::string WhyAbsent(const std::string& device,
                      const std::map<std::string, WorkerRecord>& workers);

// What a replica that takes no requests waits for: of its devices that are not ready one that holds
// up the others (not there, failed, draining) before one that loads or waits itself, and why. Never
// empty.
std::string WhyNotServing(const v1::Replica& replica,
                          const std::map<std::string, WorkerRecord>& workers);

// Lines of /ready and `tessera status`: why there is no plan, if there is none (`why_no_plan`);
// each planned replica that is not in `ready`, and what it waits for; each lost worker without a
// place in the plan. At most eight, and then how many more there are.
std::vector<std::string> WhatWaits(const v1::DeploymentPlan& plan, const std::string& why_no_plan,
                                   const std::set<std::string>& ready,
                                   const std::map<std::string, WorkerRecord>& workers);

// Tokens of KV that a replica has room for: the smallest pool's. 0 unless all its devices are
// ready.
int64_t KvTokens(const v1::Replica& replica, const std::map<std::string, WorkerRecord>& workers);

}  // namespace tessera::coordinator
