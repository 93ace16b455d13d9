#include "coordinator/http/large_bodies.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <thread>

namespace tessera::coordinator {

TEST_CASE("small bodies are read where they arrive, large ones in turn on one other thread") {
  std::promise<void> hold;
  std::promise<std::thread::id> first, second;
  LargeBodies bodies({.from_bytes = 100, .max_waiting = 2});
  std::thread::id reader;
  CHECK(bodies.Read(99, [&reader] { reader = std::this_thread::get_id(); }).ok());
  CHECK(reader == std::this_thread::get_id());

  REQUIRE(bodies
              .Read(100,
                    [&] {
                      hold.get_future().wait();
                      first.set_value(std::this_thread::get_id());
                    })
              .ok());
  REQUIRE(bodies.Read(1000, [&second] { second.set_value(std::this_thread::get_id()); }).ok());
  bool read = false;
  CHECK(bodies.Read(100, [&read] { read = true; }).code() == absl::StatusCode::kUnavailable);
  CHECK(bodies.Read(1, [] {}).ok());
  hold.set_value();
  const std::thread::id thread = first.get_future().get();
  CHECK(thread != std::this_thread::get_id());
  CHECK(thread == second.get_future().get());
  CHECK_FALSE(read);
}

TEST_CASE("a large body does not wait for a huge one") {
  std::promise<void> hold, large;  // outlive the threads that use them
  LargeBodies bodies({.from_bytes = 100, .huge_from_bytes = 1000, .max_waiting = 1});
  REQUIRE(bodies.Read(1000, [&hold] { hold.get_future().wait(); }).ok());
  CHECK(bodies.Read(1000, [] {}).code() == absl::StatusCode::kUnavailable);
  REQUIRE(bodies.Read(999, [&large] { large.set_value(); }).ok());
  const bool read =
      large.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  hold.set_value();
  CHECK(read);
}

TEST_CASE("what was posted is read before the end") {
  int read = 0;
  {
    LargeBodies bodies({.from_bytes = 0});
    for (int i = 0; i < 10; ++i) REQUIRE(bodies.Read(1, [&read] { ++read; }).ok());
  }
  CHECK(read == 10);
}

}  // namespace tessera::coordinator
