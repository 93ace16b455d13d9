#include "deploy/failure.h"

#include <iostream>
#include <string>

#include "third_party/absl/str_cat.h"
#include "third_party/cli11/flags.h"

namespace tessera::deploy {

int Fail(const absl::Status& status) {
  const std::string message(status.message());
  std::cerr << "tessera: " << message << "\n";
  return absl::IsInvalidArgument(status) && message.starts_with("--") ? kUsageError : 1;
}

int FailUsage(std::string_view reason) {
  std::cerr << "tessera: " << reason << "\n";
  return kUsageError;
}

int FailParse(const Command& asked, const absl::Status& reason) {
  return FailUsage(StrCat(StdView(reason.message()), "; see ", asked.full_name(), " --help"));
}

}  // namespace tessera::deploy
