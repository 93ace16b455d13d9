// tessera-worker: one per device. Makes the device, listens, registers, and serves what it is
// configured for. The first SIGTERM or SIGINT drains, a second one exits at once.

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>

#include "kernels/probe.h"
#include "proto/build_version.h"
#include "proto/model/model_folder.h"
#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/service_manager.h"
#include "third_party/spdlog/log.h"
#include "tls/client_tls.h"
#include "worker/device_list.h"
#include "worker/formation/link_hub.h"
#include "worker/gpu_device.h"
#include "worker/measured_list.h"
#include "worker/offered_links.h"
#include "worker/registration.h"
#include "worker/run_membership.h"
#include "worker/transfer/kv_codec_probe.h"
#include "worker/transfer/kv_coder.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"
#include "worker/transfer/kv_transport.h"
#include "worker/worker_device.h"
#include "worker/worker_options.h"
#include "worker/worker_server.h"
#include "worker/worker_service.h"

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

uint64_t DrawIncarnation() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

// 0: not measured, or there is no such copy.
struct MeasuredRates {
  double read_bytes_per_second = 0, upload_bytes_per_second = 0, kv_codec_bytes_per_second = 0;
};

MeasuredRates Measure(const WorkerDevice& worker, KvCoder& coder) {
  MeasuredRates rates;
  const auto read = kernels::ProbeReadRate(*worker.device, worker.look);
  if (read.ok()) rates.read_bytes_per_second = *read;
  // What goes through the host's memory shows its rate with less.
  kernels::ProbeOptions less = worker.look;
  less.buffer_bytes = std::min(less.buffer_bytes, int64_t{128} << 20);
  const auto upload = worker.has_own_memory ? kernels::ProbeUploadRate(*worker.device, less)
                                            : absl::StatusOr<double>(0.0);
  if (upload.ok()) rates.upload_bytes_per_second = *upload;
  const auto codec = ProbeKvCodecRate(*worker.device, coder, less);
  if (codec.ok()) rates.kv_codec_bytes_per_second = *codec;
  absl::Status status = read.status();
  status.Update(upload.status());
  status.Update(codec.status());
  if (!status.ok()) {
    Logger("worker").warn("the memory bandwidth cannot be measured: {}",
                          std::string(status.message()));
  }
  return rates;
}

v1::RegisterRequest Introduce(const WorkerOptions& options, const WorkerDevice& worker,
                              const MeasuredRates& rates, int64_t staging_bytes,
                              const std::string& address, const std::vector<std::string>& links,
                              uint64_t incarnation) {
  v1::RegisterRequest request;
  request.set_name(options.name);
  request.set_address(address);
  for (const std::string& link : links) request.add_link_addresses(link);
  request.set_incarnation(incarnation);
  request.set_build_version(std::string(BuildVersion()));
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_device() = worker.info;
  // What KV's staging has taken is nobody's to plan with.
  request.mutable_device()->set_memory_bytes(worker.info.memory_bytes() - staging_bytes);
  request.mutable_device()->set_memory_read_bytes_per_second(rates.read_bytes_per_second);
  request.mutable_device()->set_upload_bytes_per_second(rates.upload_bytes_per_second);
  request.mutable_device()->set_kv_codec_bytes_per_second(rates.kv_codec_bytes_per_second);
  return request;
}

// Of a lost device nothing can be freed, and what waits for it may wait for ever.
[[noreturn]] void EndWithLostDevice(const absl::Status& reason) {
  const std::string text(reason.message());
  Logger("worker").error("{}: this worker ends, its requests go on at others", text);
  // Until the engine has told the coordinator.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::cerr << "tessera-worker: " << text << std::endl;
  std::_Exit(1);
}

// Tells the service manager that the worker listens. Returns after a signal and the end of draining; a
// second signal, or the loss of the device, ends the process at once.
void WaitForEnd(const sigset_t& signals, double drain_seconds, const kernels::Device& device,
                WorkerService* service) {
  if (absl::Status s = NotifyServiceManager("READY=1"); !s.ok())
    Logger("worker").warn("{}", std::string(s.message()));
  const timespec look_again{0, 100'000'000};
  int signal = -1;
  while (signal <= 0) {
    signal = sigtimedwait(&signals, nullptr, &look_again);
    if (absl::Status lost = device.Lost(); !lost.ok()) EndWithLostDevice(lost);
  }
  (void)NotifyServiceManager("STOPPING=1");
  Logger("worker").info("{}: draining for up to {} s; a second signal exits at once",
                        strsignal(signal), drain_seconds);
  std::atomic<bool> drained = false;
  std::thread drain([&] {
    service->Shutdown(drain_seconds);
    drained = true;
  });
  const timespec poll{0, 50'000'000};
  while (!drained) {
    if (absl::Status lost = device.Lost(); !lost.ok()) EndWithLostDevice(lost);
    if (sigtimedwait(&signals, nullptr, &poll) > 0) {
      Logger("worker").warn("second signal: exiting at once");
      std::_Exit(128 + signal);
    }
  }
  drain.join();
}

absl::Status Run(const WorkerOptions& options, double start_seconds) {
  const sigset_t signals = BlockSignals();
  RaiseOpenFileLimit();
  if (!options.cluster_token_file.empty()) {  // a bad one is named before the device is measured
    if (const auto read = ReadTokenFile(options.cluster_token_file); !read.ok())
      return read.status();
  }
  const auto cluster = ClusterDoor::Open(options.tls.cluster, options.nccl_plain);
  if (!cluster.ok()) return cluster.status();
  const auto link_tls = *cluster == nullptr ? nullptr : (*cluster)->links();
  const double flags_seconds = NowSeconds();
  const auto worker = MakeWorkerDevice(options);
  if (!worker.ok()) return worker.status();
  const auto staged_coder = MakeKvCoder(*worker);
  if (!staged_coder.ok()) return staged_coder.status();
  KvCoder& coder = *staged_coder == nullptr ? HostKvCoder() : **staged_coder;
  const MeasuredRates rates = Measure(*worker, coder);
  const double device_seconds = NowSeconds();
  const auto run = JoinRun(options, [&signals] {
    const timespec now{0, 0};
    return sigtimedwait(&signals, nullptr, &now) > 0;
  });
  if (absl::IsCancelled(run.status())) return absl::OkStatus();
  if (!run.ok()) return run.status();
  const std::string& token = run->token;
  const std::string folder = run->folder == nullptr ? "" : run->folder->path().string();

  WorkerServiceOptions service_options;
  service_options.incarnation = DrawIncarnation();
  service_options.cluster_token = token;
  service_options.setup.device = worker->device.get();
  service_options.setup.kernel_path = worker->info.kernel_path();
  service_options.probe = worker->probe;
  service_options.setup.load_model = Model::Load;
  service_options.setup.fingerprint = Fingerprint;
  service_options.setup.clock = NowSeconds;
  service_options.setup.model_folder = options.model_folder;
  service_options.setup.kv_cache_bytes = options.kv_cache_memory_bytes;
  service_options.setup.state_cache_bytes = worker->state_cache_bytes;
  const auto link_addresses = LinkListenAddresses(options, folder, service_options.incarnation);
  if (!link_addresses.ok()) return link_addresses.status();
  auto links = LinkHub::Start({*link_addresses, token, service_options.incarnation, link_tls});
  if (!links.ok()) return links.status();
  const auto advertised_links = AdvertisedLinks(options.advertise_link, (*links)->addresses());
  if (!advertised_links.ok()) return advertised_links.status();
  const auto kv_addresses = KvListenAddresses(options, folder, service_options.incarnation);
  if (!kv_addresses.ok()) return kv_addresses.status();
  const auto kv_transport = ParseKvTransport(options.kv_transport);
  if (!kv_transport.ok()) return kv_transport.status();
  const auto pairs = MakeDevicePairs(*worker, *kv_transport);
  if (!pairs.ok()) return pairs.status();
  const auto inbox = KvInbox::Start(
      {*kv_addresses, token, service_options.incarnation, &coder, pairs->get(), link_tls});
  if (!inbox.ok()) return inbox.status();
  const auto advertised_kv = AdvertisedLinks(options.advertise_kv, (*inbox)->addresses());
  if (!advertised_kv.ok()) return advertised_kv.status();
  KvOutbox outbox({.cluster_token = token,
                   .incarnation = service_options.incarnation,
                   .tls = link_tls,
                   .transport = *kv_transport,
                   .coder = &coder,
                   .pairs = pairs->get()});
  OfferLinks(links->get(), {inbox->get(), &outbox, *advertised_kv, service_options.incarnation},
             coder, &service_options.setup);
  service_options.probe_kv_codec = [&] {
    return ProbeKvCodecRate(*worker->device, coder, worker->probe);
  };
  service_options.probe_link = [&links](const v1::ProbeLinkRequest& request) {
    return (*links)->Probe(request);
  };
  service_options.setup.memory_left = worker->memory_left;
  service_options.setup.pool_takes_rest = worker->memory_is_ours;
  std::atomic<WorkerServer*> serving = nullptr;
  service_options.on_ready = [&serving](bool ready) {
    if (WorkerServer* server = serving) server->SetReady(ready);
  };
  WorkerService service(service_options);
  auto server = WorkerServer::Start(options.listen, !token.empty(), &service,
                                    *cluster == nullptr ? nullptr : (*cluster)->certificates());
  if (!server.ok()) return server.status();
  serving = server->get();
  const auto address = AdvertisedAddress(options, (*server)->address());
  if (!address.ok()) return address.status();
  const double now = NowSeconds();
  Logger("worker").info(
      "worker {} listens on {}; device: {}; memory {} bytes, read at {:.1f} GB/s; started in "
      "{:.3f} "
      "s (options {:.3f}, device {:.3f}, listen {:.3f})",
      options.name, (*server)->address(), worker->device->Describe(),
      worker->device->memory_bytes(), rates.read_bytes_per_second / 1e9, now - start_seconds,
      flags_seconds - start_seconds, device_seconds - flags_seconds, now - device_seconds);

  std::unique_ptr<Registration> registration;
  if (options.coordinator.empty()) {
    Logger("worker").warn(
        "no --coordinator HOST:PORT (or TESSERA_COORDINATOR) is given: this worker does not "
        "register and waits at {} for a coordinator to configure it",
        *address);
  } else {
    Logger("worker").info("connecting to the coordinator at {}", options.coordinator);
    RegistrationOptions register_options;
    register_options.coordinator = options.coordinator;
    register_options.cluster_token = token;
    absl::StatusOr<ClientTls> tls = ReadClientTls(options.tls);
    if (!tls.ok()) return tls.status();
    register_options.tls = *std::move(tls);
    register_options.request =
        Introduce(options, *worker, rates, service_options.setup.kv_staging_bytes, *address,
                  *advertised_links, service_options.incarnation);
    register_options.request.set_cluster_tls(*cluster != nullptr);
    register_options.plan_epoch = [&service] { return service.plan_epoch(); };
    register_options.load = [&service] { return service.load(); };
    register_options.counters = [&service, &links, &inbox, &outbox] {
      v1::WorkerCounters counters = service.counters();
      counters.MergeFrom((*links)->counters());
      counters.set_links_refused(counters.links_refused() + (*inbox)->refused());
      for (v1::LinkCounters& kv : outbox.counters()) *counters.add_links() = std::move(kv);
      return counters;
    };
    registration = std::make_unique<Registration>(std::move(register_options));
  }
  WaitForEnd(signals, options.drain_seconds, *worker->device, &service);
  if (registration != nullptr) registration->Stop();
  (*server)->Shutdown(1.0);
  Logger("worker").info("worker {} ends", options.name);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  const double start_seconds = tessera::worker::NowSeconds();
  const auto parsed = tessera::worker::ParseWorkerOptions(argc, argv);
  if (!parsed.ok()) {
    std::cerr << "tessera-worker: " << std::string(parsed.status().message()) << "\n";
    return 2;
  }
  if (parsed->exit_code >= 0) return parsed->exit_code;
  const tessera::worker::WorkerOptions& options = parsed->options;
  if (options.list_devices) {
    auto list = tessera::worker::ListDevices();
    if (options.measure)
      tessera::worker::MeasureListed(tessera::worker::OpenGpu, tessera::kernels::kGpuProbe, &list);
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
