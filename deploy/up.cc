#include "deploy/up.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/local_share.h"
#include "deploy/processes/child_process.h"
#include "deploy/processes/hang_policy.h"
#include "deploy/processes/restart_policy.h"
#include "deploy/processes/supervisor.h"
#include "proto/device_names.h"
#include "proto/http_peer.h"
#include "proto/protocol.h"
#include "proto/written_file.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::deploy {
namespace {

namespace fs = std::filesystem;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How programs of this machine reach what listens on `host`.
std::string LocalAddress(const std::string& host, int port) {
  const bool any = host == "0.0.0.0", any_v6 = host == "::";
  return HostAndPort(any ? "127.0.0.1" : any_v6 ? "::1" : host, port);
}

// Only the owner may read it.
absl::Status WriteSecret(const std::string& path, const std::string& text) {
  unlink(path.c_str());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (file >= 0) close(file);
  if (written) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(path, ": cannot be written: ", std::strerror(error), "; see --log-dir"));
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
      needs.push_back({!IsCardName(worker.device), worker.near_cores});
    absl::StatusOr<std::vector<std::vector<int>>> shares = SplitCoresByNeed(cores, needs);
    if (!shares.ok()) return shares.status();
    const std::vector<int64_t> memory_bytes = Memory(workers);
    const auto emulated = [](const LocalWorker& worker) {
      return worker.device == kEmulatedGpuDevice;
    };
    if (std::any_of(workers.begin(), workers.end(), emulated)) {
      std::cout << kEmulatedGpuDevice
                << ": an emulator runs the GPU's kernels; it is very slow, for tests" << std::endl;
    }
    for (const std::string& note : options_.device_notes) std::cout << note << std::endl;
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

  // All workers serve that do not end again and again, or the reason why nothing will.
  absl::StatusOr<v1::GetClusterReply> WaitReady() {
    const double deadline = Now() + options_.ready_timeout_seconds;
    for (;;) {
      if (absl::Status s = programs_->Check(kCoordinator); !s.ok()) return s;
      programs_->Revive();
      if (SignalCame()) return absl::CancelledError("stopped before the workers were ready");
      absl::StatusOr<v1::GetClusterReply> cluster = FetchCluster(door_, 2.0);
      if (absl::Status s = CheckHope(cluster.ok() ? &*cluster : nullptr); !s.ok()) return s;
      if (!cluster.ok()) Report(std::string(cluster.status().message()));
      if (cluster.ok()) {
        EndHanging(*cluster);
        if (absl::Status s = CheckWorkers(*cluster); !s.ok()) return s;
        if (AllServe(*cluster)) {
          TellFailing();
          return cluster;
        }
      }
      if (Now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrFormat("the workers were not ready within %.0f s (%s); logs are in %s",
                            options_.ready_timeout_seconds,
                            last_report_.empty() ? "none came" : last_report_, log_folder_));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  // Runs until a signal. Restarts programs that end by themselves, the coordinator too: workers
  // register with the new one.
  void Watch() {
    while (!SignalCame()) {
      programs_->Revive();
      if (programs_->running(kCoordinator) && Now() >= next_look_seconds_) {
        const auto cluster = FetchCluster(door_, 2.0);
        if (cluster.ok()) EndHanging(*cluster);
        next_look_seconds_ = Now() + kLookSeconds;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }

  // The coordinator first: it finishes what runs while the workers still work. A second signal ends
  // all at once.
  void Stop() {
    if (!programs_.has_value() || programs_->size() == 0) return;
    programs_->Signal(kCoordinator, SIGTERM);
    WaitOrSecondSignal(kCoordinator, options_.shutdown_timeout_seconds + 5);
    for (size_t i = kCoordinator + 1; i < programs_->size(); ++i) programs_->Signal(i, SIGTERM);
    for (size_t i = kCoordinator + 1; i < programs_->size(); ++i)
      WaitOrSecondSignal(i, options_.shutdown_timeout_seconds);
    programs_->Clear();
  }

  const UpAddresses& addresses() const { return addresses_; }
  const std::string& log_folder() const { return log_folder_; }

 private:
  static constexpr size_t kCoordinator = 0;  // workers come behind it

  // Bytes for each worker: CPUs share the machine's, other devices keep what they ask for.
  static std::vector<int64_t> Memory(const std::vector<LocalWorker>& workers) {
    std::vector<int64_t> bytes, of_cpus;
    for (const LocalWorker& worker : workers) {
      if (worker.device == kCpuDevice) of_cpus.push_back(worker.memory_bytes);
    }
    of_cpus = SplitMemory(AvailableMemoryBytes(""), of_cpus);
    auto next = of_cpus.begin();
    for (const LocalWorker& worker : workers)
      bytes.push_back(worker.device == kCpuDevice ? *next++ : worker.memory_bytes);
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

  // Prints `text` where it differs from what was printed last.
  void Report(const std::string& text) {
    if (text != last_report_ && !text.empty()) std::cout << "  " << text << std::endl;
    last_report_ = text;
  }

  bool SignalCame() const {
    const timespec now = {0, 0};
    return sigtimedwait(&signals_, nullptr, &now) > 0;
  }

  void WaitOrSecondSignal(size_t child, double seconds) {
    const double deadline = Now() + seconds;
    while (!hurry_ && Now() < deadline && !programs_->WaitFor(child, 0.1)) hurry_ = SignalCame();
  }

  absl::Status MakeLogFolder() {
    log_folder_ = options_.log_dir;
    std::error_code error;
    if (log_folder_.empty()) {
      std::string pattern = (fs::temp_directory_path(error) / "tessera-XXXXXX").string();
      if (mkdtemp(pattern.data()) == nullptr)
        return absl::UnavailableError(absl::StrCat("cannot make a folder for logs, ", pattern, ": ",
                                                   std::strerror(errno), "; see --log-dir"));
      log_folder_ = pattern;
    } else {
      fs::create_directories(log_folder_, error);
      if (error) {
        return absl::UnavailableError(
            absl::StrCat("--log-dir ", log_folder_, " cannot be made: ", error.message()));
      }
    }
    programs_.emplace(log_folder_, Now);
    return absl::OkStatus();
  }

  // The files that were named, or new ones; on loopback the coordinator makes those, where this
  // user's programs find them.
  absl::Status FindKeys() {
    token_file_ = options_.cluster_token_file;
    addresses_.admin_key_file = options_.admin_key_file;
    addresses_.admin_key = options_.admin_key;
    if (absl::Status s = FindCertificates(); !s.ok()) return s;
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

  // What this deployment's own programs need to know the certificate: they reach it by an address
  // of this machine, which is no name of it.
  absl::Status FindCertificates() {
    addresses_.tls.cluster = options_.cluster_tls_file;
    if (options_.certificates.certificate.empty()) return absl::OkStatus();
    const absl::StatusOr<Certificates> read = ReadCertificates(options_.certificates);
    if (!read.ok()) return read.status();
    addresses_.tls.ca = options_.certificates.certificate;
    if (!read->names.empty()) addresses_.tls.server_name = read->names.front();
    if (!options_.certificates.client_ca.empty()) {
      addresses_.tls.certificate = options_.certificates.certificate;
      addresses_.tls.key = options_.certificates.key;
    }
    return absl::OkStatus();
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

  absl::Status StartCoordinator() {
    const std::string port_file = log_folder_ + "/ports";
    std::vector<std::string> arguments = {"tessera-coordinator",
                                          "--host",
                                          options_.host,
                                          "--port-file",
                                          port_file,
                                          "--shutdown-timeout",
                                          absl::StrCat(options_.shutdown_timeout_seconds)};
    for (const std::string& model : options_.models)
      arguments.insert(arguments.end(), {"--model", model});
    if (!addresses_.admin_key_file.empty())
      arguments.insert(arguments.end(), {"--admin-key-file", addresses_.admin_key_file});
    if (!token_file_.empty())
      arguments.insert(arguments.end(), {"--cluster-token-file", token_file_});
    if (!options_.certificates.certificate.empty()) {
      arguments.insert(arguments.end(), {"--tls-cert", options_.certificates.certificate,
                                         "--tls-key", options_.certificates.key});
    }
    if (!options_.certificates.client_ca.empty())
      arguments.insert(arguments.end(), {"--tls-client-ca", options_.certificates.client_ca});
    if (!options_.cluster_tls_file.empty())
      arguments.insert(arguments.end(), {"--cluster-tls", options_.cluster_tls_file});
    if (!options_.api_keys.empty()) {
      const std::string keys = log_folder_ + "/api_keys.yaml";
      if (absl::Status s = WriteApiKeys(keys); !s.ok()) return s;
      arguments.insert(arguments.end(), {"--config", keys});
    }
    if (!options_.api_key_file.empty())
      arguments.insert(arguments.end(), {"--api-key-file", options_.api_key_file});
    if (!options_.description.empty()) {
      const std::string file = log_folder_ + "/cluster.yaml";
      if (absl::Status s = WriteFileText(file, options_.description); !s.ok()) {
        return absl::Status(s.code(), absl::StrCat(std::string(s.message()), "; see --log-dir"));
      }
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
    absl::StatusOr<std::string> program = FindProgram(options_.bin_dir, arguments[0]);
    if (!program.ok()) return program.status();
    arguments[0] = *std::move(program);
    const auto with_ports = [&](unsigned http, unsigned grpc) {
      std::vector<std::string> all = arguments;
      all.insert(all.end(), {"--port", std::to_string(http), "--grpc-port", std::to_string(grpc)});
      return all;
    };
    absl::Status launched =
        programs_->Launch("coordinator", with_ports(options_.port, options_.grpc_port));
    if (!launched.ok()) return launched;
    const double deadline = Now() + 120;
    while (Now() < deadline) {
      if (absl::Status s = programs_->Check(kCoordinator); !s.ok()) return s;
      if (SignalCame()) return absl::CancelledError("stopped before the coordinator was up");
      unsigned http = 0, grpc = 0;
      std::ifstream file(port_file);
      std::string line;
      if (std::getline(file, line) && sscanf(line.c_str(), "http=%u grpc=%u", &http, &grpc) == 2) {
        addresses_.http = LocalAddress(options_.host, http);
        addresses_.grpc = LocalAddress(options_.host, grpc);
        absl::StatusOr<CoordinatorDoor> door = ReadDoor(addresses_.coordinator());
        if (!door.ok()) return door.status();
        door_ = *std::move(door);
        // Started again, it listens where workers and clients know it.
        programs_->SetArguments(kCoordinator, with_ports(http, grpc));
        return absl::OkStatus();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return absl::DeadlineExceededError("the coordinator did not write its ports within 120 s");
  }

  absl::Status StartWorker(int index, const LocalWorker& worker, const std::vector<int>& cores) {
    const std::string name = absl::StrCat("worker-", index);
    const absl::StatusOr<std::string> program = FindProgram(options_.bin_dir, "tessera-worker");
    if (!program.ok()) return program.status();
    std::vector<std::string> arguments = {*program,
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
    if (!options_.cluster_tls_file.empty())
      arguments.insert(arguments.end(), {"--cluster-tls", options_.cluster_tls_file});
    if (!addresses_.tls.ca.empty())
      arguments.insert(arguments.end(), {"--tls-ca", addresses_.tls.ca});
    if (!addresses_.tls.certificate.empty()) {
      arguments.insert(arguments.end(),
                       {"--tls-cert", addresses_.tls.certificate, "--tls-key", addresses_.tls.key});
    }
    if (!addresses_.tls.server_name.empty())
      arguments.insert(arguments.end(), {"--tls-server-name", addresses_.tls.server_name});
    for (const std::string& flag : options_.coordinator_flags) {
      if (flag.starts_with("--log-")) arguments.push_back(flag);
    }
    workers_.push_back({worker.name, {}});
    return programs_->Launch(name, std::move(arguments));
  }

  bool failing(size_t worker) const { return programs_->failing(FirstWorker() + worker); }
  static constexpr size_t FirstWorker() { return kCoordinator + 1; }

  // Has a worker that ends again and again.
  bool Fails(const v1::ReplicaStatus& replica) const {
    for (size_t i = 0; i < workers_.size(); ++i) {
      const auto& names = replica.workers();
      if (failing(i) && std::find(names.begin(), names.end(), workers_[i].name) != names.end())
        return true;
    }
    return false;
  }

  // A plan may leave workers idle, or need several for one replica. Without one, each worker is a
  // replica.
  bool IsPlanned(const v1::GetClusterReply& cluster) const {
    return !options_.named_workers.empty() && !cluster.replicas().empty();
  }

  // While nothing has served yet: an error when all that could ends again and again. Null: the
  // coordinator does not answer.
  absl::Status CheckHope(const v1::GetClusterReply* cluster) const {
    size_t first = workers_.size(), count = 0;
    for (size_t i = workers_.size(); i-- > 0;) {
      if (!failing(i)) continue;
      first = i;
      ++count;
    }
    if (count == 0) return absl::OkStatus();
    bool hope = count < workers_.size();
    if (hope && cluster != nullptr && IsPlanned(*cluster)) {
      hope = !std::all_of(cluster->replicas().begin(), cluster->replicas().end(),
                          [this](const v1::ReplicaStatus& replica) { return Fails(replica); });
    }
    if (hope) return absl::OkStatus();
    const absl::Status& end = programs_->last_end(FirstWorker() + first);
    return absl::AbortedError(absl::StrCat("nothing can serve: ", RestartPolicy::kMaxEndsAtOnce,
                                           " times in a row ", std::string(end.message())));
  }

  // The error of a failed worker, unless another program's end may be its cause. Reports the state
  // of all workers.
  absl::Status CheckWorkers(const v1::GetClusterReply& cluster) {
    const bool settled = Now() - programs_->last_end_seconds() > kSettlingSeconds;
    std::string state = cluster.no_plan();
    for (const v1::WorkerStatus& worker : cluster.workers()) {
      if (worker.state() == v1::WORKER_STATE_FAILED && settled) {
        return absl::FailedPreconditionError(
            absl::StrCat("worker ", worker.name(), ": ", worker.detail()));
      }
      if (!cluster.no_plan().empty()) continue;  // idle, and `state` says why
      absl::StrAppend(&state, state.empty() ? "" : ", ", worker.name(), ": ", worker.detail());
    }
    Report(state);
    return absl::OkStatus();
  }

  // All that can serve does, and something does.
  bool AllServe(const v1::GetClusterReply& cluster) const {
    int serving = 0, wanted = 0;
    for (const v1::ReplicaStatus& replica : cluster.replicas()) {
      serving += replica.ready();
      wanted += replica.ready() || !Fails(replica);
    }
    if (IsPlanned(cluster)) return serving > 0 && serving == wanted;
    wanted = 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (failing(i)) continue;
      ++wanted;
      const auto& all = cluster.workers();
      if (std::none_of(all.begin(), all.end(), [&](const v1::WorkerStatus& worker) {
            return worker.name() == workers_[i].name && worker.state() == v1::WORKER_STATE_READY;
          })) {
        return false;
      }
    }
    return serving > 0 && serving >= wanted;
  }

  void TellFailing() const {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (!failing(i)) continue;
      std::cout << "worker " << workers_[i].name
                << " ends again and again; the rest serves without it, and it is started again "
                   "after pauses"
                << std::endl;
    }
  }

  // Kills workers that hang; they are started again.
  void EndHanging(const v1::GetClusterReply& cluster) {
    const double now = Now();
    for (size_t i = 0; i < workers_.size(); ++i) {
      const size_t program = FirstWorker() + i;
      if (!programs_->running(program)) {
        workers_[i].hanging = {};
        continue;
      }
      const auto worker =
          std::find_if(cluster.workers().begin(), cluster.workers().end(),
                       [&](const v1::WorkerStatus& w) { return w.name() == workers_[i].name; });
      const bool known = worker != cluster.workers().end();
      // A coordinator that was started again has to be found first.
      const double lived =
          std::min(programs_->lived_seconds(program), programs_->lived_seconds(kCoordinator));
      const double silent =
          known ? worker->seconds_since_heartbeat() : std::numeric_limits<double>::infinity();
      const bool lost = !known || worker->state() == v1::WORKER_STATE_LOST;
      if (!workers_[i].hanging.OnStatus(lost, silent, lived, now)) continue;
      std::cout << absl::StrFormat("%s hangs: no heartbeat for %.0f s; it is killed",
                                   programs_->name(program), std::min(silent, lived))
                << std::endl;
      workers_[i].hanging = {};
      programs_->Signal(program, SIGKILL);
    }
  }

  struct StartedWorker {
    std::string name;  // as it registers
    HangPolicy hanging;
  };

  const UpOptions& options_;
  const sigset_t signals_;
  std::string log_folder_;
  std::optional<Supervisor> programs_;  // once there is a folder for their logs
  std::vector<StartedWorker> workers_;  // in the order of their programs
  std::string token_file_;              // empty: none is asked for
  std::string last_report_;
  double next_look_seconds_ = 0;  // at what hangs
  UpAddresses addresses_;
  CoordinatorDoor door_;  // once the coordinator listens
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
  if (status.ok() && !once) local.Watch();
  std::cout << "stopping" << std::endl;
  local.Stop();
  return status;
}

}  // namespace tessera::deploy
