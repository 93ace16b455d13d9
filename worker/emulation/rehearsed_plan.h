// What a plan, and the cluster that it was made for, say of emulated devices: their memory, what
// they hold, and what a step of their replica takes.
//
// Thread rule: immutable; any thread. Errors name the file, or the kind, and the reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/worker.pb.h"
#include "worker/emulation/step_cost.h"

namespace tessera::worker {

class RehearsedPlan {
 public:
  // Reads plan.json and cluster.json of the folder.
  static absl::StatusOr<std::shared_ptr<const RehearsedPlan>> Read(const std::string& folder);
  // A machine "machine" with one device of that kind of the catalogue, which holds all of the model
  // that `request` is for.
  static absl::StatusOr<std::shared_ptr<const RehearsedPlan>> OfOneDevice(
      const std::string& kind, const v1::ConfigureRequest& request);

  // Null: the plan does not use it.
  const v1::PlannedWorker* FindWorker(const std::string& device) const;
  // NotFound: the plan has no such replica, or one of other stages.
  absl::StatusOr<std::shared_ptr<const StepCost>> CostOf(const std::string& replica,
                                                         int stages) const;
  // How long one head's KV of one token and layer takes to the replica that decodes for this
  // device's, the slowest where there are several; 0: it hands none over.
  double KvSecondsOf(const std::string& device) const;

 private:
  struct Costs;

  absl::Status Price(const v1::Cluster& cluster, const std::string& file);

  v1::DeploymentPlan plan_;
  std::shared_ptr<const Costs> costs_;
};

// Bytes of a device of that kind of the catalogue. NotFound lists what there is.
absl::StatusOr<int64_t> CatalogueMemory(const std::string& kind);

}  // namespace tessera::worker
