#include "deploy/kind_devices.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/device_names.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/runtime_reserve.h"
#include "scheduler/input/supported_devices.h"

namespace tessera::deploy {
namespace {

std::string PresentText(const v1::DeviceList& gpus) {
  std::string text;
  for (const v1::ListedDevice& gpu : gpus.devices()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", gpu.device(), ": ", gpu.info().kind(),
                    gpu.problem().empty() ? "" : ", which cannot be used: ", gpu.problem());
  }
  if (!text.empty()) return absl::StrCat("this machine has ", text);
  return absl::StrCat("the workers of this machine are CPUs (",
                      gpus.no_devices().empty() ? "no GPU" : gpus.no_devices(), ")");
}

}  // namespace

bool NeedDevices(const std::vector<LocalWorker>& workers) {
  return std::any_of(workers.begin(), workers.end(), [](const LocalWorker& worker) {
    return worker.is_gpu || worker.kind == kEmulatedGpuDevice;
  });
}

std::vector<std::string> OnCpuNotes(const std::vector<LocalWorker>& workers) {
  std::map<std::string, int> unknown;
  for (const LocalWorker& worker : workers) {
    const bool known = worker.kind.empty() || worker.is_gpu || scheduler::HasNoRuntime(worker.kind);
    if (!known) ++unknown[worker.kind];
  }
  std::vector<std::string> notes;
  for (const auto& [kind, devices] : unknown) {
    notes.push_back(absl::StrCat(devices, devices == 1 ? " worker" : " workers", " for kind ", kind,
                                 ": on the CPU; --devices names other devices"));
  }
  return notes;
}

std::map<std::string, int> LeaveOutUnsupported(std::vector<LocalWorker>* workers) {
  std::map<std::string, int> left_out;
  for (const LocalWorker& worker : *workers) {
    if (!worker.is_supported) ++left_out[worker.kind];
  }
  const bool any = std::any_of(workers->begin(), workers->end(),
                               [](const LocalWorker& worker) { return worker.is_supported; });
  if (!any) return {};
  std::erase_if(*workers, [](const LocalWorker& worker) { return !worker.is_supported; });
  return left_out;
}

absl::StatusOr<std::vector<DeviceChoice>> DevicesOfKinds(const std::string& file,
                                                         const std::vector<LocalWorker>& workers,
                                                         const v1::DeviceList& gpus) {
  const auto catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  const auto plain = [&](const std::string& kind) {
    const v1::DeviceKind* known = scheduler::FindKind(*catalogue, kind);
    return scheduler::PlainKindName(known != nullptr ? known->name() : kind);
  };
  std::vector<DeviceChoice> chosen;
  std::set<std::string> taken;
  std::map<std::string, int> missing, wanted;
  for (const LocalWorker& worker : workers) {
    if (!worker.is_gpu) {
      const bool emulated = worker.kind == kEmulatedGpuDevice;
      chosen.push_back({std::string(emulated ? kEmulatedGpuDevice : kCpuDevice), {}});
      continue;
    }
    ++wanted[worker.kind];
    const auto gpu = std::find_if(
        gpus.devices().begin(), gpus.devices().end(), [&](const v1::ListedDevice& one) {
          return one.problem().empty() && plain(one.info().kind()) == plain(worker.kind) &&
                 !taken.contains(one.device());
        });
    if (gpu == gpus.devices().end()) {
      ++missing[worker.kind];
      continue;
    }
    taken.insert(gpu->device());
    chosen.push_back({gpu->device(), {gpu->near_cores().begin(), gpu->near_cores().end()}, *gpu});
  }
  if (missing.empty()) return chosen;
  return absl::FailedPreconditionError(absl::StrCat(
      file, " describes ", scheduler::CountedKinds(wanted), "; ", PresentText(gpus),
      ": give --devices, ",
      workers.size() == 1
          ? std::string("such as --devices cpu")
          : absl::StrCat("one for each of its ", workers.size(), " devices, such as cuda:0,cpu")));
}

}  // namespace tessera::deploy
