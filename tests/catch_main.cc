// The main of every Catch2 test: the usual console report, and beside it a JUnit file where Bazel
// asks for one (XML_OUTPUT_FILE), with one <testcase> per TEST_CASE. Catch2 2 allows a single
// reporter, so the file is written by a listener, for Catch2 2 or 3.
//
// The file appears in one piece when the run ends. A test that is killed leaves none, and Bazel
// then writes one that says error, so that it can't be counted as passed.

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "tests/catch_skip.h"

namespace tessera::tests {
namespace {

// Empty while the running test case is not skipped.
std::string& SkipReason() {
  static std::string reason;
  return reason;
}

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      case '\n': out += "&#10;"; break;
      default: {
        // Control characters are not allowed in XML at all, and other bytes may not be UTF-8.
        const auto byte = static_cast<unsigned char>(c);
        out += byte >= 0x20 && byte < 0x7f ? c : '?';
      }
    }
  }
  return out;
}

std::string Describe(const Catch::AssertionResult& result) {
  std::string text = std::string(result.getSourceInfo().file) + ":" +
                     std::to_string(result.getSourceInfo().line) + ": " +
                     result.getExpressionInMacro();
  if (result.hasExpandedExpression()) text += " => " + result.getExpandedExpression();
  if (result.hasMessage()) text += " (" + std::string(result.getMessage()) + ")";
  return text + "\n";
}

using Listener = Catch::TestEventListenerBase;
// Of a listener's assertionEnded: a bool of Catch2 2, which it ignores, and nothing of Catch2 3.
using Ended =
    decltype(std::declval<Listener>().assertionEnded(std::declval<const Catch::AssertionStats&>()));

class JunitListener : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    Listener::testCaseStarting(info);
    name_ = info.name;
    failures_.clear();
    SkipReason().clear();
    timer_.start();
  }

  Ended assertionEnded(const Catch::AssertionStats& stats) override {
    if (!stats.assertionResult.isOk()) failures_ += Describe(stats.assertionResult);
    return Listener::assertionEnded(stats);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++tests_;
    cases_ += "    <testcase name=\"" + EscapeXml(name_) + "\" time=\"" +
              std::to_string(timer_.getElapsedSeconds()) + "\">";
    if (stats.totals.testCases.failed > 0) {
      ++failed_;
      cases_ += "<failure message=\"" + EscapeXml(failures_) + "\"/>";
    } else if (!SkipReason().empty()) {
      ++skipped_;
      cases_ += "<skipped message=\"" + EscapeXml(SkipReason()) + "\"/>";
      std::cout << "SKIPPED " << name_ << ": " << SkipReason() << std::endl;
    }
    cases_ += "</testcase>\n";
    Listener::testCaseEnded(stats);
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    if (const char* path = std::getenv("XML_OUTPUT_FILE")) {
      std::ofstream(path) << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
                          << "  <testsuite name=\"" << EscapeXml(std::string(stats.runInfo.name))
                          << "\" tests=\"" << tests_ << "\" failures=\"" << failed_
                          << "\" errors=\"0\" skipped=\"" << skipped_ << "\">\n"
                          << cases_ << "  </testsuite>\n</testsuites>\n";
    }
    Listener::testRunEnded(stats);
  }

 private:
  std::string name_, failures_;  // of the running test case
  std::string cases_;            // <testcase> elements so far
  int tests_ = 0;
  int failed_ = 0;
  int skipped_ = 0;
  Catch::Timer timer_;
};

CATCH_REGISTER_LISTENER(JunitListener)

}  // namespace

void MarkSkipped(std::string_view reason) {
  SkipReason() = reason.empty() ? "no reason given" : std::string(reason);
}

}  // namespace tessera::tests

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
