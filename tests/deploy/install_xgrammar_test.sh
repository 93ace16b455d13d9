#!/bin/bash
# deploy/install_xgrammar in a checkout of its own, with a source distribution made here: what it keeps and refuses.
# Offline.
set -u
checkout=$TEST_TMPDIR/checkout
sources=$TEST_TMPDIR/sources
target=$checkout/.cache/xgrammar
failed=0

check() {  # what, command...
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else echo "FAILED: $what"; failed=1; fi
}

mkdir -p "$checkout/deploy" "$sources"
cp deploy/install_xgrammar "$checkout/deploy/"
archive=$sources/xgrammar-0.2.8.tar.gz
install() {
  "$checkout/deploy/install_xgrammar" --sources "$sources" > "$TEST_TMPDIR/out" 2> "$TEST_TMPDIR/err"
}

install
check "a file that is missing" [ $? -eq 1 ]
check "is named" grep -q "there is no xgrammar-0.2.8.tar.gz" "$TEST_TMPDIR/err"

made=$TEST_TMPDIR/xgrammar-0.2.8
mkdir -p "$made"/{cpp/support,include/xgrammar,3rdparty/{picojson,dlpack/include/dlpack,googletest},python}
for file in LICENSE cpp/grammar.cc cpp/support/logging.h include/xgrammar/matcher.h 3rdparty/picojson/picojson.h \
  3rdparty/dlpack/include/dlpack/dlpack.h 3rdparty/googletest/a.cc python/a.py; do
  echo "$file" > "$made/$file"
done
cat > "$made/cpp/grammar_functor.cc" << 'END'
  std::set<std::pair<int32_t, int32_t>> hash_and_target;
    // To keep consistent, we need to sort them with hashes.
        if (!hash_rule_like_edge(info.RuleId(), edge.target)) {
          return {false, 0};
        }
          hash_and_target.insert({static_cast<int32_t>(repeat_hash), edge.target});
END
cat > "$made/include/xgrammar/grammar.h" << 'END'
namespace xgrammar {

struct StructuralTagItem {
END
cat > "$made/cpp/earley_parser.h" << 'END'
  void Enqueue(const ParserState& state) {
  void EnqueueWithoutProcessing(const ParserState& state) {
END
cat > "$made/cpp/earley_parser.cc" << 'END'
  for (const auto& [ref_id, parent_state] : parent_states_map) {
    Scan(state, ch);
END
cat > "$made/cpp/grammar_matcher.cc" << 'END'
    auto adaptive_token_mask_it = adaptive_token_mask_cache.find(state);
      const auto cur_token_idx = *token_it++;
  void Reset() {
    token_length_history.clear();
  return pimpl_->AcceptToken(token_id, debug_print);
  return pimpl_->FillNextTokenBitmask(next_token_bitmask, index, debug_print);
END
echo "  // Ensure max and min are valid unicode value." > "$made/cpp/fsm_builder.cc"
tar -czf "$archive" -C "$TEST_TMPDIR" xgrammar-0.2.8
install
check "another file than the published one" [ $? -eq 1 ]
check "is refused by its hash" grep -qE "SHA-256 is [0-9a-f]{64}, not 8305646f" "$TEST_TMPDIR/err"
check "and nothing is kept" [ -z "$(ls -A "$checkout/.cache")" ]

hash=$(sha256sum "$archive" | cut -c 1-64)
sed -i "s/^SHA256 = .*/SHA256 = \"$hash\"/" "$checkout/deploy/install_xgrammar"
install
check "the published one: 0" [ $? -eq 0 ]
check "what is compiled is there" [ "$(cat "$target/cpp/support/logging.h")" = cpp/support/logging.h ]
check "with the licence" [ -f "$target/LICENSE" ]
check "mended" grep -q "hash_and_target.clear();" "$target/cpp/grammar_functor.cc"
check "with states counted" grep -q "CountState();" "$target/cpp/earley_parser.cc"
check "with classes of UTF-8" grep -q "kWellFormed" "$target/cpp/fsm_builder.cc"
check "with calls that undo what they leave" [ "$(grep -c 'return pimpl_->OrAsBefore' "$target/cpp/grammar_matcher.cc")" = 2 ]
check "and nothing else" [ ! -e "$target/python" ]
check "nor of its parts" [ ! -e "$target/3rdparty/googletest" ]
check "and nothing half made" [ "$(ls "$checkout/.cache")" = xgrammar ]
rm "$archive"
install
check "once is enough" [ $? -eq 0 ]
echo 0.1 > "$target/version"
install
check "but another version is not" [ $? -eq 1 ]
check "and stays" [ "$(cat "$target/version")" = 0.1 ]
exit "$failed"
