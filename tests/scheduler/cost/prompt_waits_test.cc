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
  asked.stages = asked.all_stages = micro_batches;
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

TEST_CASE("chunks slow who decodes, not who comes") {
  // A prompt takes a step of 0.4 s, a step without one 0.05 s: an M/M/1 queue at any such figures.
  PromptsAsked asked = Asked(1, 400);
  asked.decode_steps = 100;
  asked.rate = 0.9;
  const auto waits = PromptWaitsAt(asked, [](double) { return StepTimes{1, 0.05, 0.35, 500}; });
  CHECK(waits.wait.probability == Approx(0.36).epsilon(0.01));
  CHECK(waits.wait.mean() == Approx(0.36 / (2.5 - 0.9)).epsilon(0.1));
}

TEST_CASE("prompts that one step begins share its micro-batch") {
  // Three prompts are begun by a step: 1, 2 or 3 keep one of two micro-batches busy, 6 both.
  PromptsAsked asked = Asked(2, 4000);
  asked.decode_steps = 2;
  const double each = 100 / (500 * 2 * 0.1);
  asked.rate = 0.7 * 2 * each;
  const auto waits = PromptWaitsAt(asked, [](double) {
    StepTimes times = Times(2, 100);
    times.prompts_begun = 3;
    return times;
  });
  double weight = 1, all = 0, waiting = 0;
  for (int j = 0; j < 200; ++j) {
    const double busy = j == 0 ? 0 : std::min(2.0, std::max(1.0, j / 3.0));
    all += weight;
    waiting += weight * (j - busy);
    weight *= asked.rate / (each * std::min(2.0, std::max(1.0, (j + 1) / 3.0)));
  }
  CHECK(waits.most_per_second == Approx(2 * each));
  CHECK(waits.wait.mean() == Approx(waiting / all / asked.rate).epsilon(1e-3));
}

TEST_CASE("rows come in whole steps") {
  PromptsAsked asked = Asked(1, 4000);
  asked.decode_steps = 1000;
  asked.rate = 1;  // half of what steps of 0.1 s with 100 rows of 500 compute
  const auto one = PromptWaitsAt(asked, [](double) { return Times(1, 100); });
  CHECK(one.stepping.probability == Approx(0.5).epsilon(1e-3));
  CHECK(one.stepping.mean_seconds == Approx(0.05));
  CHECK(one.alone_seconds == Approx(0.5 * 0.05).epsilon(1e-3));

  // Two stages and micro-batches, steps of 0.1 s in a stage or 0.3 with a prompt: while one is
  // computed, steps are planned 0.1 and 0.5 s apart.
  asked = Asked(2, 4000);
  asked.decode_steps = 10'000;
  asked.rate = 0.01;
  StepTimes times = {2, 0.1, 0.2, 500};
  const auto with = [&](double) { return times; };
  const double until = (0.01 + 0.25) / (2 * 0.6);
  CHECK(PromptWaitsAt(asked, with).stepping.mean_seconds == Approx(until).epsilon(0.01));
  CHECK(PromptWaitsAt(asked, with).alone_seconds == Approx(0.05).epsilon(0.01));
  // Prompts of two steps each: a newcomer meets the first one's first step, then shares the second
  // for a round of 0.6 s in all, or meets the second, then is alone.
  times.prompt_rows = 250;
  times.prompt_steps = 2;
  times.long_prompts = 1;
  CHECK(PromptWaitsAt(asked, with).stepping.mean_seconds == Approx(until + 0.3).epsilon(0.01));
  // Of three steps each, in one case of three it goes behind the other.
  times.prompt_rows = 500.0 / 3;
  times.prompt_steps = 3;
  CHECK(PromptWaitsAt(asked, with).stepping.mean_seconds ==
        Approx(until + 0.6 / 3 + 0.2 / 3).epsilon(0.01));
}

TEST_CASE("unlike stages slow fewer steps, but a step still goes through all of them") {
  // Two micro-batches in three stages: a step is in each of them for two thirds of a period. A
  // chunk is as long in one and a half of them only, so that it slows three steps of four.
  PromptsAsked asked = Asked(2, 4000);
  asked.stages = 1.5;
  asked.all_stages = 3;
  asked.decode_steps = 10'000;
  asked.rate = 0.01;
  const double round = 2 * (0.1 + 0.75 * 0.2), brief = 0.1 * 2 / 3, slow = 0.3 * 2 / 3;
  const double slack = round - slow - brief;
  const double until =
      (brief * brief + slow * slow + 2 * slow * slack + slack * slack) / (2 * round);
  const auto waits = PromptWaitsAt(asked, [](double) { return StepTimes{2, 0.1, 0.2, 500}; });
  CHECK(waits.stepping.mean_seconds == Approx(until).epsilon(0.01));
}

}  // namespace
}  // namespace tessera::scheduler
