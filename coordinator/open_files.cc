#include "coordinator/open_files.h"

#include <sys/resource.h>

#include "third_party/spdlog/log.h"

namespace tessera::coordinator {

void RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  const bool raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
  Logger("coordinator")
      .info("open files: at most {}{}", limit.rlim_cur, raised ? "" : " (could not be raised)");
}

}  // namespace tessera::coordinator
