#include "worker/device_list.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <vector>

#include "third_party/absl/str_cat.h"
#include "third_party/linux/cpu_share.h"
#include "third_party/linux/pci_device.h"
#include "worker/gpu_kind.h"

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

}  // namespace

v1::DeviceInfo DescribeGpu(const kernels::cuda::Gpu& gpu, const std::string& driver_version) {
  v1::DeviceInfo info;
  info.set_kind(KindOfGpu(gpu.name, gpu.memory_bytes));
  info.set_gpu_name(gpu.name);
  info.set_uuid(gpu.uuid);
  info.set_compute_capability(StrCat(gpu.capability / 10, ".", gpu.capability % 10));
  info.set_driver_version(driver_version);
  info.set_memory_bytes(gpu.memory_bytes);
  info.add_data_types(v1::DATA_TYPE_FLOAT32);
  info.add_data_types(v1::DATA_TYPE_FLOAT16);
  // Turing has no arithmetic in bfloat16: such checkpoints compute in float16 there.
  if (gpu.capability >= 80) info.add_data_types(v1::DATA_TYPE_BFLOAT16);
  info.add_data_types(v1::DATA_TYPE_INT8);
  return info;
}

v1::DeviceList MakeDeviceList(const kernels::cuda::GpuList& gpus, const std::string& build_problem,
                              const std::string& root) {
  v1::DeviceList list;
  list.set_driver_version(gpus.driver_version);
  list.set_no_devices(gpus.no_gpus);
  for (const kernels::cuda::Gpu& gpu : gpus.gpus) {
    v1::ListedDevice* device = list.add_devices();
    device->set_device(gpu.device);
    *device->mutable_info() = DescribeGpu(gpu, gpus.driver_version);
    device->set_problem(gpu.problem.empty() ? build_problem : gpu.problem);
    for (const int core : CoresNearPciDevice(gpu.bus_id, root)) device->add_near_cores(core);
  }
  return list;
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
  return text +
         "always there: cpu, and cuda-emulated (an emulator of a GPU: very slow, for tests)\n";
}

std::string DeviceListJson(const v1::DeviceList& list) {
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  return google::protobuf::util::MessageToJsonString(list, &json, options).ok() ? json : "{}\n";
}

}  // namespace tessera::worker
