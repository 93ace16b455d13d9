#include "worker/device_list.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/probe.h"
#include "proto/device_names.h"
#include "third_party/absl/str_cat.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::worker {
namespace {

constexpr size_t kColumns = 6;
using Row = std::array<std::string, kColumns>;

void AppendRows(const std::vector<Row>& rows, std::string* text) {
  std::array<size_t, kColumns> widths = {};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < kColumns; ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.resize(line.find_last_not_of(' ') + 1);
    *text += line + "\n";
  }
}

// Less than a worker's share, so that a display or another process on the card is no problem.
constexpr double kMeasuredUtilization = 0.8;

absl::StatusOr<kernels::DeviceRates> Measure(const DeviceType* type, const std::string& device) {
  if (type == nullptr || type->open == nullptr) {
    return absl::NotFoundError(StrCat(device, ": no type of device opens it"));
  }
  auto opened =
      type->open({.name = device, .gpu_memory_utilization = kMeasuredUtilization}, DeviceShare());
  if (!opened.ok()) return opened.status();
  return kernels::ProbeDevice(*opened->device, opened->probe);
}

}  // namespace

v1::DeviceList ListDevices() {
  v1::DeviceList list;
  for (const DeviceType* type : DeviceTypes()) {
    if (type->list != nullptr) type->list(&list);
  }
  return list;
}

void MeasureListed(std::span<const DeviceType* const> types, v1::DeviceList* list) {
  for (v1::ListedDevice& device : *list->mutable_devices()) {
    if (!device.problem().empty()) continue;
    const auto rates = Measure(FindDeviceType(device.device(), types), device.device());
    if (!rates.ok()) {
      device.set_problem(std::string(rates.status().message()));
      continue;
    }
    device.mutable_info()->set_memory_read_bytes_per_second(rates->read_bytes_per_second);
    device.set_half_flops_per_second(rates->bf16_flops_per_second);
  }
}

std::string DeviceListText(const v1::DeviceList& list) {
  std::string text;
  if (list.devices().empty()) {
    text = StrCat("no GPU: ", list.no_devices(), "\n");
  } else {
    std::vector<Row> rows = {{"DEVICE", "GPU", "CAPABILITY", "MEMORY", "NEAR CORES", "UUID"}};
    std::string problems;
    for (const v1::ListedDevice& device : list.devices()) {
      const v1::DeviceInfo& info = device.info();
      const std::vector<int> near(device.near_cores().begin(), device.near_cores().end());
      rows.push_back({device.device(), info.gpu_name(), info.compute_capability(),
                      StrCat(info.memory_bytes() >> 20, " MiB"), near.empty() ? "-" : CpuList(near),
                      info.uuid()});
      if (device.problem().empty()) continue;
      problems += StrCat(device.device(), " cannot be used: ", device.problem(), "\n");
    }
    AppendRows(rows, &text);
    text += problems + StrCat("driver ", list.driver_version(), "\n");
  }
  return text + StrCat("always there: ", kCpuDevice, ", and ", kEmulatedGpuDevice,
                       " (an emulator of a GPU: very slow, for tests)\n");
}

std::string DeviceListJson(const v1::DeviceList& list) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  return google::protobuf::util::MessageToJsonString(list, &json, options).ok() ? json : "{}\n";
}

}  // namespace tessera::worker
