// Who connects to a server of links and says nothing, or nonsense, costs it no thread and delays
// nobody.
#include "kernels/links/link_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/links/link_address.h"
#include "tests/kernels/links/transports.h"
#include "tests/temporary_folder.h"

namespace tessera::kernels {
namespace {

using tests::kPatienceSeconds;
using LinkPtr = std::unique_ptr<Link>;

constexpr char kToken[] = "secret";
constexpr double kHandshakeSeconds = 5;

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

size_t ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// A server, and what it made of its connections.
class Served {
 public:
  explicit Served(LinkServerOptions options) {
    options.handshake.token = kToken;
    options.handshake.identity = "server";
    options.on_link = [this](AcceptedLink accepted) {
      std::lock_guard lock(mutex_);
      accepted_.push_back(std::move(accepted));
    };
    options.on_refused = [this](const absl::Status& status) {
      std::lock_guard lock(mutex_);
      refused_.push_back(status);
    };
    auto started = LinkServer::Start(std::move(options));
    REQUIRE(started.ok());
    server_ = *std::move(started);
  }

  LinkPtr Connect() const {
    auto link = ConnectLink(*ParseLinkAddress(server_->addresses()[0]), kPatienceSeconds);
    REQUIRE(link.ok());
    return *std::move(link);
  }
  // The identity of the server, by a whole handshake.
  absl::StatusOr<std::string> Greet(const std::string& identity, const std::string& token) const {
    const LinkPtr link = Connect();
    return HandshakeAsClient(*link, {.token = token, .identity = identity});
  }
  // One refusal with such a code, which may be on its way.
  bool Refuses(size_t count) const {
    for (int i = 0; i < 3000 && refused().size() < count; ++i) poll(nullptr, 0, 10);
    return refused().size() == count;
  }
  std::vector<absl::Status> refused() const {
    std::lock_guard lock(mutex_);
    return refused_;
  }
  std::vector<std::string> identities() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> all;
    for (const AcceptedLink& accepted : accepted_) all.push_back(accepted.identity);
    return all;
  }
  LinkServer& server() { return *server_; }

 private:
  mutable std::mutex mutex_;
  std::vector<AcceptedLink> accepted_;
  std::vector<absl::Status> refused_;
  std::unique_ptr<LinkServer> server_;  // ends first
};

// Its other end is closed.
bool Ended(const Link& link, int wait_milliseconds) {
  pollfd waited = {.fd = link.socket(), .events = POLLIN | POLLRDHUP, .revents = 0};
  return poll(&waited, 1, wait_milliseconds) > 0 && link.PeerClosed();
}

void SendHello(Link& link, const std::string& identity) {
  std::string hello(32, 'n');
  hello += identity;
  REQUIRE(link.Send(kHelloFrame,
                    absl::MakeSpan(reinterpret_cast<const std::byte*>(hello.data()), hello.size()),
                    kPatienceSeconds)
              .ok());
  std::string answer;
  REQUIRE(link.ReceiveAny(8192, &answer, kPatienceSeconds).ok());
}

TEST_CASE("64 silent connections cost no thread and no time; each ends in bounded time") {
  const tests::TemporaryFolder folder;
  for (const std::string& address :
       {std::string("127.0.0.1:0"), "unix:" + (folder.path() / "a.sock").string()}) {
    INFO(address);
    Served served({.listen = {address}, .handshake = {.timeout_seconds = kHandshakeSeconds}});
    const size_t threads = ThreadsOfThisProcess();
    std::vector<LinkPtr> silent;
    for (int i = 0; i < 64; ++i) silent.push_back(served.Connect());
    CHECK(SecondsOf([&] { CHECK(*served.Greet("friend", kToken) == "server"); }) < 2);
    CHECK(ThreadsOfThisProcess() == threads);
    CHECK(SecondsOf([&] {
            for (const LinkPtr& link : silent) CHECK(Ended(*link, 30'000));
          }) < 3 * kHandshakeSeconds);
    CHECK(served.Refuses(64));
  }
}

TEST_CASE("garbage, a trickle and a wrong token are refused each by name; a friend is served") {
  Served served({.listen = {"127.0.0.1:0"}, .handshake = {.timeout_seconds = 0.5}});
  const LinkPtr garbage = served.Connect();
  REQUIRE(write(garbage->socket(), "GET / HTTP/1.1\r\n\r\n", 18) == 18);
  const LinkPtr trickle = served.Connect();
  std::atomic<bool> stop{false};
  std::thread trickles([&] {
    // Never silent for long, never done.
    const EncodedFrameHeader header = EncodeFrameHeader({kHelloFrame, 4096});
    size_t sent = 0;
    while (!stop) {
      const std::byte byte = sent < header.size() ? header[sent] : std::byte{'x'};
      if (send(trickle->socket(), &byte, 1, MSG_NOSIGNAL) != 1) break;
      ++sent;
      poll(nullptr, 0, 5);
    }
  });
  CHECK(absl::IsPermissionDenied(served.Greet("impostor", "guess").status()));
  CHECK(*served.Greet("friend", kToken) == "server");
  CHECK(served.Refuses(3));
  stop = true;
  trickles.join();
  CHECK(served.identities() == std::vector<std::string>{"friend"});
  for (const absl::Status& status : served.refused())
    CHECK_THAT(std::string(status.message()), Catch::Contains("127.0.0.1:"));
}

TEST_CASE("where a peer's bound is reached, its oldest silent connection makes room") {
  Served served({.listen = {"127.0.0.1:0"},
                 .handshake = {.timeout_seconds = 30},
                 .max_handshakes_per_peer = 3});
  const LinkPtr spoke = served.Connect();
  SendHello(*spoke, "somebody");
  const LinkPtr first = served.Connect(), second = served.Connect();
  // Before any had the time to speak, the new one is refused.
  const LinkPtr early = served.Connect();
  CHECK(Ended(*early, 30'000));
  CHECK_FALSE(Ended(*first, 0));
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * kSpeakSeconds));
  CHECK(*served.Greet("friend", kToken) == "server");
  CHECK(Ended(*first, 30'000));
  CHECK_FALSE(Ended(*second, 0));
  CHECK_FALSE(spoke->PeerClosed());
  CHECK(served.Refuses(2));
}

TEST_CASE("all addresses together have a bound, and who is expected is never put out") {
  Served served({.listen = {"127.0.0.1:0"},
                 .handshake = {.timeout_seconds = 30},
                 .expects = [](std::string_view identity) { return identity == "expected"; },
                 .max_handshakes = 2});
  const LinkPtr expected = served.Connect();
  SendHello(*expected, "expected");
  const LinkPtr stranger = served.Connect();
  SendHello(*stranger, "stranger");
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * kSpeakSeconds));
  CHECK(*served.Greet("friend", kToken) == "server");
  CHECK(Ended(*stranger, 30'000));
  CHECK_FALSE(expected->PeerClosed());
}

TEST_CASE("a server that stops drops handshakes at once") {
  Served served({.listen = {"127.0.0.1:0"}, .handshake = {.timeout_seconds = 30}});
  const LinkPtr silent = served.Connect();
  CHECK(*served.Greet("friend", kToken) == "server");
  CHECK(SecondsOf([&] { served.server().Stop(); }) < 5);
  CHECK(Ended(*silent, 30'000));
}

}  // namespace
}  // namespace tessera::kernels
