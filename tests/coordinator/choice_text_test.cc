#include "coordinator/flow/choice_text.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"

namespace tessera::coordinator {
namespace {

const Tokenizer& DemoTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer =
      std::move(Tokenizer::Load("deploy/demo_model/tessera-demo").value());
  return *tokenizer;
}

std::vector<int32_t> Ids(const std::string& text) {
  return DemoTokenizer()
      .Encode(text, {.add_special_tokens = false, .parse_special_tokens = false})
      .value();
}

// Feeds all tokens of `text`; stops when the choice does. Each event is checked to be ready to be
// told.
ChoiceEvent Feed(const std::string& text, ChoiceTextOptions options,
                 std::vector<std::string>* pieces = nullptr) {
  ChoiceText choice(DemoTokenizer(), std::move(options));
  ChoiceEvent sum;
  for (int32_t id : Ids(text)) {
    ChoiceEvent event;
    PositionChances chances;
    chances.chosen.token_id = id;
    choice.Append(id, &chances, event);
    sum.text += event.text;
    sum.token_ids.insert(sum.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
    sum.logprobs.insert(sum.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    if (pieces != nullptr) pieces->push_back(event.text);
    if (event.finish != Finish::kNone) {
      sum.finish = event.finish;
      sum.stop_reason = event.stop_reason;
      return sum;
    }
  }
  ChoiceEvent event;
  choice.Flush(event);
  sum.text += event.text;
  sum.token_ids.insert(sum.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
  sum.logprobs.insert(sum.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  return sum;
}

}  // namespace

TEST_CASE("without stop strings everything is told, also characters of many tokens") {
  const std::string text = "12 + 34 = 46, naïve 👩‍👩‍👧 東京";
  std::vector<std::string> pieces;
  const ChoiceEvent sum = Feed(text, {}, &pieces);
  CHECK(sum.text == text);
  CHECK(sum.token_ids == Ids(text));
  CHECK(sum.logprobs.size() == sum.token_ids.size());
  CHECK(sum.finish == Finish::kNone);
}

TEST_CASE("a stop string ends the text and is cut, over token borders") {
  const ChoiceEvent sum = Feed("one two END three", {.stop_strings = {"x", "END"}});
  CHECK(sum.text == "one two ");
  CHECK(sum.finish == Finish::kStop);
  CHECK(sum.stop_reason == "END");
  CHECK(sum.logprobs.size() == sum.token_ids.size());
  // Tokens are told only up to the cut.
  CHECK(sum.token_ids.size() <= Ids("one two END").size());
  CHECK(DemoTokenizer().Decode(sum.token_ids, false).starts_with("one two"));
}

TEST_CASE("include_stop_string keeps it") {
  const ChoiceEvent sum = Feed("a,b;c,d", {.stop_strings = {";c"}, .include_stop_string = true});
  CHECK(sum.text == "a,b;c");
  CHECK(sum.finish == Finish::kStop);
}

TEST_CASE("what may begin a stop string is held back, and told when it did not") {
  std::vector<std::string> pieces;
  const ChoiceEvent sum = Feed("abcabcabd", {.stop_strings = {"abcabd"}}, &pieces);
  CHECK(sum.text == "abc");
  CHECK(sum.finish == Finish::kStop);
  const ChoiceEvent other = Feed("abcabcabe", {.stop_strings = {"abcabd"}});
  CHECK(other.text == "abcabcabe");
  CHECK(other.token_ids == Ids("abcabcabe"));
}

TEST_CASE("the stop that is complete first wins; at one end, the longer") {
  CHECK(Feed("hello world", {.stop_strings = {"world", "lo w"}}).text == "hel");
  CHECK(Feed("hello world", {.stop_strings = {"o", "llo"}}).text == "he");
}

TEST_CASE("stop strings do not count before min_tokens") {
  const std::string text = "1;2;3;4";
  REQUIRE(Ids(text).size() == 7);
  CHECK(Feed(text, {.stop_strings = {";"}, .min_tokens = 4}).text == "1;2;3");
}

TEST_CASE("a stop token's text is left out, a token at the length limit's is not") {
  const std::vector<int32_t> ids = Ids("12");
  for (const bool is_stop : {true, false}) {
    ChoiceText choice(DemoTokenizer(), {});
    ChoiceEvent event;
    choice.Append(ids[0], nullptr, event);
    choice.AppendLast(ids[1], nullptr, is_stop, event);
    CHECK(event.text == (is_stop ? "1" : "12"));
    CHECK(event.token_ids == ids);
    CHECK(choice.reported_tokens() == 2);
  }
}

TEST_CASE("a stop token comes behind what was held back, with its logprob") {
  std::vector<int32_t> ids = Ids("1;");
  ChoiceText choice(DemoTokenizer(), {.stop_strings = {";;"}});
  PositionChances chances;
  ChoiceEvent event;
  for (size_t i = 0; i < ids.size(); ++i) {
    chances.chosen.logprob = -static_cast<float>(i);
    choice.Append(ids[i], &chances, event);
  }
  chances.chosen.logprob = -9;
  choice.AppendLast(5, &chances, true, event);
  ids.push_back(5);
  CHECK(event.text == "1;");
  CHECK(event.token_ids == ids);
  REQUIRE(event.logprobs.size() == ids.size());
  CHECK(event.logprobs.back().chosen.logprob == -9);
}

}  // namespace tessera::coordinator
