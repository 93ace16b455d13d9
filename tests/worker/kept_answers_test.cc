#include "worker/kept_answers.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera::worker {
namespace {

v1::Submit SubmitOf(uint64_t id, const std::string& request_id, const std::string& owner = "me") {
  v1::Submit submit;
  submit.set_submission_id(id);
  submit.set_attempt(1);
  submit.set_request_id(request_id);
  submit.set_owner(owner);
  submit.set_choice_count(1);
  submit.add_prompt_token_ids(7);
  return submit;
}

v1::SessionReply Tokens(uint64_t id, const std::vector<int32_t>& tokens,
                        v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::SessionReply reply;
  for (const int32_t token : tokens) {
    v1::TokenEvent& event = *reply.add_events();
    event.set_submission_id(id);
    event.set_attempt(1);
    event.set_has_token(true);
    event.set_token_id(token);
    if (token == tokens.back()) event.set_finish(finish);
  }
  return reply;
}

// The tokens of an answer, or those of nothing.
struct Keeper {
  explicit Keeper(KeptAnswersLimits limits = {}) : answers([this] { return now; }, limits) {}
  std::vector<int32_t> Find(const std::string& id, const std::string& owner = "me") {
    v1::FindKeptRequest request;
    request.set_request_id(id);
    request.set_owner(owner);
    const auto kept = answers.Find(request);
    if (!kept.ok()) {
      CHECK(kept.status() == absl::NotFoundError("no answer of that id and owner is kept"));
      return {};
    }
    CHECK(kept->submit().request_id() == id);
    return {kept->output_token_ids().begin(), kept->output_token_ids().end()};
  }
  void Cancel(uint64_t id) {
    v1::Cancel cancel;
    cancel.set_submission_id(id);
    cancel.set_attempt(1);
    answers.NoteCancel(&session, cancel);
  }

  double now = 100;
  int session = 0, other_session = 0;
  KeptAnswers answers;
};

using Ids = std::vector<int32_t>;

TEST_CASE("an answer is kept while it runs and a minute behind its end, however it ended") {
  Keeper k;
  for (uint64_t id = 1; id <= 4; ++id)
    k.answers.NoteSubmit(&k.session, SubmitOf(id, "a" + std::to_string(id)));
  k.answers.NoteReply(&k.session, Tokens(1, {1, 2}));
  k.answers.NoteReply(&k.session, Tokens(2, {3}, v1::FINISH_REASON_STOP));
  k.answers.NoteReply(&k.session, Tokens(3, {4}));
  k.Cancel(3);
  k.answers.NoteReply(&k.session, Tokens(3, {5}));  // was under way
  k.now += 59;
  k.answers.NoteReply(&k.session, Tokens(1, {6}));
  CHECK(k.Find("a1") == Ids{1, 2, 6});
  CHECK(k.Find("a2") == Ids{3});
  CHECK(k.Find("a3") == Ids{4});
  k.answers.NoteEnd(&k.other_session);
  k.answers.NoteEnd(&k.session);
  k.now += 1;
  CHECK(k.Find("a2").empty());
  CHECK(k.Find("a3").empty());
  k.now += 58;
  CHECK(k.Find("a1") == Ids{1, 2, 6});
  k.now += 1;
  CHECK(k.Find("a1").empty());
}

TEST_CASE("an answer is its owner's, and without one nothing is kept") {
  Keeper k;
  k.answers.NoteSubmit(&k.session, SubmitOf(1, "a", "me"));
  k.answers.NoteSubmit(&k.session, SubmitOf(2, "b", ""));
  v1::Submit several = SubmitOf(3, "c");
  several.set_choice_count(2);
  k.answers.NoteSubmit(&k.session, several);
  k.answers.NoteReply(&k.session, Tokens(1, {1}));
  k.answers.NoteReply(&k.session, Tokens(2, {2}));
  CHECK(k.Find("a") == Ids{1});
  CHECK(k.Find("a", "you").empty());
  CHECK(k.Find("a", "").empty());
  CHECK(k.Find("b", "").empty());
  CHECK(k.Find("c").empty());
}

TEST_CASE("an answer that goes on holds what it had, and takes the place of the one before") {
  Keeper k;
  k.answers.NoteSubmit(&k.session, SubmitOf(1, "a"));
  k.answers.NoteReply(&k.session, Tokens(1, {1, 2}));
  k.answers.NoteEnd(&k.session);
  v1::Submit again = SubmitOf(9, "a");
  again.add_output_token_ids(1);
  again.add_output_token_ids(2);
  k.answers.NoteSubmit(&k.other_session, again);
  k.answers.NoteReply(&k.other_session, Tokens(9, {3}));
  k.answers.NoteReply(&k.session, Tokens(9, {8}));  // of nobody
  k.now += 100;
  CHECK(k.Find("a") == Ids{1, 2, 3});
}

TEST_CASE("beyond the limits those go first that ended first, then the oldest that run") {
  Keeper k({.answers = 3});
  for (uint64_t id = 1; id <= 4; ++id) {
    k.answers.NoteSubmit(&k.session, SubmitOf(id, "a" + std::to_string(id)));
    k.answers.NoteReply(&k.session, Tokens(id, {static_cast<int32_t>(id)}));
    if (id == 2) k.Cancel(2);
  }
  CHECK(k.Find("a2").empty());
  CHECK(k.Find("a1") == Ids{1});
  k.answers.NoteSubmit(&k.session, SubmitOf(5, "a5"));
  CHECK(k.Find("a1").empty());
  CHECK(k.Find("a3") == Ids{3});

  Keeper small({.bytes = 4096});
  small.answers.NoteSubmit(&small.session, SubmitOf(1, "a"));
  small.answers.NoteSubmit(&small.session, SubmitOf(2, "b"));
  for (int i = 0; i < 1000; ++i) small.answers.NoteReply(&small.session, Tokens(2, {5}));
  CHECK(small.Find("a").empty());
  for (int i = 0; i < 1000; ++i) small.answers.NoteReply(&small.session, Tokens(2, {5}));
  CHECK(small.Find("b").empty());
}

}  // namespace
}  // namespace tessera::worker
