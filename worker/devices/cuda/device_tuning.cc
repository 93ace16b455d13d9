#include "worker/devices/cuda/device_tuning.h"

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

std::shared_ptr<kernels::TuningTable> OpenTuning(const DeviceFlags& flags, const std::string& id,
                                                 const std::string& driver,
                                                 const std::string& folder) {
  const std::string& chosen = flags.tuning_folder.empty() ? folder : flags.tuning_folder;
  if (chosen.empty() || chosen == kNoTuning) return nullptr;
  return std::make_shared<kernels::TuningTable>(
      StrCat(chosen, "/", id), StrCat(id, ", ", driver, ", build ", flags.build_version));
}

}  // namespace tessera::worker
