// Reads lines of JSON {"schema": ..., "texts": [...], "random": N, "loose": BOOL} and writes for
// each a line: {"refused": WHY}, or which of the texts the schema's grammar has, and N that a model
// of random weights writes. With "format": FAMILY the schema is of a function's parameters, and a
// random text is the arguments of each call that the model writes, as they are read: an array, or
// null where something else was read. With --seconds the line also has the seconds that it took.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/grammar/answer_grammar.h"
#include "tests/coordinator/grammar/call_probe.h"
#include "tests/coordinator/grammar/grammar_probe.h"

namespace {

using Json = nlohmann::ordered_json;
using tessera::coordinator::AnswerGrammar;
using tessera::coordinator::SchemaMode;
using tessera::tests::CallProbe;
using tessera::tests::GrammarProbe;

constexpr int kMaxTokens = 2000;

Json AnswerOfCalls(const Json& asked) {
  const Json function = {
      {"name", "f"}, {"strict", !asked.value("loose", false)}, {"parameters", asked.at("schema")}};
  const auto probe =
      CallProbe::Create(asked.at("format").get<std::string>(),
                        Json::array({{{"type", "function"}, {"function", function}}}));
  if (absl::IsInvalidArgument(probe.status()))
    return {{"refused", std::string(probe.status().message())}};
  if (!probe.ok()) return {{"broken", std::string(probe.status().message())}};
  Json answer = {{"random", Json::array()}};
  for (uint64_t seed = 0; seed < asked.value("random", 0u); ++seed) {
    const auto written = probe->RandomAnswer(seed, kMaxTokens);
    if (!written.has_value()) continue;
    const auto message = probe->Read(*written);
    Json calls = Json::array();
    for (const auto& call : message.calls) calls.push_back(call.arguments);
    answer["random"].push_back(message.text.empty() ? calls : Json());
  }
  return answer;
}

Json Answer(const Json& asked) {
  if (asked.contains("format")) return AnswerOfCalls(asked);
  const SchemaMode mode = asked.value("loose", false) ? SchemaMode::kLoose : SchemaMode::kStrict;
  const auto grammar = AnswerGrammar::OfSchema(asked.at("schema"), mode);
  if (!grammar.ok()) return {{"refused", std::string(grammar.status().message())}};
  const std::string text = grammar->Text();
  const auto probe = GrammarProbe::Create(text);
  if (!probe.ok()) return {{"broken", std::string(probe.status().message())}, {"grammar", text}};
  Json answer = {{"texts", Json::array()}, {"random", Json::array()}};
  for (const Json& one : asked.value("texts", Json::array()))
    answer["texts"].push_back(probe->Accepts(one.get<std::string>()));
  for (uint64_t seed = 0; seed < asked.value("random", 0u); ++seed) {
    const auto written = probe->RandomText(seed, kMaxTokens);
    answer["random"].push_back(written.has_value() ? Json(*written) : Json());
  }
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  const bool timed = argc > 1 && std::string(argv[1]) == "--seconds";
  for (std::string line; std::getline(std::cin, line);) {
    const auto began = std::chrono::steady_clock::now();
    Json answer = Answer(Json::parse(line));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (timed) answer["seconds"] = took.count();
    std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
}
