// tessera-worker: one per device, or one for the emulated devices of a machine. Makes the device,
// listens, registers, and serves what it is configured for. The first SIGTERM or SIGINT drains, a
// second one exits at once.

#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "proto/protocol.h"
#include "third_party/grpc/log_lines.h"
#include "third_party/grpc/mutex_checks.h"
#include "third_party/linux/service_manager.h"
#include "third_party/spdlog/log.h"
#include "worker/device_list.h"
#include "worker/device_types.h"
#include "worker/emulated_workers.h"
#include "worker/hosted_worker.h"
#include "worker/run_membership.h"
#include "worker/worker_device.h"
#include "worker/worker_options.h"

namespace tessera::worker {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Signals are taken by WaitForEnd alone; every thread made later inherits the mask.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Strangers may hold hundreds of sockets for a while (kernels/links/link_server.h).
void RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A lost device frees nothing, and what waits for it may wait for ever.
[[noreturn]] void EndWithLostDevice(const absl::Status& reason) {
  const std::string text(reason.message());
  Logger("worker").error("{}: this worker ends, its requests go on at others", text);
  // Until the engine has told the coordinator.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::cerr << "tessera-worker: " << text << std::endl;
  std::_Exit(1);
}

using Workers = std::vector<std::unique_ptr<HostedWorker>>;

void EndIfLost(const Workers& workers) {
  for (const auto& worker : workers) {
    if (absl::Status lost = worker->device().Lost(); !lost.ok()) EndWithLostDevice(lost);
  }
}

void Drain(const Workers& workers, double seconds) {
  std::vector<std::thread> threads;
  for (const auto& worker : workers) threads.emplace_back([&] { worker->Drain(seconds); });
  for (std::thread& thread : threads) thread.join();
}

// Tells the service manager that the workers listen. Returns after a signal and the end of
// draining; a second signal, or the loss of a device, ends the process at once.
void WaitForEnd(const sigset_t& signals, double drain_seconds, const Workers& workers,
                const std::function<void()>& each_look) {
  if (absl::Status s = NotifyServiceManager("READY=1"); !s.ok())
    Logger("worker").warn("{}", std::string(s.message()));
  const timespec look_again{0, 100'000'000};
  int signal = -1;
  while (signal <= 0) {
    signal = sigtimedwait(&signals, nullptr, &look_again);
    EndIfLost(workers);
    each_look();
  }
  (void)NotifyServiceManager("STOPPING=1");
  Logger("worker").info("{}: draining for up to {} s; a second signal exits at once",
                        strsignal(signal), drain_seconds);
  std::atomic<bool> drained = false;
  std::thread drain([&] {
    Drain(workers, drain_seconds);
    drained = true;
  });
  const timespec poll{0, 50'000'000};
  while (!drained) {
    EndIfLost(workers);
    if (sigtimedwait(&signals, nullptr, &poll) > 0) {
      Logger("worker").warn("second signal: exiting at once");
      std::_Exit(128 + signal);
    }
  }
  drain.join();
}

// One device that computes, with its worker.
absl::Status AddWorker(const WorkerOptions& options, Workers* workers) {
  auto device = MakeWorkerDevice(options.device, *options.device_type);
  if (!device.ok()) return device.status();
  auto worker = HostedWorker::Make(options, *std::move(device));
  if (!worker.ok()) return worker.status();
  workers->push_back(*std::move(worker));
  return absl::OkStatus();
}

absl::Status Run(const WorkerOptions& options, double start_seconds) {
  const sigset_t signals = BlockSignals();
  RaiseOpenFileLimit();
  if (!options.cluster_token_file.empty()) {  // a bad one is named before the device is measured
    if (const auto read = ReadTokenFile(options.cluster_token_file); !read.ok())
      return read.status();
  }
  RunMembership run;  // whose folder outlives the workers' sockets
  std::unique_ptr<EmulatedWorkers> emulated;
  Workers workers;
  if (options.device_type->open == nullptr) {
    auto made = EmulatedWorkers::Make(options, &workers);
    if (!made.ok()) return made.status();
    emulated = *std::move(made);
  } else if (absl::Status added = AddWorker(options, &workers); !added.ok()) {
    return added;
  }
  auto joined = JoinRun(options, [&signals] {
    const timespec now{0, 0};
    return sigtimedwait(&signals, nullptr, &now) > 0;
  });
  if (absl::IsCancelled(joined.status())) return absl::OkStatus();
  if (!joined.ok()) return joined.status();
  run = *std::move(joined);
  HostingTerms terms;
  terms.token = run.token;
  if (run.folder != nullptr) terms.folder = run.folder->path().string();
  terms.start_seconds = start_seconds;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (emulated != nullptr) emulated->Change(i, &terms);
    if (absl::Status started = workers[i]->Start(terms); !started.ok()) return started;
  }
  WaitForEnd(signals, options.drain_seconds, workers, [&] {
    if (emulated != nullptr) emulated->WriteFigures(false);
  });
  for (const auto& worker : workers) worker->Close();
  if (emulated != nullptr) emulated->WriteFigures(true);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  const double start_seconds = tessera::worker::NowSeconds();
  tessera::SkipMutexChecks();
  tessera::TakeGrpcLines();
  const auto parsed = tessera::worker::ParseWorkerOptions(argc, argv);
  if (!parsed.ok()) {
    std::cerr << "tessera-worker: " << std::string(parsed.status().message()) << "\n";
    return 2;
  }
  if (parsed->exit_code >= 0) return parsed->exit_code;
  const tessera::worker::WorkerOptions& options = parsed->options;
  if (options.list_devices) {
    auto list = tessera::worker::ListDevices();
    if (options.measure) tessera::worker::MeasureListed(tessera::worker::DeviceTypes(), &list);
    std::cout << (options.json ? tessera::worker::DeviceListJson(list)
                               : tessera::worker::DeviceListText(list));
    return 0;
  }
  absl::Status status = tessera::SetUpLogging(options.log_level, options.log_format);
  for (const std::string& line : parsed->warnings) tessera::Logger("worker").warn("{}", line);
  if (status.ok()) status = tessera::worker::Run(options, start_seconds);
  if (status.ok()) return 0;
  std::cerr << "tessera-worker: " << std::string(status.message()) << "\n";
  return 1;
}
