#include "scheduler/planner/report/choice_text.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/pace_text.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

std::string WhyNone(const v1::OtherChoice& choice) {
  const v1::MissingChoice& missing = choice.missing();
  if (!missing.error().empty()) return missing.error();
  if (!missing.model().empty()) {
    const std::string kinds = KindCountsText(missing.kinds());
    if (choice.choice() != v1::CHOICE_KIND_EVEN)
      return StrCat(missing.model(), " does not fit on what it has");
    return StrCat(missing.model(), " does not fit on its ",
                  kinds.empty() ? "part, no devices" : kinds);
  }
  if (missing.too_few()) {
    return StrCat("there are fewer ",
                  choice.choice() == v1::CHOICE_KIND_MACHINE_EACH ? "machines" : "kinds of devices",
                  " than models");
  }
  switch (choice.choice()) {
    case v1::CHOICE_KIND_ONE_KIND: return "none of the kinds alone holds the model in equal stages";
    case v1::CHOICE_KIND_EQUAL_STAGES:
      return "they do not hold the model: the smallest devices would need as much memory as the "
             "others";
    case v1::CHOICE_KIND_WHOLE: return "none of the replicas holds both";
    case v1::CHOICE_KIND_SPLIT:
      return "it needs two replicas that each hold the model, and no such replicas were found";
    default: return "none was found that serves all models";
  }
}

std::string DevicesText(const v1::FoundChoice& found) {
  if (found.replicas() == 0) return "";
  std::string text =
      StrCat(" on ", found.replicas(), found.replicas() == 1 ? " replica" : " replicas");
  if (found.devices() > 0)
    text += StrCat(" of ", found.devices(), " of ", found.all_devices(), " devices");
  return text;
}

// `more`: what stands behind a price that may lack some devices.
std::string PriceText(const v1::FoundChoice& found, const char* more) {
  if (found.usd_per_hour() <= 0) return "";
  return found.usd_per_hour() == found.plan_usd_per_hour()
             ? absl::StrFormat(" for the same %.2f%s USD/h", found.usd_per_hour(), more)
             : absl::StrFormat(" for %.2f%s instead of %.2f%s USD/h", found.usd_per_hour(), more,
                               found.plan_usd_per_hour(), more);
}

std::string SplitText(const v1::FoundChoice& found) {
  if (found.split() == v1::SPLIT_SOURCE_UNSPECIFIED) return "";
  return StrCat(found.split() == v1::SPLIT_SOURCE_SEARCHED
                    ? " (heuristic, no bound)"
                    : " (heuristic: replicas of this plan and of equal stages, no others)",
                found.predicted_higher()
                    ? "; its prediction is higher, but plans are chosen by simulation: see \"why\""
                    : "");
}

// What holds it back.
std::string WeakestText(const v1::FoundChoice& found) {
  if (!found.limiting_model().empty()) {
    return StrCat("; ", found.limiting_model(), " limits it, on ", KindCountsText(found.kinds()));
  }
  if (found.has_pace()) return StrCat("; ", found.pace().replica(), ": ", PaceText(found.pace()));
  if (!found.has_limit()) return "";
  const bool kv = found.limit().limit() == v1::PACE_LIMIT_KV;
  return StrCat(", the weakest limited by ", LimitText(found.limit()),
                kv ? " on " : ", slowest on ", found.limit().kind());
}

std::string FoundText(const v1::FoundChoice& found, const char* more) {
  return StrCat(absl::StrFormat("%.3f %s (%s)", found.value(), UnitText(found.unit()),
                                ChangeText(found.ratio(), "as much")),
                PriceText(found, more), DevicesText(found), WeakestText(found), SplitText(found));
}

std::string ChoiceText(const v1::OtherChoice& choice, const char* more) {
  if (choice.choice() == v1::CHOICE_KIND_UNSPECIFIED)
    return "interrupted: not all other choices were tried";
  std::string name = ChoiceName(choice.choice(), choice.kind());
  if (choice.has_missing()) {
    return StrCat(name, ": none, ", WhyNone(choice),
                  choice.missing().after_loss() ? ", or a machine's loss leaves nothing" : "");
  }
  if (!choice.has_found()) {
    return StrCat(name, ": not tried above ", choice.above_devices(), " devices",
                  choice.goodput() ? " for goodput" : "",
                  choice.choice() == v1::CHOICE_KIND_PLAIN ? ", where judging them takes long"
                                                           : ", where it takes long");
  }
  if (choice.choice() != v1::CHOICE_KIND_IN_TURN)
    return StrCat(name, ": ", FoundText(choice.found(), more));
  std::vector<std::string> parts;
  for (const v1::ModelShare& turn : choice.turns())
    parts.push_back(absl::StrFormat("%s %.0f %%", turn.model(), 100 * turn.share()));
  return StrCat(name, ", ", absl::StrJoin(parts, ", "),
                " of the time: ", FoundText(choice.found(), more),
                "; a yardstick: no plan shares a device between models, and the time to load "
                "weights at each turn does not count");
}

}  // namespace

std::string ChoiceName(v1::ChoiceKind choice, const std::string& kind) {
  switch (choice) {
    case v1::CHOICE_KIND_ONE_KIND:
      return kind.empty() ? "one kind of device"
                          : StrCat("one kind of device, the best of them ", kind);
    case v1::CHOICE_KIND_EQUAL_STAGES: return "equal stages of equal width everywhere";
    case v1::CHOICE_KIND_WHOLE: return "every replica prefills and decodes";
    case v1::CHOICE_KIND_SPLIT: return "every replica only prefills or only decodes";
    case v1::CHOICE_KIND_ONLY: return StrCat("only ", kind);
    case v1::CHOICE_KIND_WITHOUT: return StrCat("without ", kind);
    case v1::CHOICE_KIND_PLAIN: return "one kind of device, equal stages";
    case v1::CHOICE_KIND_MACHINE_EACH: return "every machine for one model alone";
    case v1::CHOICE_KIND_KIND_EACH: return "every kind of device for one model alone";
    case v1::CHOICE_KIND_EVEN: return "as much of every shape of machine for each model";
    case v1::CHOICE_KIND_IN_TURN: return "each model in turn with the whole cluster";
    default: return "other deals";
  }
}

std::string KindCountsText(const google::protobuf::RepeatedPtrField<v1::KindCount>& kinds) {
  std::vector<std::string> parts;
  for (const v1::KindCount& one : kinds) parts.push_back(StrCat(one.devices(), " ", one.kind()));
  return absl::StrJoin(parts, ", ");
}

std::vector<std::string> AlternativeLines(const v1::DeploymentPlan& plan) {
  std::vector<std::string> lines;
  const char* more = plan.assumptions().prices().unknown_kinds_size() > 0 ? "+" : "";
  for (const v1::OtherChoice& choice : plan.alternatives())
    lines.push_back(ChoiceText(choice, more));
  return lines;
}

namespace {

std::string DraftsText(const v1::PlanningTerms& terms) {
  std::vector<std::string> counts;
  for (const v1::SearchConstant& one : terms.constants()) {
    if (one.name() == kDraftsAlone || one.name() == kDraftsAtRate)
      counts.push_back(absl::StrFormat("%g %s", one.value(), one.name().substr(sizeof("drafts"))));
  }
  if (counts.empty()) return "";
  return StrCat("  (--speculate ", terms.drafts().source(),
                ": drafts of a step that this plan counts on: ", absl::StrJoin(counts, ", "), ")");
}

}  // namespace

std::vector<std::string> PreferenceRows(const v1::DeploymentPlan& plan) {
  if (plan.choices().empty()) return {};
  const auto name = [](v1::PlanPreference preference) {
    switch (preference) {
      case v1::PLAN_PREFERENCE_LATENCY: return "latency, for one user";
      case v1::PLAN_PREFERENCE_THROUGHPUT: return "throughput, the most";
      default: return "balanced";
    }
  };
  const auto seconds = [](double time) {
    if (time <= 0) return std::string("-");
    return time < 1 ? absl::StrFormat("%.0f ms", time * 1e3) : absl::StrFormat("%.1f s", time);
  };
  const bool unpriced = plan.assumptions().prices().unknown_kinds_size() > 0;
  const auto price = [unpriced](double usd) {
    return usd > 0 ? StrCat(UsdText(usd), unpriced ? "+" : "") : std::string("-");
  };
  std::vector<std::string> rows = {
      "plans to choose from; --prefer latency, balanced or throughput takes one (*: this plan):",
      absl::StrFormat("  %-21s  %10s  %8s  %7s  %7s  %9s  %7s  %5s", "", "requests/s", "tokens/s",
                      "TTFT", "TPOT", "alone", "devices", "USD/h")};
  for (const v1::PlanChoice& one : plan.choices()) {
    rows.push_back(absl::StrFormat(
        "%c %-21s  %10.3f  %8.0f  %7s  %7s  %9s  %7d  %5s", one.taken() ? '*' : ' ',
        name(one.preference()), one.requests_per_second(), one.output_tokens_per_second(),
        seconds(one.time_to_first_token_seconds()), seconds(one.time_per_output_token_seconds()),
        seconds(one.alone_seconds()), one.devices(), price(one.usd_per_hour())));
  }
  rows.push_back(
      "  (TTFT, TPOT: means at 0.8 of the rate, or at the asked one; alone: one answer, batch 1)");
  const bool priced = std::any_of(plan.choices().begin(), plan.choices().end(),
                                  [](const auto& one) { return one.usd_per_hour() > 0; });
  if (unpriced && priced)
    rows.push_back("  (+: more, where it uses devices without a known price)");
  const std::string drafts = DraftsText(plan.assumptions().planning());
  if (!drafts.empty()) rows.push_back(drafts);
  return rows;
}

}  // namespace tessera::scheduler
