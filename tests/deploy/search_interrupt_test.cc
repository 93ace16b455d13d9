#include "deploy/search_interrupt.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <thread>

namespace tessera::deploy {

TEST_CASE("a search is stopped by its time limit") {
  SearchInterrupt watch(1e-9);
  CHECK(watch.ForSearch().Stopped());
  SearchInterrupt patient(1000);
  CHECK(!patient.ForSearch().Stopped());
}

namespace {

// As a terminal does: to the process, whichever thread takes it.
void PressCtrlC() { kill(getpid(), SIGINT); }

bool StopsSoon(const scheduler::SearchWatch& search) {
  for (int i = 0; i < 5000 && !search.Stopped(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return search.Stopped();
}

}  // namespace

TEST_CASE("the first Ctrl-C stops a search, and the next search starts afresh") {
  {
    SearchInterrupt watch(0);
    const scheduler::SearchWatch search = watch.ForSearch();
    CHECK(!search.Stopped());
    PressCtrlC();
    CHECK(StopsSoon(search));
  }
  SearchInterrupt next(0);
  CHECK(!next.ForSearch().Stopped());
}

TEST_CASE("a second Ctrl-C ends the process") {
  const pid_t child = fork();
  if (child == 0) {
    SearchInterrupt watch(0);
    PressCtrlC();
    if (!StopsSoon(watch.ForSearch())) _exit(1);
    PressCtrlC();
    std::this_thread::sleep_for(std::chrono::seconds(20));
    _exit(2);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
}

// Clp does this in each first solve of a linear program.
TEST_CASE("Ctrl-C is not lost to a library that takes over its handler") {
  SearchInterrupt watch(0);
  const auto before = std::signal(SIGINT, [](int) {});
  PressCtrlC();
  CHECK(StopsSoon(watch.ForSearch()));
  std::signal(SIGINT, before);
}

}  // namespace tessera::deploy
