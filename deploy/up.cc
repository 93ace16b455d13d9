#include "deploy/up.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/child_process.h"
#include "deploy/cluster_client.h"
#include "deploy/hang_policy.h"
#include "deploy/local_share.h"
#include "deploy/restart_policy.h"
#include "proto/protocol.h"
#include "third_party/linux/cpu_share.h"

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

// How programs of this machine reach what listens on `host`.
std::string LocalAddress(const std::string& host, unsigned port) {
  if (host == "0.0.0.0") return absl::StrCat("127.0.0.1:", port);
  if (host == "::") return absl::StrCat("[::1]:", port);
  return absl::StrCat(absl::StrContains(host, ':') ? absl::StrCat("[", host, "]") : host, ":",
                      port);
}

// Only the owner may read it.
absl::Status WriteSecret(const std::string& path, const std::string& text) {
  unlink(path.c_str());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) close(file);
  if (written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": cannot be written; see --log-dir"));
}

std::string DrawKey() {
  std::random_device random;
  std::string key;
  for (int i = 0; i < 8; ++i) absl::StrAppend(&key, absl::Hex(random(), absl::kZeroPad8));
  return key;
}

// A worker that failed so soon after another one ended may have failed because of that.
constexpr double kSettlingSeconds = 30;
// Between two looks at whether workers hang.
constexpr double kLookSeconds = 1;

class Local {
 public:
  Local(const UpOptions& options, sigset_t signals) : options_(options), signals_(signals) {}

  absl::Status Start() {
    const std::vector<int> cores = AllowedCores("");
    const std::vector<LocalWorker> workers = Workers(cores);
    const auto count = static_cast<int>(workers.size());
    std::vector<CoreNeed> needs;
    for (const LocalWorker& worker : workers)
      needs.push_back({ComputesOnCores(worker.device), worker.near_cores});
    absl::StatusOr<std::vector<std::vector<int>>> shares = SplitCoresByNeed(cores, needs);
    if (!shares.ok()) return shares.status();
    const std::vector<int64_t> memory_bytes = Memory(workers);
    if (std::any_of(workers.begin(), workers.end(),
                    [](const LocalWorker& worker) { return worker.device == "cuda-emulated"; })) {
      std::cout << "cuda-emulated: an emulator runs the GPU's kernels; it is very slow, for tests"
                << std::endl;
    }
    if (absl::Status s = MakeLogFolder(); !s.ok()) return s;
    if (absl::Status s = FindKeys(); !s.ok()) return s;
    if (absl::Status s = StartCoordinator(); !s.ok()) return s;
    for (int i = 0; i < count; ++i) {
      LocalWorker worker = workers[i];
      worker.memory_bytes = memory_bytes[i];
      if (absl::Status s = StartWorker(i, worker, (*shares)[i]); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // All workers serve, or the reason why not.
  absl::StatusOr<v1::GetClusterReply> WaitReady() {
    const double deadline = Now() + options_.ready_timeout_seconds;
    const int wanted = static_cast<int>(children_.size()) - 1;
    for (;;) {
      if (absl::Status s = Revive(); !s.ok()) return s;
      if (SignalCame()) return absl::CancelledError("stopped before the workers were ready");
      absl::StatusOr<v1::GetClusterReply> cluster =
          FetchCluster(addresses_.grpc, addresses_.admin_key, 2.0);
      if (!cluster.ok()) Tell(std::string(cluster.status().message()));
      if (cluster.ok()) {
        EndHanging(*cluster);
        int ready = 0;
        std::string told = cluster->no_plan();
        for (const v1::WorkerStatus& worker : cluster->workers()) {
          const bool settled = Now() - last_end_seconds_ > kSettlingSeconds;
          if (worker.state() == v1::WORKER_STATE_FAILED && settled) {
            return absl::FailedPreconditionError(
                absl::StrCat("worker ", worker.name(), ": ", worker.detail()));
          }
          ready += worker.state() == v1::WORKER_STATE_READY;
          if (!cluster->no_plan().empty()) continue;  // they are idle, and why is told already
          absl::StrAppend(&told, told.empty() ? "" : ", ", worker.name(), ": ", worker.detail());
        }
        int serving = 0;
        for (const v1::ReplicaStatus& replica : cluster->replicas()) serving += replica.ready();
        // A plan may leave workers idle, or need several for one replica.
        const bool planned = !options_.named_workers.empty() && !cluster->replicas().empty();
        if (planned ? serving == cluster->replicas_size() : ready >= wanted && serving >= wanted)
          return cluster;
        Tell(told);
      }
      if (Now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrFormat("the workers were not ready within %.0f s (%s); logs are in %s",
                            options_.ready_timeout_seconds,
                            last_told_.empty() ? "none came" : last_told_, log_folder_));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  // Until a signal, or until a program ends by itself that is not to be started again: the
  // coordinator, which holds the requests, or a worker that ends at once again and again.
  absl::Status Watch() {
    while (!SignalCame()) {
      if (absl::Status s = Revive(); !s.ok()) return s;
      if (Now() >= next_look_seconds_) {
        const auto cluster = FetchCluster(addresses_.grpc, addresses_.admin_key, 2.0);
        if (cluster.ok()) EndHanging(*cluster);
        next_look_seconds_ = Now() + kLookSeconds;
      }
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

  const UpAddresses& addresses() const { return addresses_; }
  const std::string& log_folder() const { return log_folder_; }

 private:
  struct Child {
    std::string name;
    std::string worker;                  // as it registers; empty: the coordinator
    std::vector<std::string> arguments;  // the program first
    std::optional<ChildProcess> process;
    double started_seconds = 0;
    RestartPolicy policy;
    HangPolicy hanging;
    double restart_seconds = 0;  // when it is started again; 0: it runs
  };

  // Bytes for each worker: CPUs share the machine's, other devices keep what they ask for.
  static std::vector<int64_t> Memory(const std::vector<LocalWorker>& workers) {
    std::vector<int64_t> bytes, of_cpus;
    for (const LocalWorker& worker : workers) {
      if (worker.device == "cpu") of_cpus.push_back(worker.memory_bytes);
    }
    of_cpus = SplitMemory(AvailableMemoryBytes(""), of_cpus);
    auto next = of_cpus.begin();
    for (const LocalWorker& worker : workers)
      bytes.push_back(worker.device == "cpu" ? *next++ : worker.memory_bytes);
    return bytes;
  }

  // As many of the named ones as are asked for, or nameless ones.
  std::vector<LocalWorker> Workers(const std::vector<int>& cores) const {
    std::vector<LocalWorker> workers = options_.named_workers;
    if (workers.empty()) {
      const int usual = options_.devices.empty() ? std::min(2, static_cast<int>(cores.size()))
                                                 : static_cast<int>(options_.devices.size());
      workers.resize(options_.workers > 0 ? options_.workers : usual);
      for (size_t i = 0; i < workers.size(); ++i) workers[i].name = absl::StrCat("local/", i);
    } else if (options_.workers > 0) {
      workers.resize(options_.workers);
    }
    for (size_t i = 0; i < options_.devices.size(); ++i) {
      workers[i].device = options_.devices[i].device;
      workers[i].near_cores = options_.devices[i].near_cores;
    }
    return workers;
  }

  // What changed since it was last told.
  void Tell(const std::string& text) {
    if (text != last_told_ && !text.empty()) std::cout << "  " << text << std::endl;
    last_told_ = text;
  }

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
        return absl::UnavailableError("cannot create a folder for logs");
      log_folder_ = pattern;
    } else {
      fs::create_directories(log_folder_, error);
    }
    return absl::OkStatus();
  }

  // The files that were named, or new ones where the coordinator does without only on loopback.
  absl::Status FindKeys() {
    token_file_ = options_.cluster_token_file;
    addresses_.admin_key_file = options_.admin_key_file;
    addresses_.admin_key = options_.admin_key;
    if (IsLoopback(options_.host)) return absl::OkStatus();
    if (token_file_.empty()) {
      token_file_ = log_folder_ + "/cluster_token";
      if (absl::Status s = WriteSecret(token_file_, DrawKey() + "\n"); !s.ok()) return s;
    }
    if (!addresses_.admin_key_file.empty()) return absl::OkStatus();
    addresses_.admin_key_file = log_folder_ + "/admin_key";
    addresses_.admin_key = DrawKey();
    return WriteSecret(addresses_.admin_key_file, addresses_.admin_key + "\n");
  }

  // Keys go by a file: everybody on the machine can read command lines.
  absl::Status WriteApiKeys(const std::string& path) const {
    std::string yaml = "api-key:\n";
    for (const std::string& key : options_.api_keys) {
      std::string quoted;
      for (const char c : key) absl::StrAppend(&quoted, c == '\'' ? "'" : "", std::string(1, c));
      absl::StrAppend(&yaml, "  - '", quoted, "'\n");
    }
    return WriteSecret(path, yaml);
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
    child.hanging = {};
    child.restart_seconds = 0;
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
    if (!addresses_.admin_key_file.empty())
      arguments.insert(arguments.end(), {"--admin-key-file", addresses_.admin_key_file});
    if (!token_file_.empty())
      arguments.insert(arguments.end(), {"--cluster-token-file", token_file_});
    if (!options_.api_keys.empty()) {
      const std::string keys = log_folder_ + "/api_keys.yaml";
      if (absl::Status s = WriteApiKeys(keys); !s.ok()) return s;
      arguments.insert(arguments.end(), {"--config", keys});
    }
    if (!options_.description.empty()) {
      const std::string file = log_folder_ + "/cluster.yaml";
      if (!(std::ofstream(file) << options_.description).flush())
        return absl::UnavailableError(absl::StrCat(file, ": cannot be written; see --log-dir"));
      arguments.insert(arguments.end(), {"--cluster", file});
      std::cout << "planning for the devices that are started, described in " << file << std::endl;
    }
    arguments.insert(arguments.end(), options_.coordinator_flags.begin(),
                     options_.coordinator_flags.end());
    std::error_code ignored;
    fs::remove(port_file, ignored);
    return LaunchCoordinator(port_file, std::move(arguments));
  }

  absl::Status LaunchCoordinator(const std::string& port_file, std::vector<std::string> arguments) {
    if (absl::Status s = Launch("coordinator", std::move(arguments)); !s.ok()) return s;
    const double deadline = Now() + 120;
    while (Now() < deadline) {
      if (absl::Status s = Check(children_[0]); !s.ok()) return s;
      if (SignalCame()) return absl::CancelledError("stopped before the coordinator was up");
      unsigned http = 0, grpc = 0;
      std::ifstream file(port_file);
      std::string line;
      if (std::getline(file, line) && sscanf(line.c_str(), "http=%u grpc=%u", &http, &grpc) == 2) {
        addresses_.http = LocalAddress(options_.host, http);
        addresses_.grpc = LocalAddress(options_.host, grpc);
        return absl::OkStatus();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return absl::DeadlineExceededError("the coordinator did not write its ports within 120 s");
  }

  absl::Status StartWorker(int index, const LocalWorker& worker, const std::vector<int>& cores) {
    const std::string name = absl::StrCat("worker-", index);
    std::vector<std::string> arguments = {"tessera-worker",
                                          "--coordinator",
                                          addresses_.grpc,
                                          "--name",
                                          worker.name,
                                          "--device",
                                          worker.device,
                                          "--cpus",
                                          CpuList(cores),
                                          "--memory",
                                          std::to_string(worker.memory_bytes),
                                          "--cpu-isa",
                                          options_.cpu_isa,
                                          "--gpu-memory-utilization",
                                          absl::StrCat(options_.gpu_memory_utilization)};
    if (!token_file_.empty())
      arguments.insert(arguments.end(), {"--cluster-token-file", token_file_});
    for (const std::string& flag : options_.coordinator_flags) {
      if (flag.starts_with("--log-")) arguments.push_back(flag);
    }
    if (absl::Status s = Launch(name, std::move(arguments)); !s.ok()) return s;
    children_.back().worker = worker.name;
    return absl::OkStatus();
  }

  // OK while it runs.
  static absl::Status Check(Child& child) {
    const std::optional<std::string> ended = child.process->Ended();
    if (!ended.has_value()) return absl::OkStatus();
    const std::string& log = child.process->log_file();
    return absl::AbortedError(
        absl::StrCat(child.name, " ", *ended, "; the end of its log ", log, ":", LastLines(log)));
  }

  // Starts ended workers again, each when its time has come; what they worked on goes on at the
  // others meanwhile, or waits.
  absl::Status Revive() {
    if (absl::Status s = Check(children_[0]); !s.ok()) return s;
    for (size_t i = 1; i < children_.size(); ++i) {
      Child& child = children_[i];
      if (child.restart_seconds > 0) {
        if (Now() < child.restart_seconds) continue;
        if (absl::Status s = Run(child); !s.ok()) return s;
        std::cout << child.name << " is started again" << std::endl;
        continue;
      }
      const absl::Status ended = Check(child);
      if (ended.ok()) continue;
      last_end_seconds_ = Now();
      const std::optional<double> delay =
          child.policy.OnEnd(last_end_seconds_ - child.started_seconds);
      if (!delay.has_value()) {
        return absl::AbortedError(absl::StrCat(RestartPolicy::kMaxEndsAtOnce, " times in a row ",
                                               std::string(ended.message())));
      }
      std::cout << std::string(ended.message()) << std::endl;
      child.restart_seconds = last_end_seconds_ + *delay;
    }
    return absl::OkStatus();
  }

  // Kills workers that hang; Revive sees them end and starts them again.
  void EndHanging(const v1::GetClusterReply& cluster) {
    const double now = Now();
    for (Child& child : children_) {
      if (child.worker.empty() || child.restart_seconds > 0) continue;
      const auto worker =
          std::find_if(cluster.workers().begin(), cluster.workers().end(),
                       [&](const v1::WorkerStatus& w) { return w.name() == child.worker; });
      const bool known = worker != cluster.workers().end();
      const double lived = now - child.started_seconds;
      const double silent =
          known ? worker->seconds_since_heartbeat() : std::numeric_limits<double>::infinity();
      const bool lost = !known || worker->state() == v1::WORKER_STATE_LOST;
      if (!child.hanging.OnStatus(lost, silent, lived, now)) continue;
      std::cout << absl::StrFormat("%s hangs: no heartbeat for %.0f s; it is killed", child.name,
                                   std::min(silent, lived))
                << std::endl;
      child.process->Signal(SIGKILL);
    }
  }

  const UpOptions& options_;
  const sigset_t signals_;
  std::string log_folder_;
  std::vector<Child> children_;  // the coordinator first
  std::string token_file_;       // empty: none is asked for
  std::string last_told_;
  double last_end_seconds_ = -kSettlingSeconds;  // of a worker
  double next_look_seconds_ = 0;                 // at what hangs
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
