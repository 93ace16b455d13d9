#include "scheduler/search/search_options.h"

#include <cmath>
#include <type_traits>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kMany = 1e9;

struct Constant {
  std::string name;
  std::variant<bool*, int*, int64_t*, double*> at;
  double low = 0, high = kMany;
  const char* origin = "";  // and what it is

  double value() const {
    return std::visit([](auto* value) { return static_cast<double>(*value); }, at);
  }
  void Set(double value) const {
    std::visit(
        [value](auto* out) { *out = static_cast<std::remove_pointer_t<decltype(out)>>(value); },
        at);
  }
  bool whole() const { return !std::holds_alternative<double*>(at); }
};

using Constants = std::vector<Constant>;

void AddLayouts(const std::string& search, GroupLayoutOptions* o, Constants* all) {
  all->push_back({search + ".layer_steps", &o->layer_steps, 1, 1000,
                  "ours: layer ranges a layout is first tried in"});
  all->push_back({search + ".most_states", &o->most_states, 1, kMany,
                  "ours: sets of a group's devices that one layout may look at"});
  all->push_back({search + ".most_fine_states", &o->most_fine_states, 1, kMany,
                  "ours: the same, times layers, for the layouts of the answer"});
}

Constants AllOf(SearchConstants* s) {
  constexpr const char* kLayouts = "ours: layouts of unlike groups, at most";
  constexpr const char* kGrowth = "ours: from n groups at the start to n + n / this";
  Constants all = {
      {"hexgen.population", &s->hexgen.population, 1, kMany, "ours: candidates that are kept"},
      {"hexgen.most_evaluations", &s->hexgen.most_evaluations, 1, kMany,
       "ours: candidates judged, at most"},
      {"hexgen.most_layouts", &s->hexgen.most_layouts, 1, kMany, kLayouts},
      {"hexgen.patience", &s->hexgen.patience, 1, kMany,
       "ours: candidates without a new best after which it ends"},
      {"hexgen.second_mutation", &s->hexgen.second_mutation, 0, 0.99,
       "ours: chance that another mutation follows"},
      {"hexgen.start_growth", &s->hexgen.start_growth, 1, kMany, kGrowth},
      {"hexgen2.size_tolerance", &s->hexgen2.size_tolerance, 0, 1,
       "ours: by how much the memory of parts may drift while pairs are swapped"},
      {"hexgen2.starts", &s->hexgen2.starts, 1, kMany, "ours: numbers of groups that are refined"},
      {"hexgen2.most_evaluations", &s->hexgen2.most_evaluations, 1, kMany,
       "ours: candidates judged, at most"},
      {"hexgen2.most_layouts", &s->hexgen2.most_layouts, 1, kMany, kLayouts},
      {"hexgen2.start_growth", &s->hexgen2.start_growth, 1, kMany, kGrowth},
      {"hexgen2.prefill_by_latency", &s->hexgen2.layouts.prefill_by_latency, 0, 1,
       "the paper: prefilling groups have the layout of least latency"},
      {"thunderserve.steps", &s->thunderserve.steps, 1, kMany, "ours: of the tabu search, at most"},
      {"thunderserve.neighbours", &s->thunderserve.neighbours, 1, kMany,
       "ours: looked at per step"},
      {"thunderserve.tabu_length", &s->thunderserve.tabu_length, 0, kMany,
       "ours: groupings that are not gone back to"},
      {"thunderserve.patience", &s->thunderserve.patience, 1, kMany,
       "ours: steps without a new best after which it ends"},
      {"thunderserve.most_layouts", &s->thunderserve.most_layouts, 1, kMany, kLayouts},
      {"thunderserve.start_growth", &s->thunderserve.start_growth, 1, kMany, kGrowth},
      {"cost.most_machines_side_by_side", &s->cost.most_machines_side_by_side, 1, kMany,
       "ours: of one kind, joined to one pipeline"},
      {"cost.most_layouts", &s->cost.most_layouts, 1, kMany, kLayouts},
      {"cost.gap", &s->cost.bisection.gap, 1e-6, 0.5,
       "ours: of the rate, at which the bisection ends; the paper reports less than 1 % of loss"},
      {"cost.most_checks", &s->cost.bisection.most_checks, 1, kMany,
       "ours: of the bisection, at most"},
      {"cost.length_buckets", &s->cost.length_buckets, 0, 1,
       "Melange: requests in classes by their lengths; ours: off, because shares of a plan do not "
       "depend on the class"},
      {"cost.bucket_prompt_tokens", &s->cost.bucket_prompt_tokens, 1, kMany,
       "literature: from here on prompts are long"},
      {"cost.bucket_output_tokens", &s->cost.bucket_output_tokens, 1, kMany,
       "literature: from here on answers are long"},
      {"exact.most_devices", &s->exact.most_devices, 1, 16,
       "ours: more would take too long to try every way"},
      {"exact.most_proof_work", &s->exact.most_proof_work, 0, kMany,
       "ours: device sets times roles times layers that are proved without --prove"},
  };
  AddLayouts("hexgen", &s->hexgen.layouts, &all);
  AddLayouts("hexgen2", &s->hexgen2.layouts, &all);
  AddLayouts("thunderserve", &s->thunderserve.layouts, &all);
  AddLayouts("cost", &s->cost.layouts, &all);
  AddLayouts("exact", &s->exact.layouts, &all);
  return all;
}

bool IsOf(const Constant& constant, const std::string& search) {
  return constant.name.starts_with(search + ".");
}

absl::Status Fault(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(StrCat("search option \"", text, "\": ", why));
}

absl::Status CheckValue(const Constant& constant, const std::string& text, double value) {
  if (value >= constant.low && value <= constant.high &&
      (!constant.whole() || value == std::floor(value))) {
    return absl::OkStatus();
  }
  return Fault(text,
               absl::StrFormat("must be a %snumber from %g to %g", constant.whole() ? "whole " : "",
                               constant.low, constant.high));
}

}  // namespace

SearchConstants ConstantsWith(const std::map<std::string, double>& values) {
  SearchConstants constants;
  for (const Constant& constant : AllOf(&constants)) {
    if (const auto given = values.find(constant.name); given != values.end())
      constant.Set(given->second);
  }
  return constants;
}

absl::StatusOr<std::map<std::string, double>> ParseSearchOptions(
    const std::string& search, const std::vector<std::string>& texts) {
  SearchConstants defaults;
  const Constants all = AllOf(&defaults);
  std::string known;
  for (const Constant& constant : all) {
    if (IsOf(constant, search)) known += StrCat(known.empty() ? "" : ", ", constant.name);
  }
  std::map<std::string, double> values;
  for (const std::string& text : texts) {
    const size_t sign = text.find('=');
    double value = 0;
    if (sign == std::string::npos || !absl::SimpleAtod(text.substr(sign + 1), &value))
      return Fault(text, "is not NAME=NUMBER, such as hexgen.population=32");
    const std::string name = text.substr(0, sign);
    const Constant *found = nullptr, *of_another = nullptr;
    for (const Constant& constant : all) {
      if (constant.name != name) continue;
      (IsOf(constant, search) ? found : of_another) = &constant;
    }
    if (found == nullptr) {
      return Fault(text,
                   StrCat("the search ", search, " has no such option; ",
                          known.empty() ? "it has none" : StrCat("it has ", known),
                          of_another == nullptr ? "" : "; name the search that has it (--search)"));
    }
    if (absl::Status s = CheckValue(*found, text, value); !s.ok()) return s;
    values[name] = value;
  }
  return values;
}

std::vector<v1::SearchConstant> SearchConstantsOf(const std::string& search,
                                                  const std::map<std::string, double>& values) {
  SearchConstants constants = ConstantsWith(values);
  std::vector<v1::SearchConstant> out;
  for (const Constant& constant : AllOf(&constants)) {
    if (!IsOf(constant, search)) continue;
    v1::SearchConstant& one = out.emplace_back();
    one.set_name(constant.name);
    one.set_value(constant.value());
    one.set_given(values.contains(constant.name));
    one.set_origin(constant.origin);
  }
  return out;
}

}  // namespace tessera::scheduler
