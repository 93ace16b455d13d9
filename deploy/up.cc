#include "deploy/up.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/child_process.h"
#include "deploy/cluster_client.h"
#include "deploy/local_share.h"

namespace tessera::deploy {
namespace {

namespace fs = std::filesystem;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string LastLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  std::string text;
  for (size_t i = lines.size() > 5 ? lines.size() - 5 : 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, "\n    ", lines[i]);
  }
  return text;
}

// A worker that ended sooner than this after its start would only end again.
constexpr double kLastingSeconds = 5;

class Local {
 public:
  Local(const UpOptions& options, sigset_t signals) : options_(options), signals_(signals) {}

  absl::Status Start() {
    cores_ = AllowedCores("");
    const int workers =
        options_.workers > 0 ? options_.workers : std::min<int>(2, static_cast<int>(cores_.size()));
    absl::StatusOr<std::vector<std::vector<int>>> shares = SplitCores(cores_, workers);
    if (!shares.ok()) return shares.status();
    if (absl::Status s = MakeLogFolder(); !s.ok()) return s;
    if (absl::Status s = StartCoordinator(); !s.ok()) return s;
    for (int i = 0; i < workers; ++i) {
      if (absl::Status s = StartWorker(i, workers, (*shares)[i]); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // All workers serve, or the reason why not.
  absl::StatusOr<v1::GetClusterReply> WaitReady() {
    const double deadline = Now() + options_.ready_timeout_seconds;
    const int wanted = static_cast<int>(children_.size()) - 1;
    std::string last_told;
    for (;;) {
      if (absl::Status s = CheckChildren(); !s.ok()) return s;
      if (SignalCame()) return absl::CancelledError("stopped before the workers were ready");
      absl::StatusOr<v1::GetClusterReply> cluster = FetchCluster(Target(), "", 2.0);
      if (cluster.ok()) {
        int ready = 0;
        std::string told;
        for (const v1::WorkerStatus& worker : cluster->workers()) {
          if (worker.state() == v1::WORKER_STATE_FAILED) {
            return absl::FailedPreconditionError(
                absl::StrCat("worker ", worker.name(), ": ", worker.detail()));
          }
          ready += worker.state() == v1::WORKER_STATE_READY;
          absl::StrAppend(&told, told.empty() ? "" : ", ", worker.name(), ": ", worker.detail());
        }
        int serving = 0;
        for (const v1::ReplicaStatus& replica : cluster->replicas()) serving += replica.ready();
        if (ready >= wanted && serving >= wanted) return cluster;
        if (told != last_told && !told.empty()) std::cout << "  " << told << std::endl;
        last_told = told;
      }
      if (Now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrFormat("the workers were not ready within %.0f s; logs are in %s",
                            options_.ready_timeout_seconds, log_folder_));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  // Until a signal, or until a program ends by itself that is not to be started again: the
  // coordinator, which holds the requests, or a worker that does not last.
  absl::Status Watch() {
    while (!SignalCame()) {
      if (absl::Status s = Revive(); !s.ok()) return s;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return absl::OkStatus();
  }

  // The coordinator first: it finishes what runs while the workers still work. A second signal ends
  // all at once.
  void Stop() {
    if (children_.empty()) return;
    children_[0].process->Signal(SIGTERM);
    WaitOrSecondSignal(0, options_.shutdown_timeout_seconds + 5);
    for (size_t i = 1; i < children_.size(); ++i) children_[i].process->Signal(SIGTERM);
    for (size_t i = 1; i < children_.size(); ++i)
      WaitOrSecondSignal(i, options_.shutdown_timeout_seconds);
    children_.clear();  // kills what is left
  }

  UpAddresses addresses() const { return addresses_; }
  const std::string& log_folder() const { return log_folder_; }

 private:
  struct Child {
    std::string name;
    std::vector<std::string> arguments;  // the program first
    std::optional<ChildProcess> process;
    double started_seconds = 0;
  };

  std::string Target() const { return absl::StrCat(options_.host, ":", addresses_.grpc_port); }

  bool SignalCame() const {
    const timespec now = {0, 0};
    return sigtimedwait(&signals_, nullptr, &now) > 0;
  }

  void WaitOrSecondSignal(size_t child, double seconds) {
    const double deadline = Now() + seconds;
    while (!hurry_ && Now() < deadline && !children_[child].process->WaitFor(0.1))
      hurry_ = SignalCame();
  }

  absl::Status MakeLogFolder() {
    log_folder_ = options_.log_dir;
    std::error_code error;
    if (log_folder_.empty()) {
      std::string pattern = (fs::temp_directory_path(error) / "tessera-XXXXXX").string();
      if (mkdtemp(pattern.data()) == nullptr)
        return absl::UnavailableError("no folder for logs can be made");
      log_folder_ = pattern;
    } else {
      fs::create_directories(log_folder_, error);
    }
    return absl::OkStatus();
  }

  absl::Status Launch(const std::string& name, std::vector<std::string> arguments) {
    absl::StatusOr<std::string> program = FindProgram(options_.bin_dir, arguments[0]);
    if (!program.ok()) return program.status();
    arguments[0] = *program;
    children_.emplace_back();
    children_.back().name = name;
    children_.back().arguments = std::move(arguments);
    return Run(children_.back());
  }

  absl::Status Run(Child& child) {
    absl::StatusOr<ChildProcess> process = ChildProcess::Start(
        child.name, child.arguments, absl::StrCat(log_folder_, "/", child.name, ".log"));
    if (!process.ok()) return process.status();
    child.process.emplace(*std::move(process));
    child.started_seconds = Now();
    return absl::OkStatus();
  }

  absl::Status StartCoordinator() {
    const std::string port_file = log_folder_ + "/ports";
    std::vector<std::string> arguments = {"tessera-coordinator",
                                          options_.model,
                                          "--host",
                                          options_.host,
                                          "--port",
                                          std::to_string(options_.port),
                                          "--grpc-port",
                                          std::to_string(options_.grpc_port),
                                          "--port-file",
                                          port_file,
                                          "--shutdown-timeout",
                                          absl::StrCat(options_.shutdown_timeout_seconds)};
    arguments.insert(arguments.end(), options_.coordinator_flags.begin(),
                     options_.coordinator_flags.end());
    std::error_code ignored;
    fs::remove(port_file, ignored);
    if (absl::Status s = Launch("coordinator", std::move(arguments)); !s.ok()) return s;
    const double deadline = Now() + 120;
    while (Now() < deadline) {
      if (absl::Status s = CheckChildren(); !s.ok()) return s;
      if (SignalCame()) return absl::CancelledError("stopped before the coordinator was up");
      unsigned http = 0, grpc = 0;
      std::ifstream file(port_file);
      std::string line;
      if (std::getline(file, line) && sscanf(line.c_str(), "http=%u grpc=%u", &http, &grpc) == 2) {
        addresses_ = {static_cast<uint16_t>(http), static_cast<uint16_t>(grpc)};
        return absl::OkStatus();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return absl::DeadlineExceededError("the coordinator did not say where it listens within 120 s");
  }

  absl::Status StartWorker(int index, int workers, const std::vector<int>& cores) {
    // A tenth stays for the coordinator and the system.
    const int64_t memory_bytes = AvailableMemoryBytes("") / 10 * 9 / workers;
    const std::string name = absl::StrCat("worker-", index);
    return Launch(name, {"tessera-worker", "--coordinator", Target(), "--name",
                         absl::StrCat("local/", index), "--cpus", CoreList(cores), "--memory",
                         std::to_string(memory_bytes), "--cpu-isa", options_.cpu_isa});
  }

  // OK while it runs.
  static absl::Status Check(Child& child) {
    const std::optional<std::string> ended = child.process->Ended();
    if (!ended.has_value()) return absl::OkStatus();
    const std::string& log = child.process->log_file();
    return absl::AbortedError(
        absl::StrCat(child.name, " ", *ended, "; the end of its log ", log, ":", LastLines(log)));
  }

  absl::Status CheckChildren() {
    for (Child& child : children_) {
      if (absl::Status s = Check(child); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Starts ended workers again; what they worked on goes on at the others meanwhile.
  absl::Status Revive() {
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      absl::Status ended = Check(child);
      if (ended.ok()) continue;
      if (i == 0 || Now() - child.started_seconds < kLastingSeconds) return ended;
      std::cout << std::string(ended.message()) << "\n"
                << child.name << " is started again" << std::endl;
      if (absl::Status s = Run(child); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  const UpOptions& options_;
  const sigset_t signals_;
  std::vector<int> cores_;
  std::string log_folder_;
  std::vector<Child> children_;  // the coordinator first
  UpAddresses addresses_;
  bool hurry_ = false;
};

}  // namespace

absl::Status Up(
    const UpOptions& options, bool once,
    const std::function<absl::Status(const UpAddresses&, const v1::GetClusterReply&)>& when_ready) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);

  Local local(options, signals);
  absl::Status status = local.Start();
  if (!status.ok()) {
    local.Stop();
    return status;
  }
  std::cout << "starting; logs are in " << local.log_folder() << std::endl;
  absl::StatusOr<v1::GetClusterReply> cluster = local.WaitReady();
  status = cluster.status();
  if (status.ok()) status = when_ready(local.addresses(), *cluster);
  if (status.ok() && !once) status = local.Watch();
  std::cout << "stopping" << std::endl;
  local.Stop();
  return status;
}

}  // namespace tessera::deploy
