#include "scheduler/planner/report/weak_replicas.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kWeak = 0.1;  // of what devices of the plan do on average

int DevicesOf(const v1::Replica& replica) {
  int devices = 0;
  for (const v1::Stage& stage : replica.stages()) devices += stage.workers_size();
  return devices;
}

}  // namespace

std::string WeakReplicasLine(const v1::DeploymentPlan& plan) {
  std::map<std::string, double> shares;  // the larger of its parts as prefiller and as decoder
  std::map<std::string, double> decoded;
  for (const v1::RoutingShare& share : plan.routing()) {
    shares[share.prefill_replica()] += share.share();
    decoded[share.decode_replica()] += share.share();
  }
  for (const auto& [name, share] : decoded) shares[name] = std::max(shares[name], share);
  int all = 0;
  for (const v1::Replica& replica : plan.replicas()) all += DevicesOf(replica);
  std::string names;
  int count = 0, devices = 0;
  double served = 0;
  for (const v1::Replica& replica : plan.replicas()) {
    const double share = shares[replica.name()];
    if (share * all >= kWeak * DevicesOf(replica)) continue;
    names += StrCat(count++ == 0 ? "" : ", ", replica.name());
    devices += DevicesOf(replica);
    served += share;
  }
  if (count == 0) return "";
  return absl::StrFormat(
      "%s %s %.2g %% of the requests with %d of the %d devices in use: leaving %s out loses no "
      "more than that",
      names, count == 1 ? "serves" : "serve together", 100 * served, devices, all,
      count == 1 ? "it" : "them");
}

}  // namespace tessera::scheduler
