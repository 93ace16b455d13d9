#include "worker/weights/start_thread.h"

#include <system_error>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {

absl::StatusOr<std::thread> StartThread(std::string_view name, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        StrCat("cannot start ", name, ": ", error.what(), "; raise the limit on processes"));
  }
}

}  // namespace tessera::worker
