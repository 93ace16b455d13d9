// Speed of tokenizers on one core: MB/s on English, code and Chinese against a bar of 5 MB/s, a
// text without a space against its halves, tokenizer.model against libsentencepiece itself, and the
// time to load 10 MB of tokenizer.json. Times are this thread's own (CPU time), so that neighbours
// on the machine count little.
//
//   tests/bench/run tokenizer [FOLDER ...]     also measures these model folders
//
// Exits 1 where anything is under its bar.

#include "coordinator/tokenizer/tokenizer.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/tokenizer/sentencepiece_model.h"

namespace {

using tessera::coordinator::SentencePieceModel;
using tessera::coordinator::Tokenizer;

constexpr double kBarMegabytesPerSecond = 5.0;
constexpr double kMaxGrowth = 3.0;       // 1 MB without a space against twice 0.5 MB
constexpr double kMinOfLibrary = 0.9;    // of libsentencepiece's own rate
constexpr double kMaxLoadSeconds = 2.0;  // for 10 MB of tokenizer.json
constexpr size_t kTextBytes = 2 << 20;

const std::filesystem::path kGolden = "tests/golden/tokenizer";

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The best of three runs.
double Seconds(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = ThreadSeconds();
    work();
    best = std::min(best, ThreadSeconds() - start);
  }
  return best;
}

bool Report(const std::string& what, double value, const char* unit, double ratio, bool good) {
  std::printf("%-46s %9.2f %-5s %6.2fx of the bar  %s\n", what.c_str(), value, unit, ratio,
              good ? "ok" : "UNDER THE BAR");
  return good;
}

std::string English(size_t bytes) {
  static const std::vector<std::string> kWords = {
      "the",   "of",     "and",     "to",        "in",       "that",    "it",     "was",
      "for",   "with",   "light",   "people",    "question", "because", "again",  "tokenizer",
      "river", "don't",  "village", "they've",   "small",    "between", "1984",   "number",
      "hill",  "waited", "Nobody",  "mountains", "forget",   "it's",    "system", "university"};
  std::mt19937 random(1);
  std::string text;
  while (text.size() < bytes) {
    text += kWords[random() % kWords.size()];
    text += random() % 9 == 0 ? ", " : (random() % 15 == 0 ? ".\n" : " ");
  }
  return text;
}

std::string Code(size_t bytes) {
  static const std::vector<std::string> kLines = {
      "for (int i = 0; i < count; ++i) {\n",
      "    sum += values[i] * weights[i + offset];\n",
      "}\n\n",
      "def encode(self, text: str) -> list[int]:\n",
      "        return [self.vocab[token] for token in self.split(text)]\n",
      "#include <vector>\n",
      "  if (status.ok() && !result->empty()) return std::move(*result);\n",
      "// the loop runs once per row, 0x7fff at most\n",
      "SELECT name, count(*) FROM users WHERE age >= 18 GROUP BY name;\n"};
  std::mt19937 random(2);
  std::string text;
  while (text.size() < bytes) text += kLines[random() % kLines.size()];
  return text;
}

std::string Chinese(size_t bytes) {
  static const std::vector<std::string> kPhrases = {
      "天地玄黄", "宇宙洪荒", "我们今天", "要去北京", "人工智能",   "正在改变", "世界",     "明天",
      "的",       "是",       "不在",     "日月盈昃", "大学生活动", "中心",     "经济发展", "历史",
      "和",       "科学技术", "问题",     "研究",     "新的计算机", "系统",     "語言",     "模型"};
  std::mt19937 random(3);
  std::string text;
  while (text.size() < bytes) {
    text += kPhrases[random() % kPhrases.size()];
    if (random() % 6 == 0) text += random() % 2 == 0 ? "，" : "。";
  }
  return text;
}

// Letters in an order that has merges but no spaces.
std::string WithoutSpaces(size_t bytes) {
  std::mt19937 random(4);
  std::string text;
  while (text.size() < bytes) text += "etaoinshrdlu"[random() % 12];
  return text;
}

void Encode(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, {});
  if (!ids.ok() || ids->empty()) {
    std::fprintf(stderr, "cannot encode: %s\n", ids.status().ToString().c_str());
    std::exit(1);
  }
}

bool MeasureRates(const std::string& name, const Tokenizer& tokenizer) {
  bool good = true;
  const std::vector<std::pair<std::string, std::string>> texts = {{"English", English(kTextBytes)},
                                                                  {"code", Code(kTextBytes)},
                                                                  {"Chinese", Chinese(kTextBytes)}};
  for (const auto& [kind, text] : texts) {
    const double rate =
        static_cast<double>(text.size()) / 1e6 / Seconds([&] { Encode(tokenizer, text); });
    const double ratio = rate / kBarMegabytesPerSecond;
    good &= Report(name + ", " + kind, rate, "MB/s", ratio, ratio >= 1.0);
  }
  return good;
}

// Texts on which a careless matcher or merger takes time that grows with the square.
bool MeasureGrowth(const std::string& name, const Tokenizer& tokenizer) {
  bool good = true;
  const auto repeat = [](std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
  };
  const std::vector<std::pair<std::string, std::function<std::string(size_t)>>> texts = {
      {"letters", WithoutSpaces},
      {"one letter", [&](size_t n) { return repeat("a", n); }},
      {"capitals", [&](size_t n) { return repeat("A", n); }},
      {"spaces", [&](size_t n) { return repeat(" ", n); }},
      {"newlines", [&](size_t n) { return repeat("\n", n); }},
      {"marks", [&](size_t n) { return repeat("e\u0301\u0316\u0301\u0316\u0301\u0316", n); }}};
  for (const auto& [kind, make] : texts) {
    const std::string whole = make(1 << 20);
    const std::string half = make(1 << 19);
    const double one = Seconds([&] { Encode(tokenizer, whole); });
    const double two = 2 * Seconds([&] { Encode(tokenizer, half); });
    const double growth = one / two;
    good &= Report(name + ", 1 MB of " + kind, static_cast<double>(whole.size()) / 1e6 / one,
                   "MB/s", kMaxGrowth / growth, growth <= kMaxGrowth);
  }
  return good;
}

bool MeasureSentencePiece() {
  bool good = true;
  for (const char* family : {"model_bpe", "model_unigram"}) {
    const auto folder = kGolden / family;
    const auto tokenizer = Tokenizer::Load(folder);
    std::ifstream file(folder / "tokenizer.model", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::string error;
    const auto library = SentencePieceModel::Load(bytes, &error);
    if (!tokenizer.ok() || library == nullptr) {
      std::fprintf(stderr, "cannot load %s\n", folder.c_str());
      return false;
    }
    const std::string text = English(1 << 19);
    const double own = Seconds([&] { Encode(**tokenizer, text); });
    const double theirs = Seconds([&] { library->Encode(text); });
    const double ratio = theirs / own / kMinOfLibrary;
    good &= Report(std::string(family) + ", English, against the library",
                   static_cast<double>(text.size()) / 1e6 / own, "MB/s", ratio, ratio >= 1.0);
  }
  return good;
}

// A vocabulary as large as published ones, in Llama 3's form: random merges of the golden one's.
nlohmann::json LargeDocument() {
  std::ifstream file(kGolden / "llama3" / "tokenizer.json");
  nlohmann::json document = nlohmann::json::parse(file);
  nlohmann::json& vocab = document["model"]["vocab"];
  nlohmann::json& merges = document["model"]["merges"];
  std::vector<std::string> tokens(vocab.size());
  for (const auto& item : vocab.items()) tokens[item.value()] = item.key();
  std::set<std::string> known(tokens.begin(), tokens.end());
  std::mt19937 random(5);
  while (tokens.size() < 250'000) {
    const std::string left = tokens[random() % tokens.size()];
    const std::string right = tokens[random() % 800];
    if (left.size() + right.size() > 24 || !known.insert(left + right).second) continue;
    vocab[left + right] = tokens.size();
    merges.push_back({left, right});
    tokens.push_back(left + right);
  }
  int64_t id = static_cast<int64_t>(tokens.size());
  for (nlohmann::json& token : document["added_tokens"]) {
    token["id"] = id;
    for (auto& [name, entry] :
         document["post_processor"]["processors"][1]["special_tokens"].items()) {
      if (name == token["content"]) entry["ids"] = {id};
    }
    ++id;
  }
  return document;
}

bool MeasureLarge() {
  const auto folder = std::filesystem::temp_directory_path() / "tessera_tokenizer_bench";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << LargeDocument().dump();
  const double megabytes =
      static_cast<double>(std::filesystem::file_size(folder / "tokenizer.json")) / 1e6;
  std::unique_ptr<Tokenizer> tokenizer;
  const double seconds = Seconds([&] {
    auto loaded = Tokenizer::Load(folder);
    if (!loaded.ok()) {
      std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
      std::exit(1);
    }
    tokenizer = *std::move(loaded);
  });
  std::filesystem::remove_all(folder);
  const double per_ten = seconds * 10 / megabytes;
  std::printf("250,000 tokens: %.1f MB of tokenizer.json in %.2f s\n", megabytes, seconds);
  bool good = Report("10 MB of tokenizer.json", per_ten, "s", kMaxLoadSeconds / per_ten,
                     per_ten <= kMaxLoadSeconds);
  good &= MeasureRates("250,000 tokens", *tokenizer);
  return good;
}

bool MeasureFolder(const std::filesystem::path& folder) {
  const auto tokenizer = Tokenizer::Load(folder);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return false;
  }
  const std::string name = folder.filename().string();
  const bool rates = MeasureRates(name, **tokenizer);
  return MeasureGrowth(name, **tokenizer) && rates;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> folders;
  for (int i = 1; i < argc; ++i) folders.emplace_back(std::filesystem::absolute(argv[i]));
  if (const char* runfiles = std::getenv("RUNFILES_DIR")) {
    std::filesystem::current_path(std::filesystem::path(runfiles) / "tessera");
  }
  if (folders.empty()) {
    for (const char* family :
         {"gpt2", "llama3", "qwen2", "tekken", "deepseek", "llama2", "mistral"}) {
      folders.push_back(kGolden / family);
    }
  }
  bool good = true;
  for (const auto& folder : folders) good &= MeasureFolder(folder);
  good &= MeasureSentencePiece();
  good &= MeasureLarge();
  std::printf(good ? "every bar is met\n" : "a bar is not met\n");
  return good ? 0 : 1;
}
