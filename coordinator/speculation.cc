#include "coordinator/speculation.h"

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "proto/model/model_tensors.h"
#include "scheduler/input/draft_choice.h"

namespace tessera::coordinator {
namespace {

constexpr absl::string_view kDraft = "draft:";
constexpr char kNoHead[] =
    "no head for further tokens that is supported (one layer, as safetensors; "
    "mtp_num_hidden_layers or num_nextn_predict_layers is 1 in config.json)";

absl::Status UseHead(const std::string& folder, v1::ConfigureRequest* configure) {
  if (!configure->model().has_draft_head()) {
    return absl::InvalidArgumentError(absl::StrCat("--speculate is mtp, but ", folder, " has ",
                                                   kNoHead, ": use --speculate ngram, or off"));
  }
  configure->mutable_model()->mutable_draft_head()->set_used(true);
  configure->set_speculation(v1::SPECULATION_MTP);
  return absl::OkStatus();
}

absl::Status InDraft(const std::string& path, const absl::Status& status) {
  return absl::Status(
      status.code(), absl::StrCat("--speculate draft:", path, ": ", std::string(status.message())));
}

// Each id must be the same token, since ids are all that the two say to each other.
absl::Status CheckSameTokens(const Tokenizer& model, const Tokenizer& draft) {
  for (int32_t id = 0; id < model.vocabulary_size(); ++id) {
    const std::string text = model.TokenText(id), other = draft.TokenText(id);
    if (text == other) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "its tokenizer is another one: token ", id, " is '", other, "', and the model's is '", text,
        "': use a draft model of the same family, or --speculate ngram"));
  }
  return absl::OkStatus();
}

absl::Status UseDraftModel(const std::string& path, const Tokenizer& tokenizer,
                           v1::ConfigureRequest* configure) {
  absl::StatusOr<std::filesystem::path> folder = ResolveModelFolder(path);
  if (!folder.ok()) return folder.status();
  const std::filesystem::path absolute = std::filesystem::absolute(*folder).lexically_normal();
  absl::StatusOr<CheckedModel> checked = ReadCheckedModel(absolute.string());
  if (!checked.ok()) return checked.status();
  v1::Model& model = checked->model;
  if (KeepsStates(model)) {
    return absl::InvalidArgumentError(
        "its layers keep states (gated delta nets), from which refused tokens cannot be taken "
        "back: use a draft model whose layers attend, or --speculate ngram");
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> own = Tokenizer::Load(absolute);
  if (!own.ok()) return own.status();
  if (absl::Status s = CheckSameTokens(tokenizer, **own); !s.ok()) return s;
  absl::StatusOr<std::string> fingerprint = Fingerprint(absolute);
  if (!fingerprint.ok()) return fingerprint.status();
  model.clear_draft_head();
  v1::DraftModel& draft = *configure->mutable_model()->mutable_draft_model();
  *draft.mutable_model() = std::move(model);
  draft.set_folder(absolute.string());
  draft.set_fingerprint(*std::move(fingerprint));
  configure->set_speculation(v1::SPECULATION_DRAFT_MODEL);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChooseByItself(const std::string& folder,
                                           v1::ConfigureRequest* configure) {
  if (const std::string why = scheduler::WhyDraftsMoveBits(
          configure->model(), configure->weight_dtype(), configure->kv_dtype());
      !why.empty()) {
    return absl::StrCat("off (auto: ", why, ")");
  }
  if (configure->model().has_draft_head()) {
    absl::Status head = UseHead(folder, configure);
    if (!head.ok()) return head;
    return "mtp (auto: the model has a head for further tokens)";
  }
  configure->set_speculation(v1::SPECULATION_NGRAM);
  return "ngram (auto: the model has no head for further tokens)";
}

}  // namespace

absl::StatusOr<std::string> ChooseSpeculation(const CoordinatorOptions& options,
                                              const std::string& folder, const Tokenizer& tokenizer,
                                              v1::ConfigureRequest* configure) {
  const std::string& asked = options.speculate;
  configure->set_speculation(v1::SPECULATION_OFF);
  configure->set_max_draft_tokens(options.speculate_tokens);
  if (asked == "off") return "";
  if (asked == "auto") return ChooseByItself(folder, configure);
  if (asked == "ngram") {
    configure->set_speculation(v1::SPECULATION_NGRAM);
    return asked;
  }
  if (asked == "mtp") {
    if (absl::Status head = UseHead(folder, configure); !head.ok()) return head;
    return asked;
  }
  const std::string path = asked.substr(kDraft.size());
  if (absl::Status draft = UseDraftModel(path, tokenizer, configure); !draft.ok())
    return InDraft(path, draft);
  return absl::StrCat("draft model ", configure->model().draft_model().folder());
}

}  // namespace tessera::coordinator
