#include "deploy/up_flags.h"

#include <stdlib.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/describe_machine.h"
#include "deploy/kind_devices.h"
#include "deploy/local_workers.h"
#include "proto/api_keys.h"
#include "proto/device_names.h"
#include "proto/http_peer.h"
#include "proto/program_flags.h"
#include "proto/protocol.h"
#include "scheduler/input/supported_devices.h"
#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {
namespace {

constexpr char kHandedOn[] = "Passed to the coordinator (described in tessera-coordinator --help)";

void AddListening(const Command& up, UpFlags& flags) {
  UpOptions& o = flags.options;
  up.AddOption("--host", o.host, "Address to listen on").ShowDefault();
  up.AddOption("--port", o.port, "HTTP port; 0: any free port").Range(0, 65535).ShowDefault();
  up.AddOption("--grpc-port", o.grpc_port, "gRPC port; 0: any free port")
      .Range(0, 65535)
      .ShowDefault();
  up.AddOption("--api-key", o.api_keys, "Key that clients must send; may be given more than once");
  up.AddOption("--api-key-file", o.api_key_file,
               "File with keys that clients must send, one a line, with the terms that "
               "tessera-coordinator --help names");
  up.AddOption("--admin-key-file", o.admin_key_file,
               "File with the key for `tessera status`; default: a new one");
  up.AddOption("--tls-cert", o.certificates.certificate,
               "File with the certificate that both ports show (PEM): they then speak TLS only");
  up.AddOption("--tls-key", o.certificates.key, "File with the key of --tls-cert (PEM)")
      .Needs(*up.FindFlag("--tls-cert"));
  up.AddOption("--tls-client-ca", o.certificates.client_ca,
               "File with the authorities (PEM) one of which must have signed the certificate of "
               "each client, and --tls-cert, which the workers show")
      .Needs(*up.FindFlag("--tls-cert"));
  up.AddOption("--cluster-tls", o.cluster_tls_file,
               "File with a key, its certificate and the cluster's authority (PEM), as `tessera "
               "token create` writes it for the coordinator: for it and the workers started here");
  up.AddOption("--cluster-token-file", o.cluster_token_file,
               "File with the secret shared with the workers; default: a new one");
}

void AddHandedOn(const Command& up) {
  for (const std::string_view name : kHandedOnFlags) {
    up.AddUnbound(absl::StrCat("--", std::string(name))).Group(kHandedOn);
  }
  for (const std::string_view name : kHandedOnLists) {
    up.AddUnboundList(absl::StrCat("--", std::string(name))).Group(kHandedOn);
  }
  for (const std::string_view name : kHandedOnSwitches) {
    const std::string text(name);
    up.AddUnboundSwitch(absl::StrCat("--", text, ",!--no-", text)).Group(kHandedOn);
  }
}

void CollectHandedOn(const Command& up, std::vector<std::string>& flags) {
  auto collect = [&](std::string_view name) {
    const std::string flag = absl::StrCat("--", std::string(name));
    const std::vector<std::string> given = up.FindFlag(flag)->values();
    if (!given.empty()) flags.push_back(absl::StrCat(flag, "=", given.back()));
  };
  for (const std::string_view name : kHandedOnFlags) collect(name);
  for (const std::string_view name : kHandedOnSwitches) collect(name);
  for (const std::string_view name : kHandedOnLists) {
    const std::string flag = absl::StrCat("--", std::string(name));
    for (const std::string& value : up.FindFlag(flag)->values())
      flags.push_back(absl::StrCat(flag, "=", value));
  }
}

absl::Status ReadKey(const std::string& file, const char* flag, std::string& key) {
  if (file.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> read = ReadTokenFile(file);
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", std::string(read.status().message())));
  }
  key = *std::move(read);
  return absl::OkStatus();
}

// The values of a flag that is handed on.
std::vector<std::string> AllHandedOn(const UpOptions& o, std::string_view flag) {
  std::vector<std::string> values;
  for (const std::string& given : o.coordinator_flags) {
    if (given.starts_with(flag) && given[flag.size()] == '=')
      values.push_back(given.substr(flag.size() + 1));
  }
  return values;
}

// The last one; empty: the flag is not given.
std::string HandedOn(const UpOptions& o, std::string_view flag) {
  const std::vector<std::string> values = AllHandedOn(o, flag);
  return values.empty() ? "" : values.back();
}

// Those of all plans, which are for devices of one machine.
absl::StatusOr<std::vector<LocalWorker>> WorkersOfPlans(const std::vector<std::string>& plans) {
  std::vector<LocalWorker> all;
  for (const std::string& plan : plans) {
    absl::StatusOr<std::vector<LocalWorker>> workers = WorkersOfPlan(plan);
    if (!workers.ok()) return workers.status();
    for (LocalWorker& worker : *workers) {
      const auto machine = [](const LocalWorker& w) { return w.name.substr(0, w.name.rfind('/')); };
      if (!all.empty() && machine(all.front()) != machine(worker)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--plan ", plan, " uses ", worker.name, ", another plan ",
                         all.front().name, ": tessera up starts the workers of one machine"));
      }
      // A device in two plans is the coordinator's to refuse.
      const bool known = std::any_of(all.begin(), all.end(), [&](const LocalWorker& other) {
        return other.name == worker.name;
      });
      if (!known) all.push_back(std::move(worker));
    }
  }
  return all;
}

// With --cluster or --plan the workers are those that the file names.
absl::Status NameWorkers(UpOptions& o) {
  const std::string cluster = HandedOn(o, "--cluster"), plan = HandedOn(o, "--plan");
  if (cluster.empty() == plan.empty()) return absl::OkStatus();  // both: the coordinator refuses
  auto named = plan.empty() ? WorkersOfCluster(cluster) : WorkersOfPlans(AllHandedOn(o, "--plan"));
  if (!named.ok()) return named.status();
  o.named_workers = *std::move(named);
  const auto count = static_cast<int>(o.named_workers.size());
  if (o.workers > count) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", o.workers, ": ", plan.empty() ? "--cluster " : "--plan ",
                     plan.empty() ? cluster : plan, plan.empty() ? " describes " : " uses ", count,
                     " devices, and workers beyond them would stay idle"));
  }
  if (!plan.empty() && o.workers > 0 && o.workers < count) {
    return absl::InvalidArgumentError(absl::StrCat("--workers ", o.workers, ": --plan ", plan,
                                                   " needs its ", count,
                                                   " workers: leave --workers out"));
  }
  return absl::OkStatus();
}

// Where nobody says on what the named workers run, they run on what their kinds say.
absl::Status TakeDevicesOfKinds(UpOptions& o) {
  if (o.workers > 0) return absl::OkStatus();
  o.device_notes = OnCpuNotes(o.named_workers);
  if (!NeedDevices(o.named_workers)) return absl::OkStatus();
  const std::string cluster = HandedOn(o, "--cluster"), plan = HandedOn(o, "--plan");
  const absl::StatusOr<v1::DeviceList> gpus = AskForDevices(o.bin_dir);
  if (!gpus.ok()) return gpus.status();
  const std::map<std::string, int> left_out = LeaveOutUnsupported(&o.named_workers);
  if (!left_out.empty()) {
    o.device_notes.push_back(
        absl::StrCat("left out: ", scheduler::CountedKinds(left_out), ": no worker runs on these"));
  }
  auto chosen = DevicesOfKinds(plan.empty() ? cluster : plan, o.named_workers, *gpus);
  if (!chosen.ok()) return chosen.status();
  o.devices = *std::move(chosen);
  return absl::OkStatus();
}

// Whether the coordinator is to plan, and nothing says for which devices but those that start.
bool PlansForStarted(const UpOptions& o) {
  const bool plans = !HandedOn(o, "--split").empty() || !HandedOn(o, "--prefer").empty() ||
                     !HandedOn(o, "--workload").empty();
  return plans && HandedOn(o, "--cluster").empty() && HandedOn(o, "--plan").empty();
}

// Names the workers, and describes their devices as `tessera plan init` does.
absl::Status DescribeWorkers(UpOptions& o) {
  const MachineFacts facts = ReadMachineFacts("", {});
  std::vector<DeviceChoice> devices = o.devices;
  if (devices.empty())
    devices.resize(o.workers > 0 ? o.workers : std::min(2, facts.cores),
                   {std::string(kCpuDevice), {}});
  if (devices.size() < 2 && HandedOn(o, "--split") == "true") {
    return absl::InvalidArgumentError(
        "--split needs two devices, one that only prefills and one that only decodes: name them "
        "with --devices, or CPU workers with --workers");
  }
  for (size_t i = 0; i < devices.size(); ++i)
    o.named_workers.push_back({.name = absl::StrCat("local/", i)});
  o.description = DescribeStarted(facts, devices);
  return absl::OkStatus();
}

absl::Status ReadDevices(const std::string& devices, UpOptions& o) {
  if (devices.empty()) return TakeDevicesOfKinds(o);
  v1::DeviceList gpus;
  if (NamesGpus(devices)) {
    auto asked = AskForDevices(o.bin_dir);
    // To plan for a GPU that the catalogue does not know takes its rates.
    if (asked.ok() && PlansForStarted(o) && HasUnknownGpu(*asked))
      asked = AskForDevices(o.bin_dir, /*measure=*/true);
    if (!asked.ok()) return asked.status();
    gpus = *std::move(asked);
  }
  auto chosen = ChooseDevices(devices, gpus);
  if (!chosen.ok()) return chosen.status();
  o.devices = *std::move(chosen);
  const size_t named = o.named_workers.size();
  if (named > 0 && named != o.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("--devices names ", o.devices.size(),
                                                   " devices, but --cluster or --plan ", named,
                                                   ": name one for each, in its order"));
  }
  if (o.workers > 0 && static_cast<size_t>(o.workers) != o.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers ", o.workers, " with --devices, which has one worker for each of its ",
        o.devices.size(), " devices: leave --workers out"));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddUp(const Command& app, UpFlags& flags) {
  UpOptions& o = flags.options;
  const Command up = app.AddSubcommand("up", "Start a coordinator and local workers, until Ctrl-C");
  up.AddOption(
        "model,--model", o.models,
        "Model: a Hugging Face folder, or a name in the local cache, or NAME=FOLDER to call it "
        "NAME; may be given more than once: the workers are dealt to the models, unless --plan "
        "says which serve what")
      .OneValuePerUse();
  up.AddOption("--workers", o.workers,
               "Local CPU workers; 0: those of --plan or --cluster, else one per core, max 2")
      .Range(0, 1024)
      .ShowDefault();
  up.AddOption(
      "--devices", flags.devices,
      "One worker on each: all (every GPU), or a list such as cuda:0,cpu; cuda-emulated is "
      "an emulator, very slow; default: the kinds of --plan or --cluster, else --workers on the "
      "CPU");
  up.AddOption("--gpu-memory-utilization", o.gpu_memory_utilization,
               "Share of each GPU's memory to use, with what other processes use of it")
      .Check(Between(0.01, 1))
      .ShowDefault();
  AddListening(up, flags);
  up.AddOption("--cpu-isa", o.cpu_isa,
               "Kernel path: auto (the last in this list that the processor supports), reference, "
               "avx2, avx512, avx512_bf16 or amx")
      .ShowDefault();
  up.AddOption("--bin-dir", o.bin_dir, "Folder of tessera-coordinator and tessera-worker");
  up.AddOption("--log-dir", o.log_dir, "Folder for the logs; default: a new one under /tmp");
  up.AddOption("--ready-timeout", o.ready_timeout_seconds,
               "Seconds to wait until all workers serve")
      .Check(NonNegative())
      .ShowDefault();
  up.AddOption("--shutdown-timeout", o.shutdown_timeout_seconds,
               "Seconds to finish requests after Ctrl-C")
      .Check(NonNegative())
      .ShowDefault();
  up.AddOption("--ask", flags.ask,
               "A question to send once everything is up; its answer is printed");
  up.AddSwitch("--raw", flags.raw, "Continue --ask's text without a chat template")
      .Needs(*up.FindFlag("--ask"));
  up.AddOption("--expect", flags.expect,
               "Expected answer to --ask; after any other answer everything stops with exit code 1")
      .Needs(*up.FindFlag("--ask"));
  up.AddSwitch("--once", flags.once, "Stop when everything is up and --ask has been answered");
  up.AddOption("--config", flags.config, "YAML file with these flags' long names as keys");
  AddHandedOn(up);
  return up;
}

absl::Status FinishUp(const Command& up, UpFlags& flags) {
  UpOptions& o = flags.options;
  if (!flags.config.empty()) {
    if (absl::Status s = ApplyFlagFile(flags.config, up); !s.ok()) return s;
  }
  o.host = WithoutBrackets(o.host);
  if (o.models.empty()) {
    return absl::InvalidArgumentError("no model is named: tessera up MODEL (see --help)");
  }
  const char* const key = getenv("TESSERA_API_KEY");
  if ((o.api_keys.empty() && key != nullptr) ||
      std::find(o.api_keys.begin(), o.api_keys.end(), "") != o.api_keys.end()) {
    return absl::InvalidArgumentError(
        "--api-key (or TESSERA_API_KEY) is empty: give a key, or leave the flag out if clients "
        "need none");
  }
  if (!o.api_key_file.empty()) {
    absl::StatusOr<std::vector<ApiKey>> keys = ReadApiKeyFile(o.api_key_file);
    if (!keys.ok()) return keys.status();
    o.first_key = keys->front().key;
  }
  if (!o.api_keys.empty()) o.first_key = o.api_keys.front();
  if (absl::Status s = ReadKey(o.admin_key_file, "--admin-key-file", o.admin_key); !s.ok())
    return s;
  std::string token;  // read so that a file that is not there is named here, not in a log
  if (absl::Status s = ReadKey(o.cluster_token_file, "--cluster-token-file", token); !s.ok())
    return s;
  CollectHandedOn(up, o.coordinator_flags);
  if (absl::Status s = NameWorkers(o); !s.ok()) return s;
  if (absl::Status s = ReadDevices(flags.devices, o); !s.ok()) return s;
  if (PlansForStarted(o)) {
    if (o.models.size() > 1) {
      return absl::InvalidArgumentError(
          "--split, --prefer and --workload plan for one model: plan several with tessera plan "
          "--model A --model B, and give --plan");
    }
    if (absl::Status s = DescribeWorkers(o); !s.ok()) return s;
  }
  for (const Flag& flag : up.flags()) {
    if (!flag.variable().empty()) unsetenv(flag.variable().c_str());
  }
  // These would give all workers the same.
  for (const char* flag :
       {"listen", "advertise", "name", "port-file", "coordinator", "cpus", "memory", "device"}) {
    unsetenv(EnvironmentName(flag).c_str());
  }
  return absl::OkStatus();
}

}  // namespace tessera::deploy
