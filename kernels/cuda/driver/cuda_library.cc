#include "kernels/cuda/driver/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

std::vector<std::string> Places(const std::string& file, const std::string& wheel_folder) {
  std::vector<std::string> places = {file};
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::string& root :
       {std::string(home == nullptr ? "" : home), std::string("/usr/local/cuda")}) {
    if (root.empty()) continue;
    places.push_back(StrCat(root, "/lib64/", file));
    places.push_back(StrCat(root, "/lib/", file));
    if (!wheel_folder.empty()) places.push_back(StrCat(root, "/", wheel_folder, "/", file));
  }
  return places;
}

}  // namespace

CudaLibrary CudaLibrary::Open(const std::string& file, const std::string& wheel_folder) {
  CudaLibrary opened;
  for (const std::string& place : Places(file, wheel_folder)) {
    opened.library_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened.library_ != nullptr) {
      opened.file_ = place;
      opened.problem_.clear();
      break;
    }
    const char* const error = dlerror();
    if (opened.problem_.empty()) opened.problem_ = error != nullptr ? error : place;
  }
  return opened;
}

void* CudaLibrary::Address(const char* symbol) {
  if (library_ == nullptr) return nullptr;
  void* const address = dlsym(library_, symbol);
  if (address == nullptr && problem_.empty()) {
    problem_ = StrCat(file_, " has no function ", symbol);
  }
  return address;
}

}  // namespace tessera::kernels::cuda
