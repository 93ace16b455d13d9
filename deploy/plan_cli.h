// `tessera plan` and its subcommands apply, check, diff, init, import-helix: flags and what is
// printed.
//
// Thread rule: from main alone. Prints answers to stdout, errors to stderr.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deploy/cluster_client.h"
#include "deploy/plan_command.h"
#include "third_party/cli11/flags.h"

namespace tessera::deploy {

class PlanCli {
 public:
  // Adds the subcommand; both must outlive the parsing.
  explicit PlanCli(const Command& app);
  PlanCli(const PlanCli&) = delete;
  PlanCli& operator=(const PlanCli&) = delete;

  // After parsing: the exit code.
  int Run();

 private:
  void AddPlan();
  void AddApply();
  void AddCheck();
  void AddDiff();
  void AddInit();
  void AddImport();
  int RunPlan();
  int RunShared();
  int RunApply();
  int RunCheck();
  int RunDiff();
  int RunInit();
  int RunImport();
  int RunWhatIf();
  absl::Status CheckFiles() const;
  absl::Status WritePicture(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                            const scheduler::PlannerInput& input) const;
  // Sensitivity, and the files that flags name.
  absl::Status Finish(const PlanQuestion& question, v1::DeploymentPlan* plan) const;

  const Command plan_;
  PlanFlags flags_;
  std::vector<std::string> models_, workloads_;  // several models share the cluster
  std::vector<double> rates_;
  std::optional<bool> split_;  // true: everywhere; false: nowhere
  bool kv_int4_ = false;
  bool sensitivity_ = false;  // search again
  bool quick_ = false;        // no simulation of the promised rate
  bool explain_ = false;      // all that is known, not the summary
  std::string out_;           // file for plan.json
  std::string what_if_;       // changes
  std::string checked_plan_, checked_cluster_, checked_model_;
  std::string diff_from_, diff_to_;
  std::vector<std::string> applied_plans_;
  CoordinatorFlags coordinator_;
  double apply_timeout_seconds_ = 3600;
  std::string init_out_;
  std::string import_from_, import_profiles_, import_out_;
  std::string picture_;            // file for the SVG
  double time_limit_seconds_ = 0;  // 0: none
};

}  // namespace tessera::deploy
