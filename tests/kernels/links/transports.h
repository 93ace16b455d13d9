// Connected links over each kind of socket, for tests. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/links/link.h"
#include "kernels/links/link_tls.h"

namespace tessera::tests {

// Bounds every wait that should end long before; generous for busy machines.
inline constexpr double kPatienceSeconds = 30;

struct LinkedEnds {
  std::unique_ptr<kernels::Link> first;
  std::unique_ptr<kernels::Link> second;
};

// With a certificate that an authority of this process signed.
std::shared_ptr<const kernels::LinkTlsSource> TestLinkTls();

// "pair", "unix", "tcp", "tcp, TLS"; "tcp6" too where this machine has IPv6.
std::vector<std::string> Transports();
LinkedEnds Connect(const std::string& transport);

}  // namespace tessera::tests
