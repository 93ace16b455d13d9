// Published vocabularies, whole, as llama.cpp's sources ship them beside texts and the ids that it
// gives for them (models/ggml-vocab-NAME.gguf, .inp and .out there): our ids are these.
//
// They stand in a folder that TESSERA_GGUF_VOCABULARIES names, or where tests/bench/peers/llama_cpp
// has put the sources.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/tokenizer.h"
#include "tests/catch_skip.h"
#include "tests/coordinator/peer_sources.h"

namespace tessera::coordinator {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";

// Vocabularies of encoders, and files that are too old to say how text is split.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"aquila", "tokenizer.ggml.pre"},
    {"bert-bge", "'bert': not supported"},
    {"gpt-neox", "tokenizer.ggml.pre"},
    {"nomic-bert-moe", "precompiled_charsmap"}};

// Texts are brought into Unicode's form C first, as the models' tokenizer.json says; llama.cpp does
// not do that.
constexpr std::string_view kNormalised[] = {"qwen2", "qwen35"};

// U+0300 to U+036F.
bool HasCombiningMark(std::string_view text) {
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(text[i + 1]);
    if (lead == 0xCC || (lead == 0xCD && next < 0xB0)) return true;
  }
  return false;
}

std::string Bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> TextsOf(const fs::path& path) {
  std::vector<std::string> texts;
  std::string left = Bytes(path);
  for (size_t end; (end = left.find(kSeparator)) != std::string::npos;) {
    texts.push_back(left.substr(0, end));
    left.erase(0, end + kSeparator.size());
  }
  if (!left.empty()) texts.push_back(left);
  return texts;
}

std::vector<std::vector<int32_t>> IdsOf(const fs::path& path) {
  std::vector<std::vector<int32_t>> all;
  std::istringstream lines(Bytes(path));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    all.emplace_back(std::istream_iterator<int32_t>(numbers), std::istream_iterator<int32_t>());
  }
  return all;
}

}  // namespace

TEST_CASE("whole vocabularies of published GGUF files give llama.cpp's ids") {
  const char* named = std::getenv("TESSERA_GGUF_VOCABULARIES");
  const fs::path folder = named != nullptr ? fs::path(named) : tests::PeerFolder("models");
  if (folder.empty()) {
    TESSERA_SKIP(
        "no vocabularies: TESSERA_GGUF_VOCABULARIES names no folder of them, and "
        "tests/bench/peers/llama_cpp has not fetched any");
  }
  int read = 0, refused = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& file = entry.path();
    if (file.extension() != ".gguf") continue;
    const std::string name = file.stem().string().substr(std::string("ggml-vocab-").size());
    INFO(name);
    const auto tokenizer = Tokenizer::Load(file);
    const auto* known = std::find_if(std::begin(kRefused), std::end(kRefused),
                                     [&](const auto& one) { return one.first == name; });
    if (known != std::end(kRefused)) {
      CHECK_THAT(std::string(tokenizer.status().message()), Contains(std::string(known->second)));
      ++refused;
      continue;
    }
    INFO(tokenizer.status().ToString());
    REQUIRE(tokenizer.ok());
    if (!fs::exists(file.string() + ".inp")) continue;
    const auto texts = TextsOf(file.string() + ".inp");
    const auto ids = IdsOf(file.string() + ".out");
    REQUIRE(texts.size() >= 40);
    REQUIRE(texts.size() == ids.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      INFO(texts[i].substr(0, 200));
      const bool normalised =
          std::find(std::begin(kNormalised), std::end(kNormalised), name) != std::end(kNormalised);
      if (normalised && HasCombiningMark(texts[i])) continue;
      const auto found =
          (*tokenizer)
              ->Encode(texts[i], {.add_special_tokens = false, .parse_special_tokens = false});
      REQUIRE(found.ok());
      CHECK(*found == ids[i]);
    }
    ++read;
  }
  CHECK(read >= 10);
  CHECK(refused >= 2);
}

}  // namespace tessera::coordinator
