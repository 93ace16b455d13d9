#include "kernels/cuda/driver/nccl_table.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kOldestVersion = 21400;  // the first with communicators that do not block

std::vector<std::string> Places() {
  std::vector<std::string> places = {kFile};
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::string& root :
       {std::string(home == nullptr ? "" : home), std::string("/usr/local/cuda")}) {
    if (root.empty()) continue;
    places.push_back(StrCat(root, "/lib64/", kFile));
    places.push_back(StrCat(root, "/lib/", kFile));
    places.push_back(StrCat(root, "/../nccl/lib/", kFile));
  }
  return places;
}

// ncclGetVersion: 22809 is 2.28.9.
std::string Dotted(int version) {
  return StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

OpenedNccl OpenNccl() {
  OpenedNccl opened;
  void* library = nullptr;
  for (const std::string& place : Places()) {
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      opened.file = place;
      break;
    }
    const char* const error = dlerror();
    if (opened.no_nccl.empty()) opened.no_nccl = error != nullptr ? error : place;
  }
  if (library == nullptr) return opened;
  opened.no_nccl.clear();
  NcclTable table;
  const auto find = [&](const char* symbol, auto*& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && opened.no_nccl.empty()) {
      opened.no_nccl = StrCat(opened.file, " has no function ", symbol);
    }
  };
#define TESSERA_FIND(name, symbol, ...) find(symbol, table.name);
  TESSERA_NCCL_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  if (!opened.no_nccl.empty()) return opened;
  int version = 0;
  if (table.GetVersion(&version) != kNcclSuccess || version < kOldestVersion) {
    opened.no_nccl = StrCat(opened.file, " is NCCL ", Dotted(version), "; 2.14 is needed");
    return opened;
  }
  opened.version = Dotted(version);
  opened.table = table;
  return opened;
}

}  // namespace tessera::kernels::cuda
