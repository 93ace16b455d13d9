// Every fact that a plan can hold has a sentence of its own.
#include "scheduler/planner/report/note_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <catch2/catch.hpp>
#include <set>

#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/report/pace_text.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;
using Catch::StartsWith;

namespace pb = google::protobuf;

// A fact of each kind that the message's oneof has, with nothing else in it.
template <typename Message>
std::vector<Message> OneOfEach() {
  std::vector<Message> facts;
  const pb::OneofDescriptor& oneof = *Message::descriptor()->oneof_decl(0);
  for (int i = 0; i < oneof.field_count(); ++i) {
    Message& fact = facts.emplace_back();
    const pb::FieldDescriptor* field = oneof.field(i);
    const pb::Reflection& set = *fact.GetReflection();
    switch (field->cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_MESSAGE: set.MutableMessage(&fact, field); break;
      case pb::FieldDescriptor::CPPTYPE_BOOL: set.SetBool(&fact, field, true); break;
      case pb::FieldDescriptor::CPPTYPE_INT32: set.SetInt32(&fact, field, 7); break;
      case pb::FieldDescriptor::CPPTYPE_DOUBLE: set.SetDouble(&fact, field, 7); break;
      case pb::FieldDescriptor::CPPTYPE_STRING: set.SetString(&fact, field, "because"); break;
      case pb::FieldDescriptor::CPPTYPE_ENUM: set.SetEnumValue(&fact, field, 1); break;
      default: FAIL(field->name() << " has a type that this test does not set");
    }
  }
  return facts;
}

void CheckUnlike(const std::vector<std::string>& lines, size_t facts) {
  REQUIRE(lines.size() == facts);
  std::set<std::string> unlike;
  for (const std::string& line : lines) {
    CHECK(line != "");
    CHECK(unlike.insert(line).second);
  }
}

}  // namespace

TEST_CASE("every note is a sentence, and no two are the same") {
  std::vector<v1::Note> notes = OneOfEach<v1::Note>();
  REQUIRE(notes.size() == 36);
  v1::DeploymentPlan plan;
  for (v1::Note& note : notes) {
    if (note.has_hardest_limit())
      note.mutable_hardest_limit()->add_without()->set_limit(v1::LATENCY_LIMIT_TPOT);
    *plan.add_notes() = note;
  }
  CheckUnlike(NoteLines(plan), notes.size());
}

TEST_CASE("limits that no plan keeps stand first, each with what it is missed by") {
  v1::DeploymentPlan plan;
  plan.add_notes()->set_unsimulated_split(true);
  CHECK(MissedLine(plan) == "");
  v1::MissedLimit& tpot = *plan.add_missed_limits();
  tpot.set_limit(v1::LATENCY_LIMIT_TPOT);
  tpot.set_limit_seconds(0.4);
  tpot.set_seconds(0.75);
  v1::MissedLimit& ttft = *plan.add_missed_limits();
  ttft.set_limit(v1::LATENCY_LIMIT_TTFT);
  ttft.set_limit_seconds(2);
  CHECK(NoteLines(plan).front() ==
        "warning: no plan keeps TPOT <= 400 ms (here 750 ms, 350 ms more) and TTFT <= 2 s (here "
        "without end): this is the nearest that serves");
}

TEST_CASE("what limits and weighing cost is told apart") {
  v1::DeploymentPlan plan;
  v1::LimitsCost& cost = *plan.add_notes()->mutable_limits_cost();
  cost.set_full_tpot_seconds(0.1);
  cost.set_full_ttft_seconds(5);
  CHECK(NoteLines(plan).front() ==
        "counting rates less for TPOT > 100 ms, TTFT > 5 s costs nothing: no plan was found that "
        "serves more without");
  cost.set_lost_share(0.42);
  cost.set_requests_per_second(1.781);
  cost.set_other_tpot_seconds(0.144);
  cost.set_other_ttft_seconds(5.7);
  CHECK(NoteLines(plan).front() ==
        "counting rates less for TPOT > 100 ms, TTFT > 5 s costs 42.0 % of the rate: 1.781 "
        "requests/s without, with TPOT 144 ms, TTFT 5.7 s");
  cost.clear_full_tpot_seconds();
  cost.set_tpot_seconds(0.15);
  CHECK_THAT(NoteLines(plan).front(),
             StartsWith("the limits TPOT <= 150 ms and counting rates less for TTFT > 5 s cost "));
}

TEST_CASE("so is whatever is said of other choices, assumptions, devices and links") {
  v1::DeploymentPlan plan;
  for (int choice = 1; v1::ChoiceKind_IsValid(choice); ++choice)
    plan.add_alternatives()->set_choice(static_cast<v1::ChoiceKind>(choice));
  plan.add_alternatives();  // interrupted
  CheckUnlike(AlternativeLines(plan), static_cast<size_t>(plan.alternatives_size()));
  for (const v1::Sensitivity& fact : OneOfEach<v1::Sensitivity>()) *plan.add_sensitivity() = fact;
  CheckUnlike(SensitivityLines(plan), 4);
  for (const v1::DevicePrice& fact : OneOfEach<v1::DevicePrice>()) *plan.add_device_prices() = fact;
  CheckUnlike(DevicePriceLines(plan), 6);
  for (const v1::LinkPrice& fact : OneOfEach<v1::LinkPrice>()) *plan.add_link_prices() = fact;
  CheckUnlike(LinkPriceLines(plan), 5);
}

TEST_CASE("a price has a + where devices without a known price may be among those it is of") {
  v1::DeploymentPlan plan;
  v1::OtherChoice& choice = *plan.add_alternatives();
  choice.set_choice(v1::CHOICE_KIND_WHOLE);
  choice.mutable_found()->set_usd_per_hour(0.22);
  choice.mutable_found()->set_plan_usd_per_hour(0.44);
  plan.add_notes()->mutable_rent_orders()->set_usd_per_hour(0.44);
  v1::OtherSplit& split = *plan.add_notes()->mutable_other_split();
  split.set_requests_per_second(1);
  split.set_usd_per_hour(0.33);
  CHECK_THAT(AlternativeLines(plan).front(), Contains(" for 0.22 instead of 0.44 USD/h"));
  CHECK_THAT(NoteText(plan.notes(0), plan), Contains(": 0.44 USD/h"));
  CHECK_THAT(NoteText(plan.notes(1), plan), Contains(" for 0.33 USD/h"));
  plan.mutable_assumptions()->mutable_prices()->add_unknown_kinds("RTX3090");
  CHECK_THAT(AlternativeLines(plan).front(), Contains(" for 0.22+ instead of 0.44+ USD/h"));
  CHECK_THAT(NoteText(plan.notes(0), plan), Contains(": 0.44+ USD/h"));
  CHECK_THAT(NoteText(plan.notes(1), plan), Contains(" for 0.33+ USD/h"));
}

TEST_CASE("every limit of a replica has a name") {
  std::set<std::string> names;
  for (int limit = 0; v1::PaceLimit_IsValid(limit); ++limit) {
    v1::LimitedBy by;
    by.set_limit(static_cast<v1::PaceLimit>(limit));
    CHECK(names.insert(LimitText(by)).second);
  }
  CHECK(names.size() == 7);
}

}  // namespace tessera::scheduler
