#include "deploy/device_choice.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "deploy/processes/child_process.h"
#include "proto/device_names.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

namespace fs = std::filesystem;

constexpr double kListSeconds = 60;
constexpr double kMeasureSeconds = 120;

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    parts.push_back(text.substr(0, comma));
    if (comma == text.size()) return parts;
    text.remove_prefix(comma + 1);
  }
}

DeviceChoice Chosen(const v1::ListedDevice& gpu) {
  return {gpu.device(), {gpu.near_cores().begin(), gpu.near_cores().end()}, gpu};
}

absl::StatusOr<std::vector<DeviceChoice>> AllGpus(const v1::DeviceList& gpus) {
  std::vector<DeviceChoice> chosen;
  std::string problems;
  for (const v1::ListedDevice& gpu : gpus.devices()) {
    if (gpu.problem().empty())
      chosen.push_back(Chosen(gpu));
    else
      problems += StrCat(problems.empty() ? "" : "; ", gpu.device(), ": ", gpu.problem());
  }
  if (!chosen.empty()) return chosen;
  return absl::NotFoundError(StrCat("--devices all: no GPU can be used: ",
                                    gpus.devices().empty() ? gpus.no_devices() : problems));
}

absl::StatusOr<DeviceChoice> OneGpu(std::string_view device, const v1::DeviceList& gpus) {
  if (gpus.devices().empty()) {
    return absl::NotFoundError(
        StrCat("--devices ", device, ": no GPU can be used: ", gpus.no_devices()));
  }
  std::string there;
  const std::string_view wanted = device.substr(device.find(':') + 1);
  const v1::ListedDevice* found = nullptr;
  for (const v1::ListedDevice& gpu : gpus.devices()) {
    there += StrCat(there.empty() ? "" : ", ", gpu.device(), " (", gpu.info().gpu_name(), ")");
    const bool same_maker = gpu.device().starts_with(device.substr(0, device.find(':') + 1));
    const bool by_uuid = same_maker && wanted.size() > 4 && gpu.info().uuid().starts_with(wanted);
    if (gpu.device() != device && !by_uuid) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(StrCat("--devices ", device, ": both ",
                                               found->info().uuid(), " and ", gpu.info().uuid(),
                                               " begin so; give more of it"));
    }
    found = &gpu;
  }
  if (found == nullptr) {
    return absl::NotFoundError(
        StrCat("--devices ", device, ": there is no such GPU; there are: ", there));
  }
  if (found->problem().empty()) return Chosen(*found);
  return absl::FailedPreconditionError(StrCat("--devices ", device, ": ", found->info().gpu_name(),
                                              " cannot be used: ", found->problem()));
}

}  // namespace

bool NamesGpus(std::string_view devices) {
  const std::vector<std::string_view> parts = Split(devices);
  return std::any_of(parts.begin(), parts.end(),
                     [](std::string_view part) { return part == "all" || IsCardName(part); });
}

absl::StatusOr<std::vector<DeviceChoice>> ChooseDevices(std::string_view devices,
                                                        const v1::DeviceList& gpus) {
  std::vector<DeviceChoice> chosen;
  for (const std::string_view part : Split(devices)) {
    if (part == kCpuDevice || part == kEmulatedGpuDevice) {
      chosen.push_back({std::string(part), {}});
    } else if (part == "all") {
      auto all = AllGpus(gpus);
      if (!all.ok()) return all.status();
      chosen.insert(chosen.end(), all->begin(), all->end());
    } else if (IsCardName(part)) {
      auto one = OneGpu(part, gpus);
      if (!one.ok()) return one.status();
      chosen.push_back(*std::move(one));
    } else {
      return absl::InvalidArgumentError(
          StrCat("--devices ", devices, ": \"", part,
                 "\" is no device; give all, cuda:0 (an index or a UUID of tessera-worker "
                 "--list-devices), cpu or cuda-emulated, with commas between"));
    }
  }
  std::set<std::string> gpus_seen;
  for (const DeviceChoice& choice : chosen) {
    if (!IsCardName(choice.device) || gpus_seen.insert(choice.device).second) continue;
    return absl::InvalidArgumentError(StrCat("--devices ", devices, ": ", choice.device,
                                             " is named twice; a GPU has one worker"));
  }
  return chosen;
}

absl::StatusOr<v1::DeviceList> AskForDevices(const std::string& bin_dir, bool measure) {
  const absl::StatusOr<std::string> program = FindProgram(bin_dir, "tessera-worker");
  if (!program.ok()) return program.status();
  std::error_code error;
  std::string file = (fs::temp_directory_path(error) / "tessera-devices-XXXXXX").string();
  const int made = mkstemp(file.data());
  if (made < 0) return absl::UnavailableError(StrCat(file, ": cannot be made"));
  close(made);
  std::vector<std::string> arguments = {*program, "--list-devices", "--json"};
  if (measure) arguments.push_back("--measure");
  const double patience = measure ? kMeasureSeconds : kListSeconds;
  auto process = ChildProcess::Start("tessera-worker", arguments, file);
  const bool ended = process.ok() && process->WaitFor(patience);
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  fs::remove(file, error);
  if (!process.ok()) return process.status();
  v1::DeviceList list;
  if (ended && google::protobuf::util::JsonStringToMessage(text.str(), &list).ok()) return list;
  return absl::UnavailableError(
      ended ? StrCat(*program, " --list-devices --json printed no list: ", text.str())
            : StrCat(*program, " --list-devices did not end within ", patience,
                     " s: does the GPU's driver hang (nvidia-smi)?"));
}

}  // namespace tessera::deploy
