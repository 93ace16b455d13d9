// libsentencepiece behind a plain interface: its header and Abseil's cannot stand in one file.
//
// Immutable after Load; the other methods may be called from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::coordinator {

class SentencePieceModel {
 public:
  // `serialized` is the content of a tokenizer.model. Null where the library refuses it; *error
  // then says why.
  static std::unique_ptr<SentencePieceModel> Load(std::string_view serialized, std::string* error);
  virtual ~SentencePieceModel() = default;

  virtual std::vector<int> Encode(std::string_view text) const = 0;
  virtual int PieceToId(const std::string& piece) const = 0;
  virtual std::string IdToPiece(int id) const = 0;
  virtual int GetPieceSize() const = 0;
  // -1 where the model has none.
  virtual int unk_id() const = 0;
  virtual int bos_id() const = 0;
  virtual int eos_id() const = 0;
};

}  // namespace tessera::coordinator
