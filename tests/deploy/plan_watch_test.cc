#include "deploy/plan_watch.h"

#include <catch2/catch.hpp>
#include <csignal>

namespace tessera::deploy {

TEST_CASE("a search is stopped by its time limit") {
  PlanWatch watch(1e-9);
  CHECK(watch.ForSearch().Stopped());
  PlanWatch patient(1000);
  CHECK(!patient.ForSearch().Stopped());
}

TEST_CASE("the first Ctrl-C stops a search, and the next search starts afresh") {
  {
    PlanWatch watch(0);
    const scheduler::SearchWatch search = watch.ForSearch();
    CHECK(!search.Stopped());
    std::raise(SIGINT);
    CHECK(search.Stopped());
    // A second one would end the process: the signal has its usual meaning again.
    CHECK(std::signal(SIGINT, SIG_DFL) == SIG_DFL);
  }
  PlanWatch next(0);
  CHECK(!next.ForSearch().Stopped());
}

}  // namespace tessera::deploy
