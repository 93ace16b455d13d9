#include "scheduler/planner/report/outlook_text.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "scheduler/planner/report/choice_text.h"
#include "scheduler/planner/report/pace_text.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

using absl::StrFormat;

// "A 1.000 -> 1.200, B 2.000 -> 2.100 requests/s".
std::string RatesText(const google::protobuf::RepeatedPtrField<v1::RateChange>& rates) {
  std::vector<std::string> parts;
  for (const v1::RateChange& one : rates)
    parts.push_back(StrFormat("%s %.3f -> %.3f", one.model(), one.requests_per_second(),
                              one.changed_requests_per_second()));
  return StrCat(absl::StrJoin(parts, ", "), " requests/s");
}

std::string ChoiceThenText(const v1::ChangedAssumption& changed, bool shared) {
  const char* what = shared ? "deal" : "layout";
  switch (changed.choice()) {
    case v1::CHOICE_THEN_STAYS: return shared ? "; the deal stays" : "; the choice stays";
    case v1::CHOICE_THEN_NONE: return StrCat("; no other ", what, " works either");
    case v1::CHOICE_THEN_INTERRUPTED:
      return shared ? "; interrupted before the devices were dealt again"
                    : "; interrupted before the search for another layout";
    case v1::CHOICE_THEN_OTHER: break;
    default: return "";
  }
  if (changed.other_usd_per_hour() > 0) {
    return StrFormat(
        "; another layout would be chosen, for %.2f instead of %.2f USD/h%s",
        changed.other_usd_per_hour(), changed.usd_per_hour(),
        changed.serves_less() ? ", because this layout no longer serves the asked rate" : "");
  }
  return StrFormat("; another %s would be chosen, for %.3f %s", what, changed.other_value(),
                   UnitText(changed.unit()));
}

std::string ChangedText(const v1::ChangedAssumption& changed, bool shared) {
  std::string line = StrCat(ChangedName(changed.assumed(), changed.factor()), ": ");
  if (changed.error().empty()) {
    line += StrFormat("%.3f %s (%s)", changed.value(), UnitText(changed.unit()),
                      ChangeText(changed.ratio()));
    if (shared) line += StrCat(", ", RatesText(changed.rates()));
  } else {
    line += StrCat(shared ? "these layouts do not work: " : "this layout does not work: ",
                   changed.error());
  }
  return line + ChoiceThenText(changed, shared);
}

std::string SensitivityText(const v1::Sensitivity& one) {
  switch (one.fact_case()) {
    case v1::Sensitivity::kRatesOfLayout:
      return "the figures are the requests/s that this layout can serve; its price stays the same";
    case v1::Sensitivity::kChanged: return ChangedText(one.changed(), one.shared());
    case v1::Sensitivity::kNotSearched:
      return one.shared()
                 ? "whether another deal would be chosen then is unknown: --sensitivity deals again"
                 : "whether another layout would be chosen then is unknown: --sensitivity searches "
                   "again";
    default:
      return one.shared() ? "interrupted: not all assumptions were tried"
                          : "interrupted: other layouts, devices and bandwidth that are not listed "
                            "were not tried";
  }
}

std::string EstimateText(const v1::DeviceEstimate& e) {
  const std::string kinds = absl::StrJoin(e.kinds(), ", ");
  const char* where = e.beside_others() ? " in a machine that has some" : "";
  if (e.dual()) {
    return StrFormat("one more %s brings about %.3f %s (estimate: the dual)", kinds, e.value(),
                     UnitText(e.unit()));
  }
  constexpr char kMargin[] = " (estimate: shadow price, at the margin, with parts of devices)";
  if (e.value() <= 0) {
    return StrCat("one more ", kinds, where, " would bring nothing",
                  e.budget_is_scarce() ? ": the budget is what is scarce" : "", kMargin);
  }
  return StrCat(
      "one more ", kinds, where, " is worth ", StrFormat("%.3f %s", e.value(), UnitText(e.unit())),
      e.unused() > 0 ? StrCat(", if it finds a place that the ", e.unused(),
                              e.unused() == 1 ? " that is" : " that are", " not used did not find")
                     : "",
      kMargin);
}

std::string GainText(const v1::DeviceGain& gain, bool shared) {
  const char* again = shared ? "dealt again" : "planned again";
  if (gain.value() <= 0) {
    return StrCat(
        "one more ", gain.kind(), " brings nothing (", again, ", ",
        gain.tried() < gain.places() ? StrCat(gain.tried(), " of ", gain.places()) : "all",
        " places tried)");
  }
  std::string text = StrFormat("one more %s %s %.3f %s (%s, %s", gain.kind(),
                               gain.unit() == v1::VALUE_UNIT_USD_PER_HOUR ? "saves" : "brings",
                               gain.value(), UnitText(gain.unit()), again, PlaceText(gain.place()));
  if (!gain.woken().empty())
    text += StrCat(", together with devices that are idle now: ", KindCountsText(gain.woken()));
  return StrCat(text, ")", shared ? StrCat(": ", RatesText(gain.rates())) : "");
}

std::string UntriedText(const v1::UntriedKinds& untried, bool shared) {
  return StrCat(
      untried.interrupted() ? "interrupted: " : "",
      shared ? "not dealt again with one more of " : "not planned again with one more of ",
      untried.kinds(), untried.all() ? " kinds" : " other kinds");
}

std::string DevicePriceText(const v1::DevicePrice& price) {
  switch (price.fact_case()) {
    case v1::DevicePrice::kUnpricedSearch:
      return StrCat("not known: the search ", price.unpriced_search(),
                    " does not price devices; --sensitivity plans again with one more of each "
                    "kind");
    case v1::DevicePrice::kEstimate: return EstimateText(price.estimate());
    case v1::DevicePrice::kGain: return GainText(price.gain(), price.shared());
    case v1::DevicePrice::kUntried: return UntriedText(price.untried(), price.shared());
    case v1::DevicePrice::kBase:
      return StrFormat(
          "counted from %.3f %s, the best prediction: the simulation chose this plan, but plans "
          "with more devices are not simulated",
          price.base().value(), UnitText(price.base().unit()));
    default:
      return StrCat("not dealt again with one more device above ", price.above_devices(),
                    " devices, where it takes long: use --sensitivity");
  }
}

std::string OthersText(const v1::OtherLinks& others) {
  if (others.links() == 1 && others.tried() > 1) return "the one other link";
  if (others.links() < others.tried() || others.untried() > 0) {
    return StrCat("any of ", others.links() < others.tried() ? "the other " : "the ",
                  others.links(), " links",
                  others.untried() > 0
                      ? StrCat(" tried, the fullest (", others.untried(), " were not tried)")
                      : "");
  }
  return others.inside_only() ? "links inside machines" : "any link that is used or described";
}

std::string SearchedText(const v1::SearchedLinks& searched, const std::string& more) {
  if (searched.links() < searched.searched()) {
    return StrCat("of ", searched.links(), searched.links() == 1 ? " other link " : " other links ",
                  more, " more bring nothing (planned again)");
  }
  return StrCat("nor would another layout serve more with ", more, " more on one ",
                searched.searched() < searched.of_links()
                    ? StrCat("of the ", searched.searched(), " fullest links")
                    : "link",
                " (planned again)");
}

std::string LinkPriceText(const v1::LinkPrice& price) {
  const char* layout = price.shared() ? "these layouts" : "this layout";
  const std::string more = GbitText(price.more_bytes_per_second());
  switch (price.fact_case()) {
    case v1::LinkPrice::kNothingSent:
      return "nothing is sent between machines: more bandwidth there brings nothing";
    case v1::LinkPrice::kGain: {
      const v1::LinkGain& gain = price.gain();
      const std::string value = StrFormat("%.3f %s", gain.value(), UnitText(gain.unit()));
      if (gain.searched_again())
        return StrCat(more, " more on ", gain.link(), " bring ", value, " (planned again)");
      return StrCat(more, " more on ", gain.link(), " (now ", GbitText(gain.bytes_per_second()),
                    ") would bring ", layout, " ", value);
    }
    case v1::LinkPrice::kOthers:
      return StrCat(more, " more on ", OthersText(price.others()), " would bring ", layout,
                    price.others().a_little() ? " less than 0.01 %" : " nothing");
    case v1::LinkPrice::kSearched: return SearchedText(price.searched(), more);
    default: return "interrupted: not all links were tried";
  }
}

}  // namespace

std::string ChangedName(v1::Assumed assumed, double factor) {
  const double percent = 100 * (factor - 1);
  const bool up = percent > 0;
  const auto name = [&](const char* what, const char* more, const char* less) {
    return StrFormat("%s %.0f %% %s", what, up ? percent : -percent, up ? more : less);
  };
  switch (assumed) {
    case v1::ASSUMED_EFFICIENCIES: return name("efficiencies", "higher", "lower");
    case v1::ASSUMED_OUTPUTS: return name("outputs", "longer", "shorter");
    default: return name("links", "faster", "slower");
  }
}

std::string PlaceText(const v1::DevicePlaceFact& place) {
  if (!place.machine().empty()) return StrCat("in machine ", place.machine());
  return StrCat("as a machine of its own", place.site().empty() ? "" : " at ", place.site());
}

std::vector<std::string> SensitivityLines(const v1::DeploymentPlan& plan) {
  std::vector<std::string> lines;
  for (const v1::Sensitivity& one : plan.sensitivity()) lines.push_back(SensitivityText(one));
  return lines;
}

std::vector<std::string> DevicePriceLines(const v1::DeploymentPlan& plan) {
  std::vector<std::string> lines;
  for (const v1::DevicePrice& one : plan.device_prices()) lines.push_back(DevicePriceText(one));
  return lines;
}

std::vector<std::string> LinkPriceLines(const v1::DeploymentPlan& plan) {
  std::vector<std::string> lines;
  for (const v1::LinkPrice& one : plan.link_prices()) lines.push_back(LinkPriceText(one));
  return lines;
}

void AppendOutlook(const v1::DeploymentPlan& plan, std::string* out) {
  AppendLines("other choices", AlternativeLines(plan), out);
  AppendLines("if the assumptions are off", SensitivityLines(plan), out);
  AppendLines("what one more device would bring", DevicePriceLines(plan), out);
  AppendLines("what more bandwidth would bring", LinkPriceLines(plan), out);
}

}  // namespace tessera::scheduler
