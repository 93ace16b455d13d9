// libsentencepiece beside the process's own protobuf; see
// third_party/sentencepiece/hide_protobuf.py.

#include <google/protobuf/descriptor.pb.h>
#include <sentencepiece_processor.h>

#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tests {
namespace {

// sentencepiece_model.proto: field 1 of the model is a piece {1: text, 2: score, 3: type}.
std::string Piece(std::string_view text, char type) {
  std::string piece;
  piece += '\x0a';
  piece += static_cast<char>(text.size());
  piece += text;
  piece += '\x18';
  piece += type;
  return std::string("\x0a") + static_cast<char>(piece.size()) + piece;
}

std::string UnigramModel() {
  constexpr char kNormal = 1;
  constexpr char kUnknown = 2;
  constexpr char kControl = 3;
  std::string model = Piece("<unk>", kUnknown) + Piece("<s>", kControl) + Piece("</s>", kControl);
  for (const std::string_view text : {"\xe2\x96\x81", "a", "b", "ab"}) {
    model += Piece(text, kNormal);
  }
  return model;
}

TEST_CASE("sentencepiece and protobuf work in one process") {
  google::protobuf::FileDescriptorProto message;
  message.set_name("before");
  const std::string bytes = message.SerializeAsString();

  sentencepiece::SentencePieceProcessor processor;
  REQUIRE(processor.LoadFromSerializedProto(UnigramModel()).ok());
  std::vector<std::string> pieces;
  REQUIRE(processor.Encode("ab", &pieces).ok());
  CHECK(pieces == std::vector<std::string>{"\xe2\x96\x81", "ab"});
  CHECK_FALSE(processor.LoadFromSerializedProto("no model").ok());

  google::protobuf::FileDescriptorProto copy;
  REQUIRE(copy.ParseFromString(bytes));
  CHECK(copy.name() == "before");
  CHECK(copy.GetDescriptor()->full_name() == "google.protobuf.FileDescriptorProto");
}

}  // namespace
}  // namespace tessera::tests
