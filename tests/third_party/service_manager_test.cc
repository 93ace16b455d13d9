#include "third_party/linux/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/temporary_folder.h"

namespace tessera {
namespace {

// A service manager's end of the socket `name`, a path or an abstract name that begins with @.
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())) == 0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() {
    unsetenv("NOTIFY_SOCKET");
    close(fd_);
  }

  // "": nothing has come.
  std::string Read() const {
    char text[256];
    const ssize_t size = recv(fd_, text, sizeof text, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, static_cast<size_t>(size));
  }

 private:
  const int fd_;
};

TEST_CASE("a state reaches the socket of the service manager, by path and by abstract name") {
  const tests::TemporaryFolder folder;
  for (const std::string& name :
       {(folder.path() / "notify").string(), "@tessera-notify-" + std::to_string(getpid())}) {
    CAPTURE(name);
    const Manager manager(name);
    CHECK(manager.Read() == "");
    CHECK(NotifyServiceManager("READY=1\nSTATUS=listens").ok());
    CHECK(manager.Read() == "READY=1\nSTATUS=listens");
    CHECK(NotifyServiceManager("STOPPING=1").ok());
    CHECK(manager.Read() == "STOPPING=1");
  }
}

TEST_CASE("without a service manager nothing is said, and nothing is wrong") {
  unsetenv("NOTIFY_SOCKET");
  CHECK(NotifyServiceManager("READY=1").ok());
  setenv("NOTIFY_SOCKET", "", 1);
  CHECK(NotifyServiceManager("READY=1").ok());
  unsetenv("NOTIFY_SOCKET");
}

TEST_CASE("a socket that is none, or that nobody holds, is named") {
  const tests::TemporaryFolder folder;
  const std::string gone = (folder.path() / "gone").string();
  setenv("NOTIFY_SOCKET", gone.c_str(), 1);
  const absl::Status unreachable = NotifyServiceManager("READY=1");
  CHECK(unreachable.code() == absl::StatusCode::kUnavailable);
  CHECK(std::string(unreachable.message()).find(gone) != std::string::npos);
  for (const std::string& bad : {std::string("vsock:2:1234"), std::string("@"), std::string("/"),
                                 "/" + std::string(sizeof(sockaddr_un::sun_path) - 1, 'a')}) {
    CAPTURE(bad);
    setenv("NOTIFY_SOCKET", bad.c_str(), 1);
    CHECK(NotifyServiceManager("READY=1").code() == absl::StatusCode::kInvalidArgument);
  }
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace tessera
