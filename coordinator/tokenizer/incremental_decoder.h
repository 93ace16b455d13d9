// Turns token ids into text as they come. The texts of all Append calls and of the Flush that ends
// them, joined, are Tokenizer::Decode of all ids, and each of them is well-formed UTF-8: bytes that
// may still become a character are held back (at most three), bytes that cannot become U+FFFD.
//
// One per stream, not thread-safe; borrows the tokenizer, which must live longer.
#pragma once

#include <cstdint>
#include <string>

#include "coordinator/tokenizer/tokenizer.h"

namespace tessera::coordinator {

class IncrementalDecoder {
 public:
  // `continues_text`: the ids come after other text (a prompt), so that a space that the model's
  // decoder would take off the start of a text is kept.
  explicit IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                              bool continues_text = false);

  // The text that `id` adds; often "" in the middle of a character. Ids outside of the vocabulary
  // add nothing.
  std::string Append(int32_t id);

  // The end of the text: what was held back, as U+FFFD. The decoder then starts again, continuing.
  std::string Flush();

 private:
  void Strip(std::string* text);

  const TokenDecoder* decoder_;
  bool skip_special_tokens_;
  bool first_;
  int strip_left_;
  std::string held_bytes_;
};

}  // namespace tessera::coordinator
