#include "worker/worker_options.h"

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/links/link_address.h"
#include "proto/build_version.h"
#include "proto/coordinator_list.h"
#include "proto/emulated_kind.h"
#include "proto/plain_text.h"
#include "proto/program_flags.h"
#include "proto/protocol.h"
#include "proto/worker_name.h"
#include "third_party/absl/str_cat.h"
#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/flags.h"
#include "third_party/cli11/misspelt.h"
#include "third_party/cli11/number_check.h"
#include "third_party/linux/host_name.h"
#include "tls/client_flags.h"
#include "worker/device_types.h"
#include "worker/worker_server.h"

namespace tessera::worker {
namespace {

void Declare(const Command& app, WorkerOptions* o) {
  app.AddOption(
      "--coordinator", o->coordinator,
      "host:port of the coordinator's gRPC service, of several (--ha) each, with commas between; "
      "without it the worker waits to be "
      "configured");
  app.AddOption("--listen", o->listen,
                "host:port of this worker's gRPC service; port 0 takes a free one. Addresses other "
                "than loopback need --cluster-token-file")
      .ShowDefault();
  app.AddOption("--advertise", o->advertise,
                "host:port at which the coordinator reaches this worker");
  app.AddOption("--link-port", o->link_port,
                "TCP port for links from the other workers of its replica, on the host of "
                "--listen; 0 takes a free one")
      .Range(0, 65535)
      .ShowDefault();
  app.AddOption("--advertise-link", o->advertise_link,
                "host:port at which other workers reach the link port");
  app.AddOption("--kv-port", o->kv_port,
                "TCP port for keys and values that workers of other replicas computed, on the host "
                "of --listen; 0 takes a free one")
      .Range(0, 65535)
      .ShowDefault();
  app.AddOption("--advertise-kv", o->advertise_kv,
                "host:port at which other workers reach the KV port");
  app.AddOption("--kv-transport", o->kv_transport,
                "On what keys and values go to workers of other replicas: nccl (from GPU to GPU, "
                "both with the same NCCL), shm (memory shared with a worker of this machine), "
                "unix, tcp; auto: the first of these that can be had. One that is asked for and "
                "cannot be had fails the hand-over; nccl without NCCL here ends the worker")
      .OneOf({"auto", "nccl", "shm", "unix", "tcp"})
      .ShowDefault();
  app.AddOption("--name", o->name,
                "Device name in the cluster, \"machine/index\"; default: host name and the GPU's "
                "index, or /0");
  app.AddOption("--device", o->device.name, StrCat("Device that computes: ", DeviceNamesText()))
      .ShowDefault();
  app.AddOption("--rehearsal-folder", o->rehearsal_folder,
                "Of emulated devices: folder with the plan.json that they run and the cluster.json "
                "that it was made for; without it they serve replicas of one device");
  app.AddOption("--rehearsal-speed", o->rehearsal_speed,
                "Of emulated devices: seconds of the cost model that pass in one second")
      .Check(Between(1e-3, 1e3))
      .ShowDefault();
  app.AddSwitch("--list-devices", o->list_devices,
                "Print the GPUs that --device can name, or why there are none, and exit");
  app.AddSwitch("--json", o->json, "With --list-devices: as JSON")
      .Needs(*app.FindFlag("--list-devices"));
  app.AddSwitch("--measure", o->measure,
                "With --list-devices: also measure each GPU, which takes some seconds")
      .Needs(*app.FindFlag("--list-devices"));
  app.AddOption("--cpus", o->device.cpus,
                "Cores to use, such as 0-3,7; default: all that the CPU affinity and the control "
                "group allow");
  app.AddOption("--cpu-isa", o->device.cpu_isa,
                "Kernel path: auto (the last in this list that the processor supports), reference, "
                "avx2, avx512, avx512_bf16 or amx")
      .ShowDefault();
  app.AddOption(
         "--memory", o->device.memory_bytes,
         "Memory to use, in bytes or as 8GiB; 0: all that the control group and the machine allow, "
         "or of a GPU what --gpu-memory-utilization says")
      .Size();
  app.AddOption("--gpu-memory-utilization", o->device.gpu_memory_utilization,
                "Share of a GPU's memory to use, with what other processes use of it")
      .Check(Between(0.01, 1))
      .ShowDefault();
  app.AddSwitch("--mapped-sums,!--no-mapped-sums", o->device.mapped_sums,
                "GPUs of this machine meet in memory that they reach: ranks of a stage for small "
                "sums, stages for few rows; with --no-mapped-sums their hosts meet, as for more");
  app.AddOption(
      "--tuning-folder", o->device.tuning_folder,
      "Where what is measured of a GPU at its first start is kept: which of several equal "
      "ways of its products is fastest, and its rates, which plans use; \"none\" measures "
      "nothing; default: tessera/tuning in the user's cache folder (XDG_CACHE_HOME, or "
      "~/.cache), of cuda-emulated \"none\"");
  app.AddOption("--kv-cache-memory-bytes", o->kv_cache_memory_bytes,
                "Size of the KV pool if the plan sets none; 0: half of the memory left after the "
                "weights, within --memory and the free memory of control group and machine; on a "
                "GPU all that weights and steps leave of its share")
      .Size();
  app.AddOption("--state-cache-memory-bytes", o->device.state_cache_memory_bytes,
                "Host memory for states of prompts that begin alike, of models with gated delta "
                "nets; within --memory of a CPU's worker; 0: none are kept; default: the smaller "
                "of 4GiB and a tenth of the free memory")
      .Size();
  app.AddOption("--model-folder", o->model_folder,
                "Folder of the checkpoint on this machine, the same files as the coordinator's; "
                "default: the coordinator's path");
  app.AddOption("--cluster-token-file", o->cluster_token_file,
                "File with the secret that the cluster's processes share; default: the one that a "
                "coordinator of this user made on this machine's loopback");
  AddClientTlsFlags(app, o->tls);
  AddClusterTlsFlag(app, o->tls);
  app.AddSwitch("--nccl-plain", o->nccl_plain,
                "With --cluster-tls: let NCCL, which encrypts nothing, carry sums, keys and values "
                "between machines")
      .Needs(*app.FindFlag("--cluster-tls"));
  app.AddOption(
         "--drain-seconds", o->drain_seconds,
         "Max seconds to finish running sequences after SIGTERM; a second signal exits at once")
      .Check(Between(0, 86400))
      .ShowDefault();
  app.AddOption("--log-level", o->log_level, "Min level of the lines to log")
      .OneOf({"trace", "debug", "info", "warning", "error", "off"})
      .ShowDefault();
  app.AddOption("--log-format", o->log_format,
                "Format of log lines: plain text, or one JSON object per line")
      .OneOf({"text", "json"})
      .ShowDefault();
}

// The second half of "machine/index": a card's own index.
std::string DefaultIndex(std::string_view device) {
  const std::string index(device.substr(device.find(':') + 1));
  return index.find_first_not_of("0123456789") == std::string::npos ? index : "0";
}

}  // namespace

absl::StatusOr<ParsedOptions> ParseWorkerOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Program app(
      "tessera-worker: one device of a Tessera cluster (a GPU, or a share of this machine's CPU)",
      "tessera-worker");
  app.AddVersion(std::string(BuildVersion()));
  Declare(app, &parsed.options);
  std::string config;
  app.AddOption("--config", config, "YAML file with these flags' long names as keys");
  NameEnvironment(app);
  const std::string unknown = UnknownArgument(app, {argv + 1, static_cast<size_t>(argc - 1)});
  if (!unknown.empty()) return absl::InvalidArgumentError(unknown);
  std::vector<std::string_view> others(std::begin(kProcessFlags), std::end(kProcessFlags));
  others.insert(others.end(), std::begin(kHandedOnFlags), std::end(kHandedOnFlags));
  others.insert(others.end(), std::begin(kHandedOnLists), std::end(kHandedOnLists));
  others.insert(others.end(), std::begin(kHandedOnSwitches), std::end(kHandedOnSwitches));
  const Command apps[] = {app};
  parsed.warnings = UnknownVariables(apps, others);
  const absl::StatusOr<ParseOutcome> outcome = app.Parse(argc, argv);
  if (!outcome.ok()) {
    return absl::InvalidArgumentError(StrCat(StdView(outcome.status().message()), " (see --help)"));
  }
  if (*outcome == ParseOutcome::kPrinted) {
    parsed.exit_code = 0;
    return parsed;
  }
  if (!config.empty()) {
    if (absl::Status status = ApplyFlagFile(config, app); !status.ok()) return status;
  }
  WorkerOptions& options = parsed.options;
  options.device.build_version = std::string(BuildVersion());
  const std::string& device = options.device.name;
  options.device_type = FindDeviceType(device);
  if (options.device_type == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("--device ", device, ": there is no such device; it takes ", DeviceNamesText()));
  }
  if (options.name.empty()) options.name = StrCat(HostName(), "/", DefaultIndex(device));
  if (const std::string problem = WorkerNameProblem(options.name); !problem.empty())
    return absl::InvalidArgumentError(
        StrCat("--name '", WithoutControls(options.name), "': ", problem));
  if (!options.rehearsal_folder.empty() && options.device_type->open != nullptr) {
    return absl::InvalidArgumentError(
        StrCat("--rehearsal-folder is for --device ", kEmulatedKind, "KIND, not for ", device));
  }
  if (options.device.memory_bytes < 0 || options.kv_cache_memory_bytes < 0) {
    return absl::InvalidArgumentError("--memory and --kv-cache-memory-bytes may not be negative");
  }
  if (!options.coordinator.empty()) {
    if (const auto read = ReadCoordinatorList(options.coordinator); !read.ok())
      return read.status();
  }
  std::string listen = options.listen;
  if (listen.ends_with(":0")) listen.back() = '1';  // any port
  const std::pair<const char*, const std::string*> addresses[] = {
      {"--listen", &listen},
      {"--advertise", &options.advertise},
      {"--advertise-link", &options.advertise_link},
      {"--advertise-kv", &options.advertise_kv}};
  for (const auto& [flag, address] : addresses) {
    if (address->empty()) continue;
    if (absl::Status s = CheckHostPort(*address); !s.ok())
      return absl::InvalidArgumentError(StrCat(flag, ": ", StdView(s.message())));
  }
  return parsed;
}

namespace {

// `advertised`, or what was listened on, a wildcard address replaced by the host name.
absl::StatusOr<std::string> Advertised(const std::string& advertised, const std::string& listened) {
  const auto host = HostOf(advertised.empty() ? listened : advertised);
  if (!host.ok()) return host.status();
  if (!advertised.empty()) return advertised;
  if (*host != "0.0.0.0" && *host != "::") return listened;
  return StrCat(HostName(), listened.substr(listened.rfind(':')));
}

}  // namespace

absl::StatusOr<std::string> AdvertisedAddress(const WorkerOptions& options,
                                              const std::string& listened) {
  return Advertised(options.advertise, listened);
}

namespace {

absl::StatusOr<std::vector<std::string>> ListenAddresses(const WorkerOptions& options,
                                                         const std::string& folder,
                                                         const std::string& socket, int port) {
  if (const auto host = HostOf(options.listen); !host.ok()) return host.status();
  const std::string host = options.listen.substr(0, options.listen.rfind(':'));
  std::vector<std::string> addresses = {StrCat(host, ":", port)};
  const std::string path = StrCat("unix:", folder, "/", socket);
  if (!folder.empty() && kernels::ParseLinkAddress(path).ok())
    addresses.insert(addresses.begin(), path);
  return addresses;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> LinkListenAddresses(const WorkerOptions& options,
                                                             const std::string& folder,
                                                             uint64_t incarnation) {
  return ListenAddresses(options, folder, StrCat(incarnation, ".sock"), options.link_port);
}

absl::StatusOr<std::vector<std::string>> KvListenAddresses(const WorkerOptions& options,
                                                           const std::string& folder,
                                                           uint64_t incarnation) {
  return ListenAddresses(options, folder, StrCat(incarnation, "-kv.sock"), options.kv_port);
}

absl::StatusOr<std::vector<std::string>> AdvertisedLinks(const std::string& advertised,
                                                         std::vector<std::string> listened) {
  for (std::string& address : listened) {
    if (address.starts_with("unix:")) continue;
    auto told = Advertised(advertised, address);
    if (!told.ok()) return told.status();
    address = *std::move(told);
  }
  return listened;
}

}  // namespace tessera::worker
