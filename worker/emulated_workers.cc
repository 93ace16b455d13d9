#include "worker/emulated_workers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "proto/emulated_kind.h"
#include "proto/written_file.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/devices/rehearsed_devices.h"
#include "worker/emulation/emulated_device.h"

namespace tessera::worker {
namespace {

constexpr double kWriteSeconds = 1;

absl::StatusOr<WorkerDevice> MakeDevice(const std::string& kind, int64_t memory_bytes) {
  auto device = CreateEmulatedDevice(kind, memory_bytes);
  if (!device.ok()) return device.status();
  WorkerDevice made;
  made.device = *std::move(device);
  made.computes_nothing = true;
  made.info.set_kind(StrCat(kEmulatedKind, kind));
  made.info.set_description(made.device->Describe());
  made.info.set_memory_bytes(memory_bytes);
  made.info.set_kernel_path("none");
  for (const v1::DataType type :
       {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_FLOAT16, v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8})
    made.info.add_data_types(type);
  return made;
}

// "machine/3" and 2: "machine/5".
std::string NameOf(const std::string& first, size_t more) {
  const size_t slash = first.rfind('/');
  return StrCat(first.substr(0, slash), "/",
                std::strtoull(first.c_str() + slash + 1, nullptr, 10) + more);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmulatedWorkers>> EmulatedWorkers::Make(
    const WorkerOptions& options, std::vector<std::unique_ptr<HostedWorker>>* workers) {
  if (options.name.find('/') == std::string::npos) {
    return absl::InvalidArgumentError(
        StrCat("--name ", options.name, ": of emulated devices it must be MACHINE/INDEX"));
  }
  auto emulation = Emulation::Open(options.rehearsal_folder, options.rehearsal_speed);
  if (!emulation.ok()) return emulation.status();
  std::unique_ptr<EmulatedWorkers> made(new EmulatedWorkers(*std::move(emulation)));
  for (const std::string& kind : RehearsedKinds(options.device.name)) {
    WorkerOptions own = options;
    own.name = NameOf(options.name, made->workers_.size());
    auto memory = made->emulation_->MemoryOf(kind, own.name);
    if (!memory.ok()) return memory.status();
    const int64_t asked_bytes = options.device.memory_bytes;
    auto device = MakeDevice(kind, asked_bytes > 0 ? asked_bytes : *memory);
    if (!device.ok()) return device.status();
    auto worker = HostedWorker::Make(own, *std::move(device));
    if (!worker.ok()) return worker.status();
    workers->push_back(*std::move(worker));
    made->workers_.push_back({kind, own.name});
  }
  Logger("worker").warn(
      "--device {}: these devices compute nothing; they answer with tokens drawn from the "
      "request's seed, after the time that the cost model gives a step",
      options.device.name);
  return made;
}

void EmulatedWorkers::Change(size_t worker, HostingTerms* terms) const {
  const Named& named = workers_[worker];
  terms->kv_pace = emulation_->KvPaceOf(named.name);
  terms->change_setup = [this, named](SetupOptions* setup) {
    emulation_->Fill(named.kind, named.name, setup);
  };
}

void EmulatedWorkers::WriteFigures(bool last) {
  if (emulation_->folder().empty()) return;
  const double now = SystemClock().NowSeconds();
  if (!last && now - written_seconds_ < kWriteSeconds) return;
  written_seconds_ = now;
  const std::string& name = workers_.front().name;
  std::string machine = name.substr(0, name.rfind('/'));
  std::replace(machine.begin(), machine.end(), '/', '_');
  const std::string file = StrCat(emulation_->folder(), "/", machine, ".figures.json");
  // Renamed into place: who reads it never reads half of it.
  const absl::Status written = WriteFileText(file + ".new", emulation_->lateness().Json());
  if (!written.ok() || rename((file + ".new").c_str(), file.c_str()) != 0)
    Logger("worker").warn("{}: cannot be written", file);
}

}  // namespace tessera::worker
