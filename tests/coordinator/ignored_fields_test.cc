#include <catch2/catch.hpp>
#include <string>

#include "tests/coordinator/door.h"
#include "tests/logged_lines.h"

namespace tessera::coordinator {

TEST_CASE("an ignored field is logged once at debug, however often it comes") {
  REQUIRE(SetUpLogging("debug", "text").ok());
  const tests::LoggedLines lines("coordinator");
  {
    Door door;
    for (int i = 0; i < 3; ++i)
      door.Ask("/v1/completions", {{"prompt", "x"}, {"id_slot", i}, {"user", "u"}});
    door.Ask("/v1/completions", {{"prompt", "x"}, {"cache_prompt", true}});
  }
  CHECK(lines.Count("field id_slot is ignored") == 1);
  CHECK(lines.Count("field cache_prompt is ignored") == 1);
  CHECK(lines.Count("is ignored") == 2);
  REQUIRE(SetUpLogging("info", "text").ok());
}

TEST_CASE("the log names the endpoint that ignores a field, and a name begins no line of its own") {
  REQUIRE(SetUpLogging("debug", "text").ok());
  const tests::LoggedLines lines("coordinator");
  {
    Door door;
    door.Ask("/v1/completions", {{"prompt", "x"}, {"messages", 1}, {"a\r\nb: c", 1}});
  }
  CHECK(lines.Count("field messages is ignored: /v1/completions does not know it") == 1);
  CHECK(lines.Count("field a??b:?c is ignored") == 1);
  REQUIRE(SetUpLogging("info", "text").ok());
}

}  // namespace tessera::coordinator
