#include "third_party/linux/host_name.h"

#include <unistd.h>

namespace tessera {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

}  // namespace tessera
