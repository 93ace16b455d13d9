#include "kernels/links/link_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "kernels/links/link_address.h"
#include "tests/temporary_folder.h"

namespace tessera::kernels {
namespace {

constexpr double kPatienceSeconds = 30;

TEST_CASE("addresses are read as they are written") {
  for (const char* text :
       {"unix:/run/a.sock", "127.0.0.1:7001", "[::1]:65535", "host.name:0", "[fe80::1%eth0]:1"}) {
    const auto address = ParseLinkAddress(text);
    REQUIRE(address.ok());
    CHECK(address->ToString() == text);
  }
  CHECK(ParseLinkAddress("[::1]:7")->host == "::1");
}

TEST_CASE("what is no address is refused and quoted") {
  for (const std::string& text :
       {std::string("127.0.0.1"), std::string(":7001"), std::string("host:65536"),
        std::string("host:-1"), std::string("host:"), std::string("::1:7001"),
        std::string("host:1x"), std::string("[]:1"), std::string("[a:1"), std::string("unix:"),
        std::string("unix:relative"), "unix:/" + std::string(200, 'x'), std::string()}) {
    INFO(text);
    const auto address = ParseLinkAddress(text);
    REQUIRE_FALSE(address.ok());
    CHECK_THAT(std::string(address.status().message()), Catch::Contains(text));
  }
}

TEST_CASE("a Unix socket is for its user alone and goes with the listener") {
  const tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "a.sock").string();
  struct stat status = {};
  {
    const auto listener = LinkListener::Listen({.path = path});
    REQUIRE(listener.ok());
    REQUIRE(lstat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(LinkListener::Listen({.path = path}).status().code() == absl::StatusCode::kAlreadyExists);
    CHECK(ConnectLink({.path = path}, kPatienceSeconds).ok());
  }
  CHECK(lstat(path.c_str(), &status) != 0);
  const absl::Status gone = ConnectLink({.path = path}, 1).status();
  CHECK(gone.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(gone.message()), Catch::Contains(path));
}

TEST_CASE("a socket that a dead process left is replaced, a file is not") {
  const tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "a.sock").string();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  {
    const FileDescriptor dead(socket(AF_UNIX, SOCK_STREAM, 0));
    REQUIRE(bind(dead.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  CHECK(LinkListener::Listen({.path = path}).ok());
  folder.Write("b.sock", "not a socket");
  CHECK(LinkListener::Listen({.path = (folder.path() / "b.sock").string()}).status().code() ==
        absl::StatusCode::kAlreadyExists);
}

TEST_CASE("a wait for a connection is bounded") {
  const auto listener = LinkListener::Listen({.host = "127.0.0.1"});
  REQUIRE(listener.ok());
  CHECK((*listener)->address().port > 0);
  CHECK((*listener)->Accept(0.01).status().code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("a port that is taken, and one where nobody listens, are named") {
  LinkAddress address{.host = "127.0.0.1"};
  {
    const auto listener = LinkListener::Listen(address);
    REQUIRE(listener.ok());
    address = (*listener)->address();
    CHECK(LinkListener::Listen(address).status().code() == absl::StatusCode::kAlreadyExists);
  }
  const absl::Status refused = ConnectLink(address, kPatienceSeconds).status();
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(refused.message()), Catch::Contains(address.ToString()));
}

TEST_CASE("a listener whose queue is full costs a bounded wait") {
  const tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "a.sock").string();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const FileDescriptor full(socket(AF_UNIX, SOCK_STREAM, 0));
  REQUIRE(bind(full.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(full.get(), 0) == 0);
  REQUIRE(ConnectLink({.path = path}, kPatienceSeconds).ok());
  CHECK(ConnectLink({.path = path}, 0.05).status().code() == absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace tessera::kernels
