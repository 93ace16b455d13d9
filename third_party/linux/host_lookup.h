// Addresses of a host by name, without a caller that waits for a name server longer than it wants
// to: the system's lookup (getaddrinfo) cannot be broken off.
//
// Thread rule: thread-safe. A lookup runs on a thread of its own; those who ask for one name at the
// same time share it, so that a name server that is silent holds one thread a name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

// Numeric ones ("10.0.0.5", "fe80::1%eth0"), in the order to try them in.
using HostAddresses = std::vector<std::string>;

class HostLookups {
 public:
  using Find = std::function<absl::StatusOr<HostAddresses>(const std::string& host)>;

  // `find` blocks for as long as it takes; it may be called after this object is gone.
  explicit HostLookups(Find find);
  // UNAVAILABLE says why there are none. One that is not done in time goes on, for whoever asks
  // next.
  absl::StatusOr<HostAddresses> LookUp(const std::string& host, double patience_seconds);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// By the system. Numeric addresses are themselves, at once.
absl::StatusOr<HostAddresses> LookUpHost(const std::string& host, double patience_seconds);

}  // namespace tessera
