#include "tests/coordinator/grammar/call_probe.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/api/call_grammar.h"

namespace tessera::tests {

using coordinator::AnswerEnd;
using coordinator::AnswerFormat;

absl::StatusOr<CallProbe> CallProbe::Create(std::string_view format,
                                            const nlohmann::ordered_json& tools) {
  coordinator::ServedModel model;
  model.call_format = coordinator::FindCallFormat(format);
  if (model.call_format == nullptr) return absl::NotFoundError(std::string(format));
  coordinator::ChatTools demanded;
  demanded.offered = true;
  demanded.call_start = model.call_format->call_start("");
  auto grammar = DemandedCallGrammar(model, {{"tools", tools}}, &demanded);
  if (!grammar.ok()) return grammar.status();
  if (grammar->empty()) return absl::UnimplementedError("no grammar has the arguments");
  // Without these a random text would not come to its closing tag.
  std::vector<std::string> ends;
  if (const auto& tags = model.call_format->frame->tags; tags.has_value())
    ends = {tags->value_closing, tags->value_closing + tags->behind_value};
  auto probe = GrammarProbe::Create(*grammar, ends);
  if (!probe.ok()) return probe.status();
  auto read = std::make_shared<AnswerFormat>();
  read->calls = model.call_format;
  read->schemas = coordinator::ToolSchemas(tools);
  read->prefix = demanded.call_start;
  read->draw_id = [] { return std::string("abcdefghi"); };
  return CallProbe(*std::move(probe), std::move(read));
}

bool CallProbe::Accepts(std::string_view answer) const {
  return answer.starts_with(format_->prefix) &&
         grammar_.Accepts(answer.substr(format_->prefix.size()));
}

coordinator::AnswerMessage CallProbe::Read(std::string_view answer) const {
  coordinator::MessageBuilder builder(format_);
  builder.Append(answer.substr(format_->prefix.size()));
  builder.Finish(AnswerEnd::kStop);
  return builder.message();
}

std::optional<std::string> CallProbe::RandomAnswer(uint64_t seed, int max_tokens) const {
  const std::optional<std::string> behind = grammar_.RandomText(seed, max_tokens);
  if (!behind.has_value()) return std::nullopt;
  return format_->prefix + *behind;
}

}  // namespace tessera::tests
