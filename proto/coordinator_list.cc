#include "proto/coordinator_list.h"

#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"

namespace tessera {

absl::StatusOr<std::vector<std::string>> ReadCoordinatorList(std::string_view list) {
  std::vector<std::string> addresses;
  for (;;) {
    const size_t end = list.find(',');
    const std::string address(list.substr(0, end));
    if (address.empty()) {
      return absl::InvalidArgumentError(
          addresses.empty() && end == std::string_view::npos
              ? "--coordinator is empty: give the HOST:PORT of the coordinator's gRPC service"
              : "--coordinator: an address is missing beside a comma");
    }
    if (absl::Status s = CheckHostPort(address); !s.ok())
      return absl::InvalidArgumentError(StrCat("--coordinator: ", StdView(s.message())));
    addresses.push_back(address);
    if (end == std::string_view::npos) return addresses;
    list.remove_prefix(end + 1);
  }
}

}  // namespace tessera
