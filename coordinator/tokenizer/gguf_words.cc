#include "coordinator/tokenizer/gguf_words.h"

#include <array>
#include <string>

#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

using nlohmann::json;

// Patterns, one after the other; "gpt2" stands for ByteLevel's own, "digits" for single digits.
constexpr std::string_view kGpt2 = "gpt2";
constexpr std::string_view kSingleDigits = "digits";

constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s)"
    R"(|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s)"
    R"(|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S))"
    R"(|\s+)";
constexpr std::string_view kSeedCoderPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1})"
    R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kCjk = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view kDeepSeek3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kLineEnd = R"([\r\n])";
constexpr std::string_view kSpacesAtEnd = R"(\s+$)";
// Letters as the tokenizer of DeepSeek LLM lists them: with a case, but those of later alphabets.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[)"
    R"(A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ)"
    R"(Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻ)"
    R"(Ȿ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃)"
    R"(]+)";
constexpr std::string_view kDeepSeekMarks = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekCjk = "[一-龥ࠀ-一가-퟿]+";
// What "gpt2" stands for, where others follow.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kFalconMarks = R"([\p{P}\$\+<=>\^~\|`]+)";

struct Rule {
  std::string_view names;  // a space behind each
  std::array<std::string_view, 6> patterns;
  bool whole_words_first = false;
  bool adds_bos = false;
  bool nfc = false;  // the text is brought into this form before it is split
};

constexpr std::array kRules = {
    Rule{"llama-bpe llama3 llama-v3 falcon3 pixtral lfm2 ", {kLlama3Pattern}, true, true},
    Rule{"glm4 ", {kLlama3Pattern}, true},
    Rule{"chatglm-bpe dbrx smaug-bpe ", {kLlama3Pattern}},
    Rule{.names = "qwen2 ", .patterns = {kQwen2Pattern}, .nfc = true},
    Rule{"stablelm2 hunyuan megrez solar-open deepseek-r1-qwen ", {kQwen2Pattern}},
    Rule{.names = "qwen35 ", .patterns = {kQwen35Pattern}, .nfc = true},
    Rule{"gpt-2 phi-2 olmo mpt exaone4 trillion granite-docling a.x-4.0 ", {kGpt2}},
    Rule{"starcoder refact command-r smollm exaone codeshell ", {kSingleDigits, kGpt2}},
    Rule{"tekken ", {kTekkenPattern}, true, true},
    Rule{"gpt-4o llama4 minimax-m2 kanana2 ", {kGpt4oPattern}},
    Rule{"deepseek-v3 hunyuan-dense joyai ", {kThreeDigits, kCjk, kDeepSeek3Pattern}},
    Rule{"deepseek-llm ",
         {kLineEnd, kDeepSeekLetters, kDeepSeekMarks, kSpacesAtEnd, kDeepSeekCjk, R"(\p{N}+)"}},
    Rule{"deepseek-coder ", {kLineEnd, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekCjk, R"(\p{N})"}},
    Rule{"falcon ", {kFalconMarks, kGpt2Pattern, "[0-9][0-9][0-9]"}},
    Rule{"kimi-k2 ", {kKimiPattern}},
    Rule{"seed-coder ", {kSeedCoderPattern}}};

json PreTokenizerOf(const Rule& rule) {
  json steps = json::array();
  bool byte_level = false;
  for (const std::string_view pattern : rule.patterns) {
    if (pattern.empty()) continue;
    if (pattern == kSingleDigits) {
      steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    } else if (pattern == kGpt2) {
      steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}});
      byte_level = true;
    } else {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", std::string(pattern)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
  }
  if (!byte_level) {
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  }
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

}  // namespace

absl::StatusOr<GgufWords> FindGgufWords(std::string_view pre) {
  std::string known;
  for (const Rule& rule : kRules) {
    // Names hold no spaces, so that a part of one is not found.
    const size_t at = StrCat(" ", rule.names).find(StrCat(" ", pre, " "));
    known = StrCat(known, rule.names);
    if (at == std::string::npos || pre.empty()) continue;
    return GgufWords{rule.nfc ? json{{"type", "NFC"}} : json(), PreTokenizerOf(rule),
                     rule.whole_words_first, rule.adds_bos};
  }
  known.pop_back();
  return absl::InvalidArgumentError(
      StrCat("key 'tokenizer.ggml.pre' is '", pre.substr(0, 40),
             "': how it splits text into words is not known; known are ", known));
}

}  // namespace tessera::coordinator
