// What a for loop iterates over, and the `loop` variable that tells about it.
//
// Items are taken one at a time, and the loop's filter is asked as late as Python asks it, because
// the body may change what the filter sees. Used by one thread; owned by the runtime.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/jinja/values/runtime.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

class LoopItems {
 public:
  using Filter = std::function<absl::StatusOr<bool>(const Value&)>;

  // Fails where `iterable` is none. A null filter takes all items.
  static absl::StatusOr<LoopItems> Make(Runtime& runtime, const Value& iterable, Filter filter);

  // The next item that passes the filter; nothing at the end.
  absl::StatusOr<std::optional<Value>> Next(Runtime& runtime);
  // Known before the end where nothing is filtered and the iterable has a length.
  std::optional<Int> length() const { return length_; }
  // Forgets the rest.
  void Close();

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
  Generator* generator_ = nullptr;  // instead of items_
  Filter filter_;
  std::optional<Int> length_;
};

class Loop : public Object {
 public:
  // Runs the loop again over other items, one level deeper: the text of all its rounds.
  using Recursion = std::function<absl::StatusOr<Value>(const Value& iterable, Int depth0)>;

  // A null recursion: the template cannot call the loop. `depth0` counts the calls around it.
  explicit Loop(LoopItems items, Recursion recursion = nullptr, Int depth0 = 0)
      : items_(std::move(items)), recursion_(std::move(recursion)), depth0_(depth0) {}

  // Moves to the next item; false at the end.
  absl::StatusOr<bool> Advance(Runtime& runtime);
  const Value& current() const { return current_; }
  // The loop is over, though a namespace may still hold this.
  void Close() { items_.Close(); }

  std::string_view TypeName() const override { return "LoopContext"; }
  bool Callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override;
  absl::StatusOr<std::optional<Value>> Attribute(Runtime& runtime, std::string_view name) override;
  absl::StatusOr<Text> Repr(Runtime& runtime) override;

  absl::StatusOr<Value> Cycle(Runtime& runtime, const Arguments& arguments);
  absl::StatusOr<Value> Changed(Runtime& runtime, const Arguments& arguments);

 private:
  absl::StatusOr<Int> Length(Runtime& runtime);
  absl::Status Peek(Runtime& runtime);

  LoopItems items_;
  Recursion recursion_;
  Int depth0_ = 0;
  Int index0_ = -1;
  Value current_;
  Value before_;
  std::vector<Value> ahead_;  // items already taken from items_, the next one last
  std::optional<Int> length_;
  std::optional<Value> last_changed_;
};

}  // namespace tessera::coordinator::jinja
