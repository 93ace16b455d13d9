#include "coordinator/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/tokenizer/added_tokens.h"
#include "coordinator/tokenizer/sentencepiece_model.h"
#include "coordinator/tokenizer/sentencepiece_proto.h"
#include "coordinator/tokenizer/text/utf8.h"
#include "coordinator/tokenizer/token_limits.h"
#include "coordinator/tokenizer/vocabulary.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, how a space is written

class SentencePieceEncoder final : public TextEncoder {
 public:
  struct Options {
    bool legacy = true;
    bool add_prefix_space = true;
    int64_t max_piece_bytes = 0;  // 0: no bound
  };

  SentencePieceEncoder(std::unique_ptr<SentencePieceModel> model,
                       const std::vector<AddedToken>& added, Options options)
      : model_(std::move(model)), added_(added), options_(options) {
    for (const AddedToken& token : added) added_ids_.push_back(token.id);
    std::sort(added_ids_.begin(), added_ids_.end());
    space_id_ = model_->PieceToId(std::string(kSpaceMark));
    unknown_text_ = model_->IdToPiece(model_->unk_id());
    unknown_length_ = Pieces(unknown_text_).size();
    reach_.max_bytes = options.max_piece_bytes;
    for (const AddedToken& token : added) {
      reach_.swallows_space = reach_.swallows_space || token.lstrip || token.rstrip;
      const auto bytes = static_cast<int64_t>(token.content.size());
      if (reach_.max_bytes > 0) reach_.max_bytes = std::max(reach_.max_bytes, bytes);
    }
  }

  TokenReach reach() const override { return reach_; }

  absl::Status Encode(const MarkedView& input, std::vector<int32_t>* ids) const override {
    if (options_.legacy || input.text.empty()) return EncodeParts(input, ids);
    // The later form writes the space before the text itself.
    MarkedText changed = WithPrefix(input);
    const size_t start = ids->size();
    if (auto status = EncodeParts(changed.View(), ids); !status.ok()) return status;
    const bool lone_space =
        ids->size() > start + 1 && (*ids)[start] == space_id_ && IsAdded((*ids)[start + 1]);
    if (lone_space) ids->erase(ids->begin() + static_cast<ptrdiff_t>(start));
    return absl::OkStatus();
  }

 private:
  bool IsAdded(int32_t id) const {
    return std::binary_search(added_ids_.begin(), added_ids_.end(), id);
  }

  // The text with marks for spaces written as spaces, behind one mark; the mask goes along.
  MarkedText WithPrefix(const MarkedView& input) const {
    MarkedText out{"", input.specials, ""};
    const bool marked = !input.mask.empty();
    if (options_.add_prefix_space) {
      out.text = kSpaceMark;
      if (marked) out.mask.append(kSpaceMark.size(), '\0');
    }
    for (size_t i = 0; i < input.text.size();) {
      const bool mark = input.text.substr(i).starts_with(kSpaceMark);
      out.text.push_back(mark ? ' ' : input.text[i]);
      if (marked) out.mask.push_back(input.mask[i]);
      i += mark ? kSpaceMark.size() : 1;
    }
    return out;
  }

  absl::Status EncodeParts(const MarkedView& input, std::vector<int32_t>* ids) const {
    for (const AddedTokenMatcher::Piece& piece : added_.Split(input)) {
      if (piece.id >= 0) {
        ids->push_back(piece.id);
      } else {
        EncodeText(input.text.substr(piece.begin, piece.end - piece.begin), ids);
      }
    }
    return absl::OkStatus();
  }

  std::vector<int> Pieces(std::string_view text) const { return model_->Encode(text); }

  void EncodeText(std::string_view text, std::vector<int32_t>* ids) const {
    const bool keep_spaces =
        !options_.legacy && (text.starts_with(kSpaceMark) || text.starts_with(' '));
    if (!keep_spaces) {
      const std::vector<int> pieces = Pieces(text);
      ids->insert(ids->end(), pieces.begin(), pieces.end());
      return;
    }
    // libsentencepiece drops spaces at the start of a text, but not behind other text: encode
    // behind the unknown token's spelling and leave its pieces out.
    const std::vector<int> pieces = Pieces(StrCat(unknown_text_, text));
    const size_t skip = pieces.size() >= unknown_length_ ? unknown_length_ : 0;
    ids->insert(ids->end(), pieces.begin() + static_cast<ptrdiff_t>(skip), pieces.end());
  }

  std::unique_ptr<SentencePieceModel> model_;
  AddedTokenMatcher added_;
  Options options_;
  std::vector<int32_t> added_ids_;  // sorted
  int32_t space_id_ = -1;
  std::string unknown_text_;
  size_t unknown_length_ = 0;
  TokenReach reach_;
};

// The tokens of the model and of the small files around it.
absl::Status FillVocabulary(const SentencePieceModel& model, const TokenizerConfig& config,
                            Vocabulary* vocabulary) {
  const int size = model.GetPieceSize();
  vocabulary->Announce(static_cast<size_t>(size));
  for (int id = 0; id < size; ++id) {
    if (auto status = vocabulary->AddModelToken(model.IdToPiece(id), id); !status.ok()) {
      return status;
    }
  }
  for (const auto& [id, token] : config.added_tokens) {
    AddedToken copy = token;
    for (const AddedToken& special : config.special_tokens) {
      copy.special = copy.special || special.content == token.content;
    }
    if (auto status = vocabulary->AddAddedToken(std::move(copy)); !status.ok()) return status;
  }
  for (const AddedToken& token : config.special_tokens) {
    if (token.content.empty()) continue;
    if (auto status = vocabulary->AddAddedToken(token); !status.ok()) return status;
  }
  // Llama's own bos, eos and unk are added tokens in any case.
  for (const int id : {model.unk_id(), model.bos_id(), model.eos_id()}) {
    if (id < 0) continue;
    AddedToken token{.content = model.IdToPiece(id), .special = true};
    if (auto status = vocabulary->AddAddedToken(std::move(token)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

DecodeRules RulesOf(bool strip_space) {
  DecodeRules rules;
  rules.byte_fallback = true;
  rules.replacements = {{std::string(kSpaceMark), " "}};
  rules.strip_text = " ";
  rules.strip_count = strip_space ? 1 : 0;
  return rules;
}

std::optional<int32_t> IdOf(const std::optional<std::string>& name, int model_id,
                            const Vocabulary& vocabulary) {
  if (name.has_value()) return vocabulary.Find(*name);
  if (model_id < 0) return std::nullopt;
  return model_id;
}

}  // namespace

absl::StatusOr<TokenizerParts> ParseSentencePiece(std::string bytes, std::string_view name,
                                                  const TokenizerConfig& config) {
  const auto invalid = [name](std::string_view why) {
    return absl::InvalidArgumentError(StrCat(name, ": ", why));
  };
  SentencePieceEncoder::Options options = {config.legacy.value_or(true),
                                           config.add_prefix_space.value_or(true)};
  if (auto status = CheckSentencePieceProto(bytes); !status.ok()) {
    return invalid(StdView(status.message()));
  }
  options.max_piece_bytes = MaxPieceBytes(bytes);
  if (!options.legacy) bytes += kNoDummyPrefix;
  std::string why;
  std::unique_ptr<SentencePieceModel> model = SentencePieceModel::Load(bytes, &why);
  if (model == nullptr) {
    return invalid(StrCat("not a usable SentencePiece model: ", Excerpt(why)));
  }
  if (model->unk_id() < 0) return invalid("it has no piece for what is unknown");
  Vocabulary vocabulary;
  if (auto status = FillVocabulary(*model, config, &vocabulary); !status.ok()) {
    return invalid(StdView(status.message()));
  }
  TokenizerParts parts;
  parts.decoder = TokenDecoder(RulesOf(options.add_prefix_space), vocabulary.Entries());
  parts.bos_id = IdOf(config.bos_token, model->bos_id(), vocabulary);
  parts.eos_id = IdOf(config.eos_token, model->eos_id(), vocabulary);
  if (config.add_bos_token.value_or(true) && parts.bos_id) parts.prefix.push_back(*parts.bos_id);
  if (config.add_eos_token.value_or(false) && parts.eos_id) parts.suffix.push_back(*parts.eos_id);
  parts.encoder =
      std::make_unique<SentencePieceEncoder>(std::move(model), vocabulary.added(), options);
  parts.ids = vocabulary.TakeIds();
  return parts;
}

absl::StatusOr<TokenizerParts> LoadSentencePiece(const std::filesystem::path& path,
                                                 const TokenizerConfig& config) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return absl::NotFoundError(StrCat(path.string(), ": cannot be read"));
  if (size > kMaxTokenizerFileBytes) {
    return absl::InvalidArgumentError(
        StrCat(path.string(), ": ", size, " bytes; at most ", kMaxTokenizerFileBytes, " are read"));
  }
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return ParseSentencePiece(std::move(bytes), path.string(), config);
}

}  // namespace tessera::coordinator
