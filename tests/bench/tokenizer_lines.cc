// The binary behind tests/bench/tokenizer_families: tokenizer_lines FOLDER reads one JSON text a
// line and answers each with {"ids", "split", "text"}, or {"error"}.

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using tessera::coordinator::Tokenizer;
  if (argc != 2) {
    std::cerr << "usage: tokenizer_lines FOLDER\n";
    return 2;
  }
  const auto tokenizer = Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::cout << nlohmann::json{{"error", tokenizer.status().ToString()}}.dump() << std::endl;
    return 1;
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = nlohmann::json::parse(line, nullptr, false);
    if (!request.is_string()) return 2;
    const std::string text = request;
    const auto ids = (*tokenizer)->Encode(text, {});
    const auto split =
        (*tokenizer)->Encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
    if (!ids.ok() || !split.ok()) {
      std::cout << nlohmann::json{{"error", ids.status().ToString()}}.dump() << std::endl;
      continue;
    }
    const std::string decoded = (*tokenizer)->Decode(*split, true);
    std::cout << nlohmann::json{{"ids", *ids}, {"split", *split}, {"text", decoded}}.dump()
              << std::endl;
  }
  return 0;
}
