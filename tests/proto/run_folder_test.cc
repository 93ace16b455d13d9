// Programs of one user find each other's secrets by the coordinator's port; others find nothing,
// and nothing stays behind.
#include "proto/run_folder.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kPort = 8001;

// Where this process looks for folders, for as long as it lives.
struct User {
  User() {
    setenv("XDG_STATE_HOME", folder.path().c_str(), 1);
    unsetenv("XDG_RUNTIME_DIR");
  }
  tests::TemporaryFolder folder;
  fs::path base = folder.path() / "tessera";
};

RunSecrets Drawn() { return {.cluster_token = DrawSecret(), .admin_key = DrawSecret()}; }

std::unique_ptr<RunFolder> Claim(int port, const RunSecrets& secrets, bool keep = true) {
  auto claimed = RunFolder::Claim(port, secrets, keep);
  INFO(claimed.status().ToString());
  REQUIRE(claimed.ok());
  return *std::move(claimed);
}

unsigned ModeOf(const fs::path& path) {
  struct stat found = {};
  REQUIRE(lstat(path.c_str(), &found) == 0);
  return found.st_mode & 0777;
}

size_t Entries(const fs::path& folder) {
  const fs::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// Runs `work` in another process, which then dies without a destructor.
void InProcessThatDies(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

int Bind(const std::string& path) {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return listener;
}

}  // namespace

TEST_CASE("what a coordinator made is found by its port, for its user alone, and goes with it") {
  const User user;
  CHECK_FALSE(RunFolder::Find(kPort).has_value());
  auto folder = Claim(kPort, Drawn());
  CHECK(folder->path().parent_path() == user.base);
  CHECK(ModeOf(user.base) == 0700);
  CHECK(ModeOf(folder->path()) == 0700);
  CHECK(ModeOf(folder->path() / "cluster_token") == 0600);
  CHECK(ModeOf(folder->path() / "admin_key") == 0600);
  const auto found = RunFolder::Find(kPort);
  REQUIRE(found.has_value());
  CHECK(found->cluster_token.size() == 64);
  CHECK(found->cluster_token == folder->secrets().cluster_token);
  CHECK(found->admin_key == folder->secrets().admin_key);
  CHECK(found->admin_key != found->cluster_token);
  CHECK_FALSE(RunFolder::Find(kPort + 1).has_value());
  // Another coordinator beside it.
  auto other = Claim(kPort + 1, Drawn());
  CHECK(RunFolder::Find(kPort + 1)->cluster_token != found->cluster_token);
  const absl::Status twice = RunFolder::Claim(kPort, Drawn(), true).status();
  CHECK(absl::IsAlreadyExists(twice));
  CHECK_THAT(std::string(twice.message()), Catch::Contains("--grpc-port"));
  CHECK(RunFolder::Find(kPort)->cluster_token == found->cluster_token);
  folder.reset();
  CHECK_FALSE(RunFolder::Find(kPort).has_value());
  CHECK(RunFolder::Find(kPort + 1).has_value());
  other.reset();
  CHECK(Entries(user.base) == 0);
}

TEST_CASE("what flags name is not kept, nor what an earlier run kept of it") {
  const User user;
  RunSecrets secrets;
  InProcessThatDies([] { (void)RunFolder::Claim(kPort, Drawn(), true)->release(); });
  secrets.admin_key = DrawSecret();
  const auto folder = Claim(kPort, secrets);
  CHECK_FALSE(fs::exists(folder->path() / "cluster_token"));
  CHECK(RunFolder::Find(kPort)->cluster_token.empty());
  CHECK_FALSE(RunFolder::Find(kPort)->admin_key.empty());
}

TEST_CASE("a coordinator that was killed, or leaves workers, is followed by one that they know") {
  const User user;
  InProcessThatDies([] { (void)RunFolder::Claim(kPort, Drawn(), true)->release(); });
  CHECK_FALSE(RunFolder::Find(kPort).has_value());  // nobody answers there
  REQUIRE(Entries(user.base) == 1);
  const std::string path = fs::directory_iterator(user.base)->path();
  std::string old;
  std::ifstream(path + "/cluster_token") >> old;
  REQUIRE(old.size() == 64);
  auto folder = Claim(kPort, Drawn());
  CHECK(folder->secrets().cluster_token == old);
  // A worker outlives the coordinator.
  auto worker = RunFolder::Join(std::to_string(kPort));
  REQUIRE(worker != nullptr);
  CHECK(worker->path() == folder->path());
  folder.reset();
  CHECK_FALSE(RunFolder::Find(kPort).has_value());
  folder = Claim(kPort, Drawn());
  CHECK(folder->secrets().cluster_token == old);
  // Nobody knows what a run at a port of its own choice left.
  folder.reset();
  worker.reset();
  CHECK(Entries(user.base) == 0);
  InProcessThatDies([] { (void)RunFolder::Claim(kPort, Drawn(), true)->release(); });
  const RunSecrets drawn = Drawn();
  CHECK(Claim(kPort, drawn, false)->secrets().cluster_token == drawn.cluster_token);
  CHECK(Entries(user.base) == 0);
}

TEST_CASE("what killed programs left at other ports goes; what lives there stays") {
  const User user;
  for (const int port : {kPort + 1, kPort + 2})
    InProcessThatDies([port] { (void)RunFolder::Claim(port, Drawn(), true)->release(); });
  const auto worker = RunFolder::Join(std::to_string(kPort + 2));  // a coordinator may come back
  REQUIRE(worker != nullptr);
  const auto neighbour = Claim(kPort + 3, Drawn());
  fs::create_directory(user.base / "another-machine-8001");  // with the same home
  std::ofstream(user.base / "another-machine-8001/members") << "";
  REQUIRE(Entries(user.base) >= 3);
  const auto folder = Claim(kPort, Drawn());
  CHECK(Entries(user.base) == 4);
  CHECK(fs::exists(worker->path() / "cluster_token"));
  CHECK(RunFolder::Find(kPort + 3).has_value());
  CHECK(RunFolder::Find(kPort).has_value());
  CHECK(fs::exists(user.base / "another-machine-8001"));
}

TEST_CASE("a worker without a coordinator on this machine has a folder too; dead sockets go") {
  const User user;
  auto first = RunFolder::Join("10.0.0.1:8001");
  REQUIRE(first != nullptr);
  CHECK(first->path().parent_path() == user.base);
  CHECK_THAT(first->path().filename().string(), Catch::EndsWith("-10.0.0.1_8001"));
  const std::string dead = first->path() / "dead.sock", live = first->path() / "live.sock";
  close(Bind(dead));
  const int listener = Bind(live);
  REQUIRE(listen(listener, 1) == 0);
  const auto second = RunFolder::Join("10.0.0.1:8001");
  REQUIRE(second != nullptr);
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists(live));
  pollfd asked = {.fd = listener, .events = POLLIN, .revents = 0};
  CHECK(poll(&asked, 1, 0) == 0);  // who listens was not disturbed
  close(listener);
  first.reset();
  CHECK(fs::exists(second->path()));
}

TEST_CASE("of members that leave at the same moment one removes the folder") {
  const User user;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<RunFolder>> members;
    for (int i = 0; i < 3; ++i) members.push_back(RunFolder::Join("8001"));
    for (const auto& member : members) REQUIRE(member != nullptr);
    const fs::path path = members[0]->path();
    std::barrier together(3);
    std::vector<std::thread> threads;
    for (auto& member : members) {
      threads.emplace_back([&together, &member] {
        together.arrive_and_wait();
        member.reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE_FALSE(fs::exists(path));
  }
}

TEST_CASE("a folder that is another's, a link or open to others is not trusted") {
  const User user;
  const tests::TemporaryFolder elsewhere;
  // A link in the place of our folder: the next base is taken.
  fs::create_directory_symlink(elsewhere.path(), user.base);
  setenv("XDG_RUNTIME_DIR", (user.folder.path() / "run").c_str(), 1);
  fs::create_directory(user.folder.path() / "run");
  {
    const auto folder = Claim(kPort, Drawn());
    CHECK(folder->path().parent_path() == user.folder.path() / "run/tessera");
    CHECK(RunFolder::Find(kPort).has_value());
    CHECK(RunFolder::Join(std::to_string(kPort))->path() == folder->path());
  }
  CHECK(Entries(elsewhere.path()) == 0);
  // One of ours that others could open is closed.
  fs::remove(user.base);
  fs::create_directory(user.base);
  chmod(user.base.c_str(), 0777);
  const auto folder = Claim(kPort, Drawn());
  CHECK(folder->path().parent_path() == user.base);
  CHECK(ModeOf(user.base) == 0700);
}

TEST_CASE("a folder so deep that sockets in it would have no name is passed over") {
  const User user;
  const fs::path deep = user.folder.path() / std::string(60, 'd');
  setenv("XDG_STATE_HOME", deep.c_str(), 1);
  setenv("XDG_RUNTIME_DIR", user.folder.path().c_str(), 1);
  const auto folder = Claim(kPort, Drawn());
  CHECK(folder->path().parent_path() == user.base);
  CHECK(RunFolder::Join(std::to_string(kPort))->path() == folder->path());
}

TEST_CASE("without a home there is a folder of the user's all the same") {
  const User user;
  for (const char* variable : {"XDG_STATE_HOME", "XDG_RUNTIME_DIR"}) unsetenv(variable);
  setenv("HOME", "/proc/no-such-home", 1);
  const auto folder = Claim(kPort, Drawn());
  CHECK(folder->path().parent_path() == "/tmp/tessera-" + std::to_string(geteuid()));
  CHECK(RunFolder::Find(kPort).has_value());
}

TEST_CASE("the port of an address on loopback") {
  CHECK(LoopbackPort("127.0.0.1:8001") == 8001);
  CHECK(LoopbackPort("localhost:1") == 1);
  CHECK(LoopbackPort("[::1]:65535") == 65535);
  for (const char* other : {"10.0.0.1:8001", "box:8001", "127.0.0.1", "127.0.0.1:0", ""})
    CHECK_FALSE(LoopbackPort(other).has_value());
}

}  // namespace tessera
