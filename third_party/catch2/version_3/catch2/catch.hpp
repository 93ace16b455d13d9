// Catch2 3 by the names of Catch2 2, so that tests build with either: Debian 12 has the one, Debian
// 13 the other. Included as <catch2/catch.hpp>, which Catch2 3 does not bring.
#pragma once

#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_timer.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <string>

namespace Catch {

using TestEventListenerBase = EventListenerBase;

namespace Matchers {

// catch_matchers_contains.hpp, which is left out, gives this name to another matcher.
inline StringContainsMatcher Contains(const std::string& text) { return ContainsSubstring(text); }

}  // namespace Matchers

using Matchers::Contains;
using Matchers::EndsWith;
using Matchers::StartsWith;

}  // namespace Catch

using Catch::Approx;
