#include "coordinator/deployment/plan_state.h"

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

// Empty: it is ready.
std::string WhyNotReady(const std::string& device,
                        const std::map<std::string, WorkerRecord>& workers) {
  const auto found = workers.find(device);
  if (found == workers.end()) {
    return absl::StrCat("no worker named ", device, " has registered (tessera-worker --name ",
                        device, ")");
  }
  const WorkerRecord& worker = found->second;
  if (worker.load.draining()) return absl::StrCat("worker ", device, " is draining");
  switch (worker.state) {
    case v1::WORKER_STATE_READY: return "";
    case v1::WORKER_STATE_LOST: return absl::StrCat("worker ", device, " is lost: ", worker.detail);
    case v1::WORKER_STATE_FAILED:
      return absl::StrCat("worker ", device, " could not be configured: ", worker.detail);
    case v1::WORKER_STATE_CONFIGURING:
      return absl::StrCat("worker ", device, " is being configured: ", worker.detail);
    default: return absl::StrCat("worker ", device, " has registered and is configured next");
  }
}

}  // namespace

std::vector<std::string> MissingDevices(const v1::DeploymentPlan& plan,
                                        const std::map<std::string, WorkerRecord>& workers) {
  std::vector<std::string> missing;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& planned : stage.workers()) {
        const auto found = workers.find(planned.device());
        if (found == workers.end() || found->second.state == v1::WORKER_STATE_LOST)
          missing.push_back(planned.device());
      }
    }
  }
  return missing;
}

std::string WhyNotServing(const v1::Replica& replica,
                          const std::map<std::string, WorkerRecord>& workers) {
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& planned : stage.workers()) {
      std::string why = WhyNotReady(planned.device(), workers);
      if (!why.empty()) return why;
    }
  }
  return "its leader takes no requests at the moment";
}

}  // namespace tessera::coordinator
