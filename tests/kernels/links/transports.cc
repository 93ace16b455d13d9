#include "tests/kernels/links/transports.h"

#include <catch2/catch.hpp>

#include "kernels/links/link_socket.h"
#include "tests/temporary_folder.h"

namespace tessera::tests {

using kernels::ConnectLink;
using kernels::CreateLinkPair;
using kernels::LinkAddress;
using kernels::LinkListener;

std::vector<std::string> Transports() {
  std::vector<std::string> transports = {"pair", "unix", "tcp"};
  if (LinkListener::Listen({.host = "::1"}).ok()) transports.emplace_back("tcp6");
  return transports;
}

LinkedEnds Connect(const std::string& transport) {
  if (transport == "pair") {
    auto pair = CreateLinkPair("first", "second");
    REQUIRE(pair.ok());
    return {.first = std::move(pair->first), .second = std::move(pair->second)};
  }
  const TemporaryFolder folder;
  LinkAddress address{.host = transport == "tcp6" ? "::1" : "127.0.0.1"};
  if (transport == "unix") address = {.path = (folder.path() / "link.sock").string()};
  auto listener = LinkListener::Listen(address);
  REQUIRE(listener.ok());
  auto first = ConnectLink((*listener)->address(), kPatienceSeconds);
  REQUIRE(first.ok());
  auto second = (*listener)->Accept(kPatienceSeconds);
  REQUIRE(second.ok());
  (*first)->set_peer("second");
  (*second)->set_peer("first");
  return {.first = *std::move(first), .second = *std::move(second)};
}

}  // namespace tessera::tests
