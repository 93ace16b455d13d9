#include "tests/kernels/links/transports.h"

#include <catch2/catch.hpp>
#include <thread>

#include "kernels/links/link_socket.h"
#include "kernels/links/link_tls.h"
#include "tests/temporary_folder.h"
#include "tests/tls/issued.h"

namespace tessera::tests {

using kernels::ConnectLink;
using kernels::CreateLinkPair;
using kernels::LinkAddress;
using kernels::LinkListener;

std::shared_ptr<const kernels::LinkTlsSource> TestLinkTls() {
  static const auto source = [] {
    const Issued authority = IssueAuthority();
    const Issued issued = Issue(authority);
    auto context = kernels::LinkTlsContext::Make(
        {.chain = issued.certificate, .key = issued.key, .authority = authority.certificate});
    REQUIRE(context.ok());
    return std::make_shared<const kernels::LinkTlsSource>(*std::move(context));
  }();
  return source;
}

std::vector<std::string> Transports() {
  std::vector<std::string> transports = {"pair", "unix", "tcp", "tcp, TLS"};
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
  const auto tls = transport == "tcp, TLS" ? TestLinkTls() : nullptr;
  auto listener = LinkListener::Listen(address, tls);
  REQUIRE(listener.ok());
  auto first = ConnectLink((*listener)->address(), kPatienceSeconds, tls.get());
  REQUIRE(first.ok());
  auto second = (*listener)->Accept(kPatienceSeconds);
  REQUIRE(second.ok());
  if (tls != nullptr) {  // whose handshake takes both ends
    std::thread greets([&] {
      CHECK((*first)
                ->Send(kernels::kPingFrame, absl::Span<const std::byte>(), kPatienceSeconds)
                .ok());
    });
    std::string nothing;
    CHECK((*second)->ReceiveAny(0, &nothing, kPatienceSeconds).ok());
    greets.join();
  }
  (*first)->set_peer("second");
  (*second)->set_peer("first");
  return {.first = *std::move(first), .second = *std::move(second)};
}

}  // namespace tessera::tests
