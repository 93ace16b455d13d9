#include "tests/coordinator/peer_sources.h"

#include <pwd.h>
#include <unistd.h>

#include <system_error>

namespace tessera::tests {

namespace fs = std::filesystem;

fs::path PeerFolder(std::string_view below) {
  const passwd* const user = getpwuid(getuid());
  const fs::path cache = fs::path(user == nullptr ? "/" : user->pw_dir) / ".cache/tessera-bench";
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(cache, error)) {
    const fs::path folder = entry.path() / "vendor/llama.cpp" / below;
    if (fs::is_directory(folder, error)) return folder;
  }
  return {};
}

}  // namespace tessera::tests
