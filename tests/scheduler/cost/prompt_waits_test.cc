// Waits of prompts against closed forms: rows alone, room alone, and the most that both allow.
#include "scheduler/cost/prompt_waits.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace tessera::scheduler {
namespace {

constexpr double kPlenty = 1e9;

// P(wait) of M/M/c with `offered` Erlang.
double ErlangC(int c, double offered) {
  double term = 1, sum = 0;
  for (int i = 0; i < c; ++i) {
    sum += term;
    term *= offered / (i + 1);
  }
  const double last = term * c / (c - offered);
  return last / (sum + last);
}

// Steps of 0.1 s whatever is in them.
PromptsAsked Asked(double micro_batches, double most) {
  PromptsAsked asked;
  asked.most = most;
  asked.micro_batches = micro_batches;
  asked.stages = micro_batches;
  asked.prompt_tokens = 500;
  asked.decode_steps = 20;
  return asked;
}

StepTimes Times(double micro_batches, double prompt_rows) {
  return {micro_batches, 0.1, 0, prompt_rows};
}

TEST_CASE("with room for all, prompts wait as in M/M/m, one server per micro-batch") {
  for (const int m : {1, 2, 6}) {
    const double each = 100 / (500 * m * 0.1);  // prompts per second of a micro-batch
    for (const double load : {0.3, 0.8, 0.95}) {
      PromptsAsked asked = Asked(m, 4000);
      asked.decode_steps = 2;
      asked.rate = load * m * each;
      const auto waits = PromptWaitsAt(asked, [&](double) { return Times(m, 100); });
      INFO(m << " at " << load);
      const double p = ErlangC(m, load * m);
      CHECK(waits.most_per_second == Approx(m * each));
      CHECK(waits.wait.probability == Approx(p));
      CHECK(waits.wait.mean() == Approx(p / (m * each * (1 - load))));
      asked.row_peakedness = 0.5;  // prompts alike
      const auto alike = PromptWaitsAt(asked, [&](double) { return Times(m, 100); });
      CHECK(alike.wait.mean() == Approx(waits.wait.mean() / 2));
    }
  }
}

TEST_CASE("with rows for all, requests wait for room as in M/M/n") {
  PromptsAsked asked = Asked(1, 5);
  const double each = 1 / (0.1 * 20);
  asked.rate = 0.8 * 5 * each;
  const auto waits = PromptWaitsAt(asked, [](double) { return Times(1, kPlenty); });
  CHECK(waits.most_per_second == Approx(5 * each));
  CHECK(waits.wait.probability == Approx(ErlangC(5, 4)).epsilon(1e-4));
  CHECK(waits.wait.mean() == Approx(ErlangC(5, 4) / (5 * each * 0.2)).epsilon(1e-4));
}

TEST_CASE("rows and room hold each other up") {
  // One place: a prompt is computed, then decodes, and meanwhile no other is.
  const double mu = 2, r = 0.5;
  PromptsAsked asked = Asked(1, 1);
  asked.rate = 0.2;
  const auto times = [](double) { return Times(1, 100); };
  CHECK(PromptWaitsAt(asked, times).most_per_second == Approx(mu * r / (mu + r)));
  // A part of a further place brings a part of what it would, and waits fall.
  double served = 0, wait = 1e9;
  for (const double most : {1.0, 1.01, 1.5, 1.99, 2.0, 2.01, 4.0, 20.0}) {
    asked.most = most;
    const PromptWaits waits = PromptWaitsAt(asked, times);
    INFO(most);
    CHECK(waits.most_per_second > served);
    CHECK(waits.wait.mean() < wait);
    served = waits.most_per_second;
    wait = waits.wait.mean();
  }
  CHECK(served == Approx(mu));
  asked.most = 2 - 1e-9;
  const double below = PromptWaitsAt(asked, times).wait.mean();
  asked.most = 2;
  CHECK(PromptWaitsAt(asked, times).wait.mean() == Approx(below).epsilon(1e-6));
  asked.rate = 2;
  CHECK(std::isinf(PromptWaitsAt(asked, times).wait.mean()));
}

TEST_CASE("chunks slow what decodes only while prompts are computed") {
  // One place: a prompt takes a step of 0.3 s, then nobody's chunks slow the 20 steps of 0.1 s.
  PromptsAsked asked = Asked(1, 1);
  const auto times = [](double) { return StepTimes{1, 0.1, 0.2, 500}; };
  CHECK(PromptWaitsAt(asked, times).most_per_second == Approx(1 / (0.3 + 20 * 0.1)));
  // Two places: of the time with both taken steps are plain, with one taken they carry chunks.
  asked.most = 2;
  const double mu = 1 / 0.3, slow = 1 / (20 * 0.3), both = 2 / (20 * 0.1);
  const double one = mu / slow, two = one * mu / both;
  CHECK(PromptWaitsAt(asked, times).most_per_second ==
        Approx((one * slow + two * both) / (1 + one + two)));
}

}  // namespace
}  // namespace tessera::scheduler
