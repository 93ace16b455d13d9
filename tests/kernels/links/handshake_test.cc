#include "kernels/links/handshake.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/links/transports.h"

namespace tessera::kernels {
namespace {

using tests::Connect;
using tests::kPatienceSeconds;
using tests::LinkedEnds;

struct Outcome {
  absl::StatusOr<std::string> client;
  absl::StatusOr<std::string> server;
};

Outcome ShakeHands(const LinkedEnds& ends, const HandshakeOptions& client,
                   const HandshakeOptions& server) {
  Outcome outcome;
  std::thread serving([&] { outcome.server = HandshakeAsServer(*ends.second, server); });
  outcome.client = HandshakeAsClient(*ends.first, client);
  serving.join();
  return outcome;
}

HandshakeOptions As(const std::string& identity, const std::string& token) {
  return {.token = token, .identity = identity, .timeout_seconds = kPatienceSeconds};
}

std::string MessageOf(const absl::StatusOr<std::string>& result) {
  return std::string(result.status().message());
}

TEST_CASE("both sides learn who the other is, and the link is ready") {
  for (const std::string& transport : tests::Transports()) {
    for (const char* token : {"secret", ""}) {
      const LinkedEnds ends = Connect(transport);
      const std::string long_identity(kMaxIdentityBytes, 'x');
      const Outcome outcome =
          ShakeHands(ends, As(long_identity, token), As(std::string("a\0b", 3), token));
      REQUIRE(outcome.client.ok());
      REQUIRE(outcome.server.ok());
      CHECK(*outcome.client == std::string("a\0b", 3));
      CHECK(*outcome.server == long_identity);
      REQUIRE(ends.first->Send(kFirstOwnerFrame, absl::Span<const std::byte>(), 1).ok());
      std::string payload;
      CHECK(ends.second->ReceiveAny(0, &payload, kPatienceSeconds).ok());
    }
  }
}

TEST_CASE("another token is refused by name, on both sides, before anything is verified") {
  for (const auto& [client_token, server_token] : std::vector<std::pair<std::string, std::string>>{
           {"secret", "Secret"}, {"", "secret"}, {"secret", ""}}) {
    const LinkedEnds ends = Connect("tcp");
    HandshakeOptions client = As("client", client_token);
    HandshakeOptions server = As("server", server_token);
    bool asked = false;
    client.verify = server.verify = [&](std::string_view) {
      asked = true;
      return absl::OkStatus();
    };
    const Outcome outcome = ShakeHands(ends, client, server);
    CHECK(outcome.client.status().code() == absl::StatusCode::kPermissionDenied);
    CHECK(outcome.server.status().code() == absl::StatusCode::kPermissionDenied);
    CHECK_THAT(MessageOf(outcome.client), Catch::Contains("token"));
    CHECK_THAT(MessageOf(outcome.client), Catch::Contains("second"));
    CHECK_THAT(MessageOf(outcome.server), Catch::Contains("first"));
    CHECK_FALSE(asked);
    CHECK_FALSE(ends.first->status().ok());
    CHECK_FALSE(ends.second->status().ok());
  }
}

TEST_CASE("a peer that is not welcome hears why, from either side") {
  for (const bool server_refuses : {true, false}) {
    const LinkedEnds ends = Connect("unix");
    HandshakeOptions client = As("epoch 7", "secret");
    HandshakeOptions server = As("epoch 8", "secret");
    const auto refuse = [](std::string_view identity) {
      return absl::FailedPreconditionError("not my epoch: " + std::string(identity));
    };
    (server_refuses ? server : client).verify = refuse;
    const Outcome outcome = ShakeHands(ends, client, server);
    const char* reason = server_refuses ? "not my epoch: epoch 7" : "not my epoch: epoch 8";
    for (const auto* side : {&outcome.client, &outcome.server}) {
      CHECK(side->status().code() == absl::StatusCode::kFailedPrecondition);
      CHECK_THAT(MessageOf(*side), Catch::Contains(reason));
    }
  }
}

// Passes one handshake on between two links, byte by byte; what went by is kept.
std::string Relay(int from, int to) {
  std::string seen;
  char byte = 0;
  while (read(from, &byte, 1) == 1) {
    seen += byte;
    if (write(to, &byte, 1) != 1) break;
  }
  return seen;
}

TEST_CASE("the token never travels, and a handshake seen once opens nothing") {
  const std::string token = "a-secret-that-is-easy-to-find";
  int client_side[2];
  int server_side[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, client_side) == 0);
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, server_side) == 0);
  LinkedEnds ends = {.first = std::make_unique<Link>(FileDescriptor(client_side[0]), "server"),
                     .second = std::make_unique<Link>(FileDescriptor(server_side[0]), "client")};
  std::string from_client;
  std::string from_server;
  std::thread up([&] { from_client = Relay(client_side[1], server_side[1]); });
  std::thread down([&] { from_server = Relay(server_side[1], client_side[1]); });
  const Outcome outcome = ShakeHands(ends, As("client", token), As("server", token));
  CHECK(outcome.client.ok());
  CHECK(outcome.server.ok());
  ends.first->Shutdown(absl::CancelledError("done"));
  ends.second->Shutdown(absl::CancelledError("done"));
  up.join();
  down.join();
  const FileDescriptor close_client(client_side[1]);
  const FileDescriptor close_server(server_side[1]);
  CHECK(from_client.size() > 100);
  CHECK(from_client.find(token) == std::string::npos);
  CHECK(from_server.find(token) == std::string::npos);

  int replay[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, replay) == 0);
  const FileDescriptor stranger(replay[1]);
  Link link(FileDescriptor(replay[0]), "stranger");
  REQUIRE(write(replay[1], from_client.data(), from_client.size()) ==
          static_cast<ssize_t>(from_client.size()));
  CHECK(HandshakeAsServer(link, As("server", token)).status().code() ==
        absl::StatusCode::kPermissionDenied);
}

TEST_CASE("a server's own messages sent back to it prove nothing") {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const FileDescriptor mirror(fds[1]);
  Link link(FileDescriptor(fds[0]), "mirror");
  absl::StatusOr<uint16_t> answer;
  std::thread reflects([&] {
    // A client's role is played with what the server says, in turn.
    Link peer(FileDescriptor(dup(fds[1])), "server");
    std::string hello(32, 'n');
    peer.Send(kHelloFrame,
              absl::Span<const std::byte>(reinterpret_cast<std::byte*>(hello.data()), 32),
              kPatienceSeconds)
        .IgnoreError();
    std::string payload;
    peer.ReceiveAny(8192, &payload, kPatienceSeconds).IgnoreError();
    payload.resize(32);
    peer.Send(kProofFrame,
              absl::Span<const std::byte>(reinterpret_cast<std::byte*>(payload.data()), 32),
              kPatienceSeconds)
        .IgnoreError();
    answer = peer.ReceiveAny(8192, &payload, kPatienceSeconds);
  });
  CHECK(HandshakeAsServer(link, As("server", "secret")).status().code() ==
        absl::StatusCode::kPermissionDenied);
  reflects.join();
  REQUIRE(answer.ok());
  CHECK(*answer == kRefusalFrame);
}

TEST_CASE("an identity above the limit is refused before it travels") {
  const LinkedEnds ends = Connect("pair");
  CHECK(HandshakeAsClient(*ends.first, As(std::string(kMaxIdentityBytes + 1, 'x'), ""))
            .status()
            .code() == absl::StatusCode::kInvalidArgument);
  CHECK(ends.first->counters().bytes_sent == 0);
}

TEST_CASE("a server that never waits answers what has come, whole frames only") {
  for (const char* transport : {"tcp", "unix"}) {
    INFO(transport);
    const LinkedEnds ends = Connect(transport);
    const HandshakeOptions options = As("server", "secret");
    ServerHandshake server(*ends.second, options);
    CHECK_FALSE(server.Advance().has_value());
    CHECK(server.claimed_identity() == nullptr);
    // A hello in two halves, of which the first ends within its payload.
    std::string hello(32, 'n');
    hello += "client";
    const EncodedFrameHeader header = EncodeFrameHeader({kHelloFrame, int64_t(hello.size())});
    const std::string wire =
        std::string(reinterpret_cast<const char*>(header.data()), header.size()) + hello;
    const auto write_now = [&](std::string_view bytes) {
      return write(ends.first->socket(), bytes.data(), bytes.size()) == ssize_t(bytes.size());
    };
    REQUIRE(write_now(wire.substr(0, 30)));
    CHECK_FALSE(server.Advance().has_value());
    CHECK(server.claimed_identity() == nullptr);
    REQUIRE(write_now(wire.substr(30)));
    std::string answer;
    for (int i = 0; i < 100 && server.claimed_identity() == nullptr; ++i) {
      CHECK_FALSE(server.Advance().has_value());
      poll(nullptr, 0, 10);
    }
    REQUIRE(server.claimed_identity() != nullptr);
    CHECK(*server.claimed_identity() == "client");
    REQUIRE(ends.first->ReceiveAny(8192, &answer, kPatienceSeconds).ok());
    CHECK(answer.substr(32) == "server");
    // A peer that goes away in between ends it.
    ends.first->Shutdown(absl::CancelledError("gone"));
    const auto outcome = server.Advance();
    REQUIRE(outcome.has_value());
    CHECK(absl::IsUnavailable(outcome->status()));
  }
}

}  // namespace
}  // namespace tessera::kernels
