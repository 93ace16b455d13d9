// The processes of a rehearsal: a coordinator, and one worker process for each machine of the plan,
// which holds all of that machine's emulated devices and dies as one.
//
// Thread rule: one thread. They end with this object.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/cluster_client.h"
#include "deploy/processes/child_process.h"
#include "deploy/rehearsal/rehearsal_report.h"
#include "proto/plan.pb.h"

namespace tessera::deploy {

struct RehearsalProcessOptions {
  std::string folder;   // WriteRehearsalFolder's; logs too
  std::string bin_dir;  // empty: beside this program
  double speed = 1;
  double ready_seconds = 120;  // for all replicas to be ready
};

class RehearsalProcesses {
 public:
  // Returns once all replicas of the plan are ready. Errors have the end of a log.
  static absl::StatusOr<std::unique_ptr<RehearsalProcesses>> Start(
      const RehearsalProcessOptions& options, const v1::DeploymentPlan& plan);
  ~RehearsalProcesses();

  const FormingTimes& times() const { return times_; }
  // Where the coordinator takes requests, on this machine.
  uint16_t http_port() const { return http_port_; }
  size_t machines() const { return machines_.size(); }
  size_t devices() const { return devices_; }
  CpuSeconds Cpu() const;
  // OK while all run.
  absl::Status Check();

  // NotFound lists the machines.
  absl::Status CheckMachine(const std::string& machine) const;
  // Kills all devices of a machine, and starts it again.
  absl::Status KillAndRestart(const std::string& machine);
  // Whether all replicas are ready and all workers are those that run now.
  bool AllReady();

 private:
  struct Machine {
    std::vector<std::string> arguments;
    std::vector<std::string> devices;
    std::unique_ptr<ChildProcess> process;
    std::map<std::string, uint64_t> dead;  // incarnations of devices before the last kill
  };

  RehearsalProcesses(const RehearsalProcessOptions& options, const v1::DeploymentPlan& plan)
      : options_(options), plan_(plan) {}

  absl::Status StartCoordinator();
  absl::Status StartMachines();
  absl::Status StartMachine(const std::string& name, Machine& machine);
  absl::Status AwaitReady();
  // The error of a process that ended.
  absl::Status CheckProcess(ChildProcess& process) const;

  const RehearsalProcessOptions options_;
  const v1::DeploymentPlan& plan_;
  FormingTimes times_;
  CoordinatorDoor door_;
  uint16_t http_port_ = 0;
  std::unique_ptr<ChildProcess> coordinator_;
  std::map<std::string, Machine> machines_;
  size_t devices_ = 0;
  double ended_cpu_seconds_ = 0;  // of workers that were killed
};

}  // namespace tessera::deploy
