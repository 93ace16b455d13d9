// Reads lines of JSON {"schema": ..., "texts": [...], "random": N, "loose": BOOL} and writes for
// each a line: {"refused": WHY}, or which of the texts the schema's grammar has, and N that a model
// of random weights writes. With --seconds the line also has the seconds that it took.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/grammar/answer_grammar.h"
#include "tests/coordinator/grammar/grammar_probe.h"

namespace {

using Json = nlohmann::ordered_json;
using tessera::coordinator::AnswerGrammar;
using tessera::coordinator::SchemaMode;
using tessera::tests::GrammarProbe;

constexpr int kMaxTokens = 2000;

Json Answer(const Json& asked) {
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
