#include "deploy/rehearsal_processes.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "deploy/rehearsal/rehearsal_folder.h"
#include "proto/emulated_kind.h"
#include "proto/file_text.h"

namespace tessera::deploy {
namespace {

constexpr double kCoordinatorSeconds = 60;
constexpr double kEndSeconds = 5;
constexpr std::chrono::milliseconds kPoll(50);
constexpr size_t kLogTail = 1500;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// User and system time; 0 for a process that is gone.
double CpuOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const size_t name_end = line.rfind(')');  // a name may hold spaces
  if (name_end == std::string::npos) return 0;
  unsigned long user = 0, system = 0;
  if (sscanf(line.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
             &user, &system) != 2)
    return 0;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string FileName(const std::string& machine) {
  std::string name = machine;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RehearsalProcesses>> RehearsalProcesses::Start(
    const RehearsalProcessOptions& options, const v1::DeploymentPlan& plan) {
  std::unique_ptr<RehearsalProcesses> processes(new RehearsalProcesses(options, plan));
  absl::Status status = processes->StartCoordinator();
  if (status.ok()) status = processes->StartMachines();
  if (status.ok()) status = processes->AwaitReady();
  if (!status.ok()) return status;
  return processes;
}

RehearsalProcesses::~RehearsalProcesses() {
  const auto end = [](ChildProcess* process) {
    if (process != nullptr) process->Signal(SIGTERM);
  };
  end(coordinator_.get());
  for (auto& [name, machine] : machines_) end(machine.process.get());
  const double deadline = Now() + kEndSeconds;
  const auto wait = [&](ChildProcess* process) {
    if (process != nullptr) process->WaitFor(std::max(0.0, deadline - Now()));
  };
  wait(coordinator_.get());
  for (auto& [name, machine] : machines_) wait(machine.process.get());
}

absl::Status RehearsalProcesses::CheckProcess(ChildProcess& process) const {
  const std::optional<std::string> ended = process.Ended();
  if (!ended.has_value()) return absl::OkStatus();
  std::string log = ReadFileText(process.log_file(), int64_t{64} << 20).value_or("");
  if (log.size() > kLogTail) log = log.substr(log.size() - kLogTail);
  return absl::AbortedError(
      absl::StrCat(process.name(), " ", *ended, "; the end of ", process.log_file(), ":\n", log));
}

absl::Status RehearsalProcesses::Check() {
  if (absl::Status s = CheckProcess(*coordinator_); !s.ok()) return s;
  for (auto& [name, machine] : machines_) {
    if (absl::Status s = CheckProcess(*machine.process); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status RehearsalProcesses::StartCoordinator() {
  const double begin = Now();
  const auto program = FindProgram(options_.bin_dir, "tessera-coordinator");
  if (!program.ok()) return program.status();
  const std::string ports = options_.folder + "/ports";
  // Time-outs are slowed as everything is that they wait for.
  const std::vector<std::string> arguments = {
      *program,
      options_.folder,
      "--rehearsal",
      "--plan",
      absl::StrCat(options_.folder, "/", std::string(kRehearsedPlanFile)),
      "--port",
      "0",
      "--grpc-port",
      "0",
      "--port-file",
      ports,
      "--shutdown-timeout",
      "1",
      "--progress-timeout",
      absl::StrCat(60 / options_.speed)};
  std::error_code none;
  std::filesystem::remove(ports, none);  // of a rehearsal before in this folder
  auto started =
      ChildProcess::Start("coordinator", arguments, options_.folder + "/coordinator.log");
  if (!started.ok()) return started.status();
  coordinator_ = std::make_unique<ChildProcess>(*std::move(started));
  while (Now() - begin < kCoordinatorSeconds) {
    if (absl::Status s = CheckProcess(*coordinator_); !s.ok()) return s;
    unsigned http = 0, grpc = 0;
    std::ifstream file(ports);
    std::string line;
    if (std::getline(file, line) && sscanf(line.c_str(), "http=%u grpc=%u", &http, &grpc) == 2) {
      CoordinatorFlags flags;
      flags.address = absl::StrCat("127.0.0.1:", grpc);
      auto door = ReadDoor(flags);
      if (!door.ok()) return door.status();
      door_ = *std::move(door);
      http_port_ = static_cast<uint16_t>(http);
      times_.coordinator = Now() - begin;
      return absl::OkStatus();
    }
    std::this_thread::sleep_for(kPoll);
  }
  return absl::DeadlineExceededError("the coordinator did not write its ports in time");
}

absl::Status RehearsalProcesses::StartMachines() {
  const auto program = FindProgram(options_.bin_dir, "tessera-worker");
  if (!program.ok()) return program.status();
  std::map<std::string, std::map<int, std::string>> kinds;  // of each machine, by index
  for (const v1::Replica& replica : plan_.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      for (const v1::PlannedWorker& worker : stage.workers())
        kinds[MachineOf(worker.device())][IndexOf(worker.device())] = worker.kind();
    }
  }
  for (const auto& [name, devices] : kinds) {
    Machine& machine = machines_[name];
    const int first = devices.begin()->first;
    std::vector<std::string> listed;
    for (const auto& [index, kind] : devices) {
      // A device that the plan leaves idle stands by, so that names count through.
      while (first + static_cast<int>(listed.size()) < index) listed.push_back(kind);
      listed.push_back(kind);
      machine.devices.push_back(absl::StrCat(name, "/", index));
    }
    devices_ += devices.size();
    machine.arguments = {*program,
                         "--coordinator",
                         door_.address,
                         "--name",
                         absl::StrCat(name, "/", first),
                         "--device",
                         absl::StrCat(std::string(kEmulatedKind), absl::StrJoin(listed, ",")),
                         "--rehearsal-folder",
                         options_.folder,
                         "--rehearsal-speed",
                         absl::StrFormat("%.9g", options_.speed),
                         "--drain-seconds",
                         "0"};
    if (absl::Status s = StartMachine(name, machine); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status RehearsalProcesses::StartMachine(const std::string& name, Machine& machine) {
  auto started =
      ChildProcess::Start(absl::StrCat("machine ", name), machine.arguments,
                          absl::StrCat(options_.folder, "/machine-", FileName(name), ".log"));
  if (!started.ok()) return started.status();
  machine.process = std::make_unique<ChildProcess>(*std::move(started));
  return absl::OkStatus();
}

absl::Status RehearsalProcesses::AwaitReady() {
  const double begin = Now();
  double registered = 0;
  std::string last = "nothing answered";
  while (Now() - begin < options_.ready_seconds) {
    if (absl::Status s = Check(); !s.ok()) return s;
    const auto cluster = FetchCluster(door_, 5);
    if (!cluster.ok()) {
      last = std::string(cluster.status().message());
      continue;
    }
    const auto workers = static_cast<size_t>(cluster->workers_size());
    if (registered == 0 && workers >= devices_) registered = Now();
    int ready = 0;
    for (const v1::ReplicaStatus& replica : cluster->replicas()) {
      ready += replica.ready();
      if (!replica.ready() && !replica.detail().empty())
        last = absl::StrCat(replica.name(), ": ", replica.detail());
    }
    for (const v1::WorkerStatus& worker : cluster->workers()) {
      if (worker.state() == v1::WORKER_STATE_FAILED)
        return absl::FailedPreconditionError(
            absl::StrCat("worker ", worker.name(), ": ", worker.detail()));
    }
    if (registered > 0 && ready > 0 && ready == plan_.replicas_size()) {
      times_.workers = registered - begin;
      times_.replicas = Now() - registered;
      return absl::OkStatus();
    }
    std::this_thread::sleep_for(kPoll);
  }
  return absl::DeadlineExceededError(
      absl::StrFormat("the plan's replicas were not ready within %.0f s (%s); logs are in %s",
                      options_.ready_seconds, last, options_.folder));
}

CpuSeconds RehearsalProcesses::Cpu() const {
  CpuSeconds seconds;
  seconds.coordinator = CpuOf(coordinator_->pid());
  seconds.workers = ended_cpu_seconds_;
  for (const auto& [name, machine] : machines_) seconds.workers += CpuOf(machine.process->pid());
  return seconds;
}

absl::Status RehearsalProcesses::CheckMachine(const std::string& machine) const {
  if (machines_.contains(machine)) return absl::OkStatus();
  std::string names;
  for (const auto& [name, known] : machines_)
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  return absl::NotFoundError(
      absl::StrCat("--kill ", machine, ": the plan uses no such machine; it uses ", names));
}

absl::Status RehearsalProcesses::KillAndRestart(const std::string& name) {
  if (absl::Status s = CheckMachine(name); !s.ok()) return s;
  Machine& machine = machines_[name];
  const auto cluster = FetchCluster(door_, 5);
  if (!cluster.ok()) return cluster.status();
  for (const v1::WorkerStatus& worker : cluster->workers()) {
    if (MachineOf(worker.name()) == name) machine.dead[worker.name()] = worker.incarnation();
  }
  ended_cpu_seconds_ += CpuOf(machine.process->pid());
  machine.process->Signal(SIGKILL);
  machine.process->WaitFor(kEndSeconds);
  return StartMachine(name, machine);
}

bool RehearsalProcesses::AllReady() {
  const auto cluster = FetchCluster(door_, 5);
  if (!cluster.ok()) return false;
  for (const v1::WorkerStatus& worker : cluster->workers()) {
    const auto machine = machines_.find(MachineOf(worker.name()));
    if (machine == machines_.end()) continue;  // somebody else's worker
    const auto dead = machine->second.dead.find(worker.name());
    if (dead != machine->second.dead.end() && dead->second == worker.incarnation()) return false;
  }
  return std::all_of(cluster->replicas().begin(), cluster->replicas().end(),
                     [](const v1::ReplicaStatus& replica) { return replica.ready(); });
}

}  // namespace tessera::deploy
