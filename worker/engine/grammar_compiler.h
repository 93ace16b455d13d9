// Compiles the grammars of submissions off the engine's thread, one after the other, and keeps what
// it compiled within a bound of bytes, the last used longest.
//
// A compile cannot be stopped. One that takes more than max_core_seconds of a core, or does not get
// them within max_seconds, is given up: whoever waits for it is refused (ResourceExhausted), its
// thread goes on, as long as TokenGrammar::Compile takes (kMaxCompileSeconds), and the grammar that
// comes of it is kept for those who ask later. While max_given_up of those go on, what is not kept
// is refused (ResourceExhausted). No refusal is kept.
//
// Thread rule: thread-safe. `done` runs on a thread of this object or within Start, and never after
// the destructor has returned; it must not call back into this object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "third_party/xgrammar/token_grammar.h"

namespace tessera::worker {

struct GrammarCompilerOptions {
  int64_t max_kept_bytes = int64_t{256} << 20;  // as the grammars count themselves
  double max_core_seconds = 3;
  double max_seconds = 10;
  int max_given_up = 2;
  size_t max_queued = 256;  // more are refused
};

class GrammarCompiler {
 public:
  using Compiled = absl::StatusOr<std::shared_ptr<const TokenGrammar>>;
  using Compile = std::function<Compiled(const std::string& grammar)>;
  using Done = std::function<void(const Compiled&)>;

  explicit GrammarCompiler(Compile compile, const GrammarCompilerOptions& options = {});
  // Waits for no compile. Whoever still waits for one hears nothing.
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Calls `done` once.
  void Start(const std::string& grammar, Done done);

  int64_t kept_bytes() const;

 private:
  struct State;

  const std::shared_ptr<State> state_;  // shared with the threads of compiles
  std::thread keeper_;
};

// Compiles for a model of `size` ids that have these bytes, which the first compile prepares.
GrammarCompiler::Compile CompileFor(std::vector<std::string> vocabulary, int64_t size);

}  // namespace tessera::worker
