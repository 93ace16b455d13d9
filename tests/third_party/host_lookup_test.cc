// Names are looked up without a caller that waits for a silent name server longer than it wants to.
#include "third_party/linux/host_lookup.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera {
namespace {

using Catch::Matchers::Contains;

// A name server that answers once it is let.
struct NameServer {
  absl::StatusOr<HostAddresses> Find(const std::string& host) {
    std::unique_lock lock(mutex);
    ++asked;
    changed.notify_all();
    changed.wait(lock, [this] { return answers; });
    if (host == "nobody") return absl::UnavailableError("no host nobody is known");
    return HostAddresses{"10.0.0.7"};
  }
  void Answer() {
    const std::lock_guard lock(mutex);
    answers = true;
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool answers = false;
  std::atomic<int> asked = 0;
};

}  // namespace

TEST_CASE("numeric addresses are themselves") {
  CHECK(LookUpHost("127.0.0.1", 0).value() == HostAddresses{"127.0.0.1"});
  CHECK(LookUpHost("::1", 0).value() == HostAddresses{"::1"});
  CHECK_FALSE(LookUpHost("localhost", 60).value().empty());
}

TEST_CASE("a silent name server keeps nobody, and one thread a name at most") {
  const auto server = std::make_shared<NameServer>();
  HostLookups lookups([server](const std::string& host) { return server->Find(host); });
  for (int i = 0; i < 20; ++i) {
    const absl::Status late = lookups.LookUp("box", 0.001).status();
    CHECK(absl::IsUnavailable(late));
    CHECK_THAT(std::string(late.message()),
               Contains("no name server has answered in 0.001 s for box"));
  }
  CHECK(server->asked <= 1);
  std::vector<std::thread> asking;
  std::atomic<int> found = 0;
  for (int i = 0; i < 4; ++i) {
    asking.emplace_back(
        [&] { found += lookups.LookUp("box", 60).value() == HostAddresses{"10.0.0.7"}; });
  }
  server->Answer();
  for (std::thread& thread : asking) thread.join();
  CHECK(found == 4);
  const int before = server->asked;
  CHECK_THAT(std::string(lookups.LookUp("nobody", 60).status().message()),
             Contains("no host nobody"));
  // Addresses change: each time they are asked for again.
  CHECK(lookups.LookUp("box", 60).ok());
  CHECK(server->asked == before + 2);
}

TEST_CASE("a lookup may outlive who asked for it") {
  const auto server = std::make_shared<NameServer>();
  {
    HostLookups lookups([server](const std::string& host) { return server->Find(host); });
    CHECK_FALSE(lookups.LookUp("box", 0).ok());
  }
  server->Answer();
}

}  // namespace tessera
