#include "deploy/processes/child_process.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

ChildProcess Shell(const std::string& script, const std::string& log) {
  return ChildProcess::Start("shell", {"/bin/sh", "-c", script}, log).value();
}

bool Alive(pid_t pid) { return kill(pid, 0) == 0; }

pid_t PidIn(const std::string& log) {
  for (int tries = 0; tries < 1000 && Read(log).find('\n') == std::string::npos; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::stoi(Read(log));
}

}  // namespace

TEST_CASE("output goes to the log, and the end is told in words") {
  const tests::TemporaryFolder folder;
  const std::string log = folder.path() / "log";
  ChildProcess good = Shell("echo out; echo err >&2", log);
  REQUIRE(good.WaitFor(10));
  CHECK(good.Ended().value().find("code 0") != std::string::npos);
  CHECK(Read(log) == "out\nerr\n");
  ChildProcess bad = Shell("exit 7", log);
  REQUIRE(bad.WaitFor(10));
  CHECK(bad.Ended().value().find("code 7") != std::string::npos);
  ChildProcess killed = Shell("kill -9 $$", log);
  REQUIRE(killed.WaitFor(10));
  CHECK(killed.Ended().value().find("signal 9") != std::string::npos);
  CHECK(Read(log).starts_with("out\n"));  // appended, not begun anew
}

TEST_CASE("a running child has not ended; signals reach it") {
  const tests::TemporaryFolder folder;
  const std::string log = folder.path() / "log";
  ChildProcess child =
      Shell("trap 'echo told; exit 3' TERM; echo $$; while :; do sleep 0.01; done", log);
  PidIn(log);
  CHECK_FALSE(child.Ended().has_value());
  CHECK_FALSE(child.WaitFor(0.05));
  child.Signal(SIGTERM);
  REQUIRE(child.WaitFor(10));
  CHECK(child.Ended().value().find("code 3") != std::string::npos);
  CHECK(Read(log).find("told") != std::string::npos);
}

TEST_CASE("nothing is left behind") {
  const tests::TemporaryFolder folder;
  const std::string log = folder.path() / "log";
  pid_t pid = 0;
  {
    ChildProcess child = Shell("echo $$; trap '' TERM; while :; do sleep 0.01; done", log);
    pid = PidIn(log);
    CHECK(Alive(pid));
    ChildProcess moved = std::move(child);
    CHECK(Alive(pid));
  }
  CHECK_FALSE(Alive(pid));
}

TEST_CASE("a program that is not there is an error that names it") {
  const tests::TemporaryFolder folder;
  const auto child = ChildProcess::Start("ghost", {"/no/such/program"}, folder.path() / "log");
  CHECK(std::string(child.status().message()).find("/no/such/program") != std::string::npos);
  const auto program = FindProgram("nowhere", "tessera-nothing");
  CHECK_FALSE(program.ok());
  CHECK(std::string(program.status().message()).find("tessera-nothing") != std::string::npos);
}

}  // namespace tessera::deploy
