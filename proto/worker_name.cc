#include "proto/worker_name.h"

#include "proto/plain_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr size_t kMaxBytes = 255;

// Between slashes: one that is empty, "." or ".." is a step between folders.
bool HasFolderSteps(std::string_view name) {
  for (;;) {
    const size_t end = name.find('/');
    const std::string_view part = name.substr(0, end);
    if (part.empty() || part == "." || part == "..") return true;
    if (end == std::string_view::npos) return false;
    name.remove_prefix(end + 1);
  }
}

}  // namespace

std::string WorkerNameProblem(std::string_view name) {
  if (name.size() > kMaxBytes) return StrCat("a name has at most ", kMaxBytes, " bytes");
  if (HasControls(name)) return "a name has no line breaks, tabs or other control characters";
  if (HasFolderSteps(name)) return "a name is machine/index, with no part that is empty, . or ..";
  return "";
}

}  // namespace tessera
