#include "kernels/links/link_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/links/handshake.h"
#include "kernels/links/link_socket.h"
#include "tests/kernels/links/transports.h"
#include "tests/tls/issued.h"

namespace tessera::kernels {
namespace {

using tests::Issue;
using tests::IssueAuthority;
using tests::Issued;
using tests::kPatienceSeconds;

constexpr uint16_t kType = kFirstOwnerFrame;

std::shared_ptr<const LinkTlsSource> SignedBy(const Issued& signer, const Issued& trusted,
                                              int64_t bytes_per_key = int64_t{1} << 30) {
  const Issued own = Issue(signer);
  auto context = LinkTlsContext::Make({.chain = own.certificate,
                                       .key = own.key,
                                       .authority = trusted.certificate,
                                       .bytes_per_key = bytes_per_key});
  REQUIRE(context.ok());
  return std::make_shared<const LinkTlsSource>(*std::move(context));
}

struct Outcomes {
  absl::Status client, server;
};

// A handshake between ends that have such TLS; null: none.
Outcomes Meet(const LinkTlsSource* connects, std::shared_ptr<const LinkTlsSource> accepts) {
  auto listener = LinkListener::Listen({.host = "127.0.0.1"}, std::move(accepts));
  REQUIRE(listener.ok());
  auto client = ConnectLink((*listener)->address(), kPatienceSeconds, connects);
  REQUIRE(client.ok());
  auto server = (*listener)->Accept(kPatienceSeconds);
  REQUIRE(server.ok());
  const HandshakeOptions options = {.token = "a-token-of-sixteen-bytes",
                                    .timeout_seconds = kPatienceSeconds};
  Outcomes outcomes;
  std::thread serves([&] {
    outcomes.server = HandshakeAsServer(**server, options).status();
    if (!outcomes.server.ok()) server->reset();  // as LinkServer does
  });
  outcomes.client = HandshakeAsClient(**client, options).status();
  client->reset();
  serves.join();
  return outcomes;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Copies what passes between one client and `target`, and keeps it.
class Tap {
 public:
  explicit Tap(int target) {
    listener_ = FileDescriptor(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener_.get(), 1) == 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    threads_.emplace_back([this, target] {
      const int client = accept(listener_.get(), nullptr, nullptr);
      const int server = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in to = {};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(static_cast<uint16_t>(target));
      if (connect(server, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
        std::thread back([&] { Copy(server, client); });
        Copy(client, server);
        back.join();
      }
      close(client);
      close(server);
    });
  }
  int port() const { return port_; }
  // All bytes, once both ends have closed.
  std::string Seen() {
    for (std::thread& thread : threads_) thread.join();
    return seen_;
  }

 private:
  void Copy(int from, int to) {
    char bytes[4096];
    ssize_t count = 0;
    while ((count = recv(from, bytes, sizeof bytes, 0)) > 0) {
      const std::lock_guard lock(mutex_);
      seen_.append(bytes, static_cast<size_t>(count));
      if (send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL) < 0) break;
    }
    shutdown(to, SHUT_WR);
  }

  FileDescriptor listener_;
  int port_ = 0;
  std::mutex mutex_;
  std::string seen_;
  std::vector<std::thread> threads_;
};

TEST_CASE("ends of one authority meet") {
  const Issued authority = IssueAuthority();
  const Outcomes met = Meet(SignedBy(authority, authority).get(), SignedBy(authority, authority));
  CHECK(met.client.ok());
  CHECK(met.server.ok());
}

TEST_CASE("an end whose certificate another authority signed is refused") {
  const Issued authority = IssueAuthority(), other = IssueAuthority("another authority");
  {
    INFO("the one that connects");
    const Outcomes met = Meet(SignedBy(other, authority).get(), SignedBy(authority, authority));
    CHECK_FALSE(met.server.ok());
    CHECK(Text(met.server).find("certificate verify failed") != std::string::npos);
    CHECK_FALSE(met.client.ok());
  }
  {
    INFO("the one that accepts");
    const Outcomes met = Meet(SignedBy(authority, authority).get(), SignedBy(other, authority));
    CHECK_FALSE(met.client.ok());
    CHECK(Text(met.client).find("certificate verify failed") != std::string::npos);
    CHECK_FALSE(met.server.ok());
  }
}

TEST_CASE("an end that speaks plainly is named by the flag that it lacks") {
  const Issued authority = IssueAuthority();
  const Outcomes plain_client = Meet(nullptr, SignedBy(authority, authority));
  CHECK(Text(plain_client.server).find("--cluster-tls") != std::string::npos);
  CHECK_FALSE(plain_client.client.ok());
  const Outcomes plain_server = Meet(SignedBy(authority, authority).get(), nullptr);
  CHECK(Text(plain_server.server).find("--cluster-tls") != std::string::npos);
  CHECK_FALSE(plain_server.client.ok());
}

TEST_CASE("what an encrypted link carries cannot be read between its ends; a plain one's can") {
  const Issued authority = IssueAuthority();
  const std::string secret(100, 's');
  for (const bool encrypted : {true, false}) {
    INFO(encrypted);
    const auto tls = encrypted ? SignedBy(authority, authority) : nullptr;
    auto listener = LinkListener::Listen({.host = "127.0.0.1"}, tls);
    REQUIRE(listener.ok());
    Tap tap((*listener)->address().port);
    std::string received;
    {
      auto client =
          ConnectLink({.host = "127.0.0.1", .port = tap.port()}, kPatienceSeconds, tls.get());
      REQUIRE(client.ok());
      CHECK((*client)->is_encrypted() == encrypted);
      CHECK((*client)->rules_out_nccl() == encrypted);
      auto server = (*listener)->Accept(kPatienceSeconds);
      REQUIRE(server.ok());
      std::thread sends([&] {
        CHECK((*client)
                  ->Send(kType, {reinterpret_cast<const std::byte*>(secret.data()), secret.size()},
                         kPatienceSeconds)
                  .ok());
      });
      CHECK((*server)->ReceiveAny(1000, &received, kPatienceSeconds).ok());
      sends.join();
    }
    CHECK(received == secret);
    CHECK((tap.Seen().find(secret) == std::string::npos) == encrypted);
  }
}

TEST_CASE("NCCL may carry what an encrypted link's ends say where they allow it") {
  const Issued authority = IssueAuthority(), own = Issue(authority);
  const auto context = LinkTlsContext::Make({.chain = own.certificate,
                                             .key = own.key,
                                             .authority = authority.certificate,
                                             .allows_plain_nccl = true});
  REQUIRE(context.ok());
  const LinkTlsSource tls(*context);
  auto listener = LinkListener::Listen({.host = "127.0.0.1"});
  REQUIRE(listener.ok());
  auto link = ConnectLink((*listener)->address(), kPatienceSeconds, &tls);
  REQUIRE(link.ok());
  CHECK((*link)->is_encrypted());
  CHECK_FALSE((*link)->rules_out_nccl());
}

TEST_CASE("links that begin after a certificate changed show the new one") {
  const Issued before = IssueAuthority("before"), after = IssueAuthority("after");
  const auto shown = std::make_shared<LinkTlsSource>(SignedBy(before, before)->Now());
  CHECK(Meet(SignedBy(before, before).get(), shown).client.ok());
  shown->Replace(SignedBy(after, after)->Now());
  CHECK(Meet(SignedBy(after, after).get(), shown).client.ok());
  CHECK_FALSE(Meet(SignedBy(before, before).get(), shown).client.ok());
}

TEST_CASE("what is read at once ends with its frame: the next one stays where poll sees it") {
  const Issued authority = IssueAuthority();
  const auto tls = SignedBy(authority, authority);
  auto listener = LinkListener::Listen({.host = "127.0.0.1"}, tls);
  REQUIRE(listener.ok());
  auto client = ConnectLink((*listener)->address(), kPatienceSeconds, tls.get());
  REQUIRE(client.ok());
  auto server = (*listener)->Accept(kPatienceSeconds);
  REQUIRE(server.ok());
  const std::string large(100'000, 'a'), small = "next", greeting = "hello";
  const auto send = [](Link& link, const std::string& text) {
    return link.Send(kType, {reinterpret_cast<const std::byte*>(text.data()), text.size()},
                     kPatienceSeconds);
  };
  std::string payload;
  std::thread greets([&] { CHECK(send(**client, greeting).ok()); });
  CHECK((*server)->ReceiveAny(10, &payload, kPatienceSeconds).ok());
  greets.join();
  REQUIRE(send(**server, large).ok());
  REQUIRE(send(**server, small).ok());
  const auto waiting = [&] {
    int bytes = 0;
    ioctl((*client)->socket(), FIONREAD, &bytes);
    return bytes;
  };
  // Seven records and one, each 22 bytes longer than what it holds.
  const size_t all = large.size() + small.size() + 2 * sizeof(EncodedFrameHeader) + 8 * 22;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(kPatienceSeconds);
  while (waiting() < static_cast<int>(all) && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  CHECK(waiting() == static_cast<int>(all));
  REQUIRE((*client)->ReceiveAny(1 << 20, &payload, kPatienceSeconds).ok());
  CHECK(payload == large);
  CHECK(waiting() == static_cast<int>(small.size() + sizeof(EncodedFrameHeader) + 22));
  REQUIRE((*client)->ReceiveAny(1 << 20, &payload, kPatienceSeconds).ok());
  CHECK(payload == small);
  CHECK(waiting() == 0);
}

TEST_CASE("a long link changes its keys, and both directions arrive whole") {
  const Issued authority = IssueAuthority();
  const auto tls = SignedBy(authority, authority, /*bytes_per_key=*/40'000);
  auto listener = LinkListener::Listen({.host = "127.0.0.1"}, tls);
  REQUIRE(listener.ok());
  auto client = ConnectLink((*listener)->address(), kPatienceSeconds, tls.get());
  REQUIRE(client.ok());
  auto server = (*listener)->Accept(kPatienceSeconds);
  REQUIRE(server.ok());
  std::vector<std::byte> sent(100'000);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i % 251);
  const auto both_ways = [&](Link& link) {
    std::thread sends([&] {
      for (int i = 0; i < 20; ++i) CHECK(link.Send(kType, sent, kPatienceSeconds).ok());
    });
    std::vector<std::byte> received(sent.size());
    for (int i = 0; i < 20; ++i) {
      const auto bytes = link.Receive(kType, absl::MakeSpan(received), kPatienceSeconds);
      CHECK((bytes.ok() && received == sent));
    }
    sends.join();
  };
  std::thread other([&] { both_ways(**server); });
  both_ways(**client);
  other.join();
}

TEST_CASE("two ends that agree on new keys while both sockets are full read on") {
  const Issued authority = IssueAuthority();
  const auto tls = SignedBy(authority, authority, /*bytes_per_key=*/1);
  auto listener = LinkListener::Listen({.host = "127.0.0.1"}, tls);
  REQUIRE(listener.ok());
  auto client = ConnectLink((*listener)->address(), kPatienceSeconds, tls.get());
  REQUIRE(client.ok());
  auto server = (*listener)->Accept(kPatienceSeconds);
  REQUIRE(server.ok());
  const auto link_of = [&](int end) -> Link& { return end == 0 ? **client : **server; };
  std::vector<std::thread> sends;
  const std::vector<std::byte> sent(32 << 20);  // more than two sockets hold
  for (int end = 0; end < 2; ++end) {
    sends.emplace_back([&, end] { CHECK(link_of(end).Send(kType, sent, kPatienceSeconds).ok()); });
  }
  // Nobody reads until both ends have stopped sending.
  for (int end = 0; end < 2; ++end) {
    int64_t before = 0;
    while (before == 0 || link_of(end).counters().bytes_sent != before) {
      before = link_of(end).counters().bytes_sent;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  std::vector<std::thread> receives;
  for (int end = 0; end < 2; ++end) {
    receives.emplace_back([&, end] {
      std::vector<std::byte> received(sent.size());
      CHECK(link_of(end).Receive(kType, absl::MakeSpan(received), kPatienceSeconds).ok());
    });
  }
  for (std::thread& thread : sends) thread.join();
  for (std::thread& thread : receives) thread.join();
}

TEST_CASE("what OpenSSL does not take is an error") {
  const Issued authority = IssueAuthority();
  const Issued own = Issue(authority), other = Issue(authority);
  CHECK(absl::IsInvalidArgument(
      LinkTlsContext::Make(
          {.chain = own.certificate, .key = other.key, .authority = authority.certificate})
          .status()));
  INFO("a certificate that may sign nothing is no authority");
  CHECK(absl::IsInvalidArgument(
      LinkTlsContext::Make({.chain = own.certificate, .key = own.key, .authority = own.certificate})
          .status()));
}

}  // namespace
}  // namespace tessera::kernels
