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

// The text's special tokens are one id each.
std::vector<int32_t> IdsWithSpecials(const std::string& text) {
  return DemoTokenizer()
      .Encode(text, {.add_special_tokens = false, .parse_special_tokens = true})
      .value();
}

// Feeds all tokens; stops when the choice does. Each event is checked to be ready to be told.
ChoiceEvent Feed(const std::vector<int32_t>& ids, ChoiceTextOptions options,
                 std::vector<std::string>* pieces = nullptr) {
  ChoiceText choice(DemoTokenizer(), std::move(options));
  ChoiceEvent sum;
  for (int32_t id : ids) {
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

ChoiceEvent Feed(const std::string& text, ChoiceTextOptions options,
                 std::vector<std::string>* pieces = nullptr) {
  return Feed(Ids(text), std::move(options), pieces);
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

TEST_CASE("a stop string that is or contains a special token's text stops") {
  for (const bool skips : {true, false}) {
    INFO(skips);
    const auto feed = [&](const std::string& text, const std::string& stop, bool include = false) {
      return Feed(
          IdsWithSpecials(text),
          {.stop_strings = {stop}, .include_stop_string = include, .skip_special_tokens = skips});
    };
    const ChoiceEvent whole = feed("one<|end|>two", "<|end|>");
    CHECK(whole.text == "one");
    CHECK(whole.finish == Finish::kStop);
    CHECK(whole.stop_reason == "<|end|>");
    CHECK(whole.token_ids == Ids("one"));
    CHECK(whole.logprobs.size() == whole.token_ids.size());
    CHECK(feed("one<|end|>two", "<|end|>", true).text == "one<|end|>");

    CHECK(feed("one<|end|>\n<|user|>two", "<|end|>\n<|user|>").text == "one");
    CHECK(feed("one;<|user|>two", ";<|user|>t").text == "one");
    CHECK(feed("one;<|user|>two", ";<|user|>t").finish == Finish::kStop);
    CHECK(feed("one;<|user|>two", ";<|user|>t", true).text == "one;<|user|>t");

    // What did not become one is told, and the token with it.
    const ChoiceEvent other = feed("one<|end|> two", "<|end|>\n");
    CHECK(other.text == (skips ? "one two" : "one<|end|> two"));
    CHECK(other.token_ids == IdsWithSpecials("one<|end|> two"));
    CHECK(other.finish == Finish::kNone);
  }
}

TEST_CASE("the text of a hidden token is no text of the answer") {
  const auto feed = [&](const std::string& text, const std::string& stop) {
    return Feed(IdsWithSpecials(text), {.stop_strings = {stop}});
  };
  // Parts of its text stop nothing, and it does not stand in the way of other stop strings.
  CHECK(feed("one<|end|>two", "end").text == "onetwo");
  CHECK(feed("one<|end|>two", "e<|e").text == "onetwo");
  CHECK(feed("one<|end|>two", "|>t").text == "onetwo");
  const ChoiceEvent across = feed("one;<|end|>;two", ";;");
  CHECK(across.text == "one");
  CHECK(across.token_ids == Ids("one"));
  CHECK(across.finish == Finish::kStop);
}

TEST_CASE("a stop string may end with the token that ends the answer") {
  for (const bool include : {false, true}) {
    ChoiceText choice(DemoTokenizer(),
                      {.stop_strings = {"two<|end|>"}, .include_stop_string = include});
    ChoiceEvent event;
    for (int32_t id : Ids("one two")) choice.Append(id, nullptr, event);
    choice.AppendLast(5, nullptr, true, event);
    CHECK(event.text == (include ? "one two<|end|>" : "one "));
    CHECK(event.finish == Finish::kStop);
    CHECK(event.stop_reason == "two<|end|>");
  }
}

TEST_CASE("stop strings sleep while the model thinks") {
  const auto feed = [](const std::string& text, bool is_open, int64_t* thinking = nullptr) {
    ChoiceText choice(DemoTokenizer(),
                      {.stop_strings = {"b", "<"}, .thinking = {"<t>", "</t>", is_open}});
    std::string all;
    Finish finish = Finish::kNone;
    for (int32_t id : Ids(text)) {
      ChoiceEvent event;
      choice.Append(id, nullptr, event);
      all += event.text;
      finish = event.finish;
      if (finish != Finish::kNone) break;
    }
    if (thinking != nullptr) *thinking = choice.thinking_tokens();
    ChoiceEvent event;
    if (finish == Finish::kNone) choice.Flush(event);
    return all + event.text + (finish == Finish::kStop ? "|" : "");
  };
  int64_t thinking = 0;
  CHECK(feed("a b </t>c b d", true, &thinking) == "a b </t>c |");
  CHECK(thinking == static_cast<int64_t>(Ids("a b </t>").size()));
  CHECK(feed(" <t>a b </t>c < d", false) == " <t>a b </t>c |");
  CHECK(feed("a b <t>", false, &thinking) == "a |");
  CHECK(thinking == 0);
  CHECK(feed("<tb", false) == "|");
  CHECK(feed("a b", true) == "a b");
}

}  // namespace tessera::coordinator
