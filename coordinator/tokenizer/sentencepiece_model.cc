#include "coordinator/tokenizer/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <exception>

namespace tessera::coordinator {
namespace {

class Model final : public SentencePieceModel {
 public:
  sentencepiece::SentencePieceProcessor& processor() { return processor_; }

  std::vector<int> Encode(std::string_view text) const override {
    std::vector<int> ids;
    // Fails only without a model.
    processor_.Encode({text.data(), text.size()}, &ids).IgnoreError();
    return ids;
  }
  int PieceToId(const std::string& piece) const override { return processor_.PieceToId(piece); }
  std::string IdToPiece(int id) const override {
    // The library does not check the range.
    return id >= 0 && id < GetPieceSize() ? processor_.IdToPiece(id) : std::string();
  }
  int GetPieceSize() const override { return processor_.GetPieceSize(); }
  int unk_id() const override { return processor_.unk_id(); }
  int bos_id() const override { return processor_.bos_id(); }
  int eos_id() const override { return processor_.eos_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::Load(std::string_view serialized,
                                                             std::string* error) {
  auto model = std::make_unique<Model>();
  // The trie below it throws on pieces that it cannot hold, such as one that begins with a zero.
  try {
    const auto loaded =
        model->processor().LoadFromSerializedProto({serialized.data(), serialized.size()});
    if (loaded.ok()) return model;
    *error = loaded.error_message();
  } catch (const std::exception& thrown) {
    *error = thrown.what();
  }
  return nullptr;
}

}  // namespace tessera::coordinator
