#include "kernels/cuda/driver/driver_tables.h"

#include <dlfcn.h>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

void* OpenLibrary(const char* file, std::string* why_not) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    *why_not = error != nullptr ? error : file;
  }
  return library;
}

template <typename Function>
void Find(void* library, const char* symbol, Function** function, std::string* why_not) {
  *function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (*function == nullptr && why_not->empty()) *why_not = StrCat("it has no function ", symbol);
}

std::optional<DriverTable> OpenCuda(std::string* why_not) {
  void* const library = OpenLibrary("libcuda.so.1", why_not);
  if (library == nullptr) return std::nullopt;
  DriverTable table;
#define TESSERA_FIND(name, symbol, ...) Find(library, symbol, &table.name, why_not);
  TESSERA_DRIVER_FUNCTIONS(TESSERA_FIND)
  if (!why_not->empty()) return std::nullopt;
  return table;
}

std::optional<NvmlTable> OpenNvml(std::string* why_not) {
  void* const library = OpenLibrary("libnvidia-ml.so.1", why_not);
  if (library == nullptr) return std::nullopt;
  NvmlTable table;
  TESSERA_NVML_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  if (!why_not->empty() || table.Init() != kNvmlSuccess) return std::nullopt;
  return table;
}

}  // namespace

DriverTables OpenDriver() {
  DriverTables tables;
  tables.driver = OpenCuda(&tables.no_driver);
  std::string no_nvml;
  tables.nvml = OpenNvml(&no_nvml);
  return tables;
}

}  // namespace tessera::kernels::cuda
