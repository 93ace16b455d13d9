#include "coordinator/jinja/loop.h"

#include <algorithm>

#include "coordinator/jinja/globals.h"
#include "coordinator/jinja/values/access.h"
#include "coordinator/jinja/values/compare.h"
#include "coordinator/jinja/values/print.h"
#include "coordinator/jinja/values/status.h"
#include "third_party/absl/str_cat.h"

namespace tessera::coordinator::jinja {

absl::StatusOr<LoopItems> LoopItems::Make(Runtime& runtime, const Value& iterable, Filter filter) {
  LoopItems items;
  if (iterable.is_object()) {
    items.generator_ = iterable.object()->generator();
  }
  if (items.generator_ == nullptr) {
    JINJA_ASSIGN_OR_RETURN(items.items_, ToItems(runtime, iterable));
    if (filter == nullptr) {
      items.length_ = static_cast<Int>(items.items_.size());
    }
  }
  items.filter_ = std::move(filter);
  return items;
}

absl::StatusOr<std::optional<Value>> LoopItems::Next(Runtime& runtime) {
  while (true) {
    JINJA_RETURN_IF_ERROR(runtime.Step());
    const Value* item = generator_ != nullptr       ? generator_->Next()
                        : position_ < items_.size() ? &items_[position_++]
                                                    : nullptr;
    if (item == nullptr) {
      return std::optional<Value>();
    }
    bool passes = true;
    if (filter_ != nullptr) {
      JINJA_ASSIGN_OR_RETURN(passes, filter_(*item));
    }
    if (passes) {
      return std::optional<Value>(*item);
    }
  }
}

void LoopItems::Close() {
  items_.clear();
  position_ = 0;
  generator_ = nullptr;
  filter_ = nullptr;
}

absl::StatusOr<bool> Loop::Advance(Runtime& runtime) {
  std::optional<Value> next;
  if (!ahead_.empty()) {
    next = std::move(ahead_.back());
    ahead_.pop_back();
  } else {
    JINJA_ASSIGN_OR_RETURN(next, items_.Next(runtime));
  }
  if (!next.has_value()) {
    return false;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = *std::move(next);
  return true;
}

absl::Status Loop::Peek(Runtime& runtime) {
  if (ahead_.empty()) {
    JINJA_ASSIGN_OR_RETURN(std::optional<Value> next, items_.Next(runtime));
    if (next.has_value()) {
      ahead_.push_back(*std::move(next));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Int> Loop::Length(Runtime& runtime) {
  if (items_.length().has_value()) {
    return *items_.length();
  }
  if (!length_.has_value()) {
    std::vector<Value> rest;
    while (true) {
      JINJA_ASSIGN_OR_RETURN(std::optional<Value> next, items_.Next(runtime));
      if (!next.has_value()) {
        break;
      }
      rest.push_back(*std::move(next));
    }
    length_ = index0_ + 1 + static_cast<Int>(ahead_.size() + rest.size());
    std::reverse(rest.begin(), rest.end());
    ahead_.insert(ahead_.begin(), rest.begin(), rest.end());
  }
  return *length_;
}

absl::StatusOr<std::optional<Value>> Loop::Attribute(Runtime& runtime, std::string_view name) {
  std::optional<Value> value;
  if (name == "index") {
    value = Value::Integer(index0_ + 1);
  } else if (name == "index0") {
    value = Value::Integer(index0_);
  } else if (name == "first") {
    value = Value::Bool(index0_ == 0);
  } else if (name == "depth" || name == "depth0") {
    value = Value::Integer(name == "depth" ? depth0_ + 1 : depth0_);
  } else if (name == "previtem") {
    value = index0_ == 0 ? Value::Undefined("there is no previous item") : before_;
  } else if (name == "last" || name == "nextitem") {
    JINJA_RETURN_IF_ERROR(Peek(runtime));
    value = name == "last"   ? Value::Bool(ahead_.empty())
            : ahead_.empty() ? Value::Undefined("there is no next item")
                             : ahead_.back();
  } else if (name == "length" || name == "revindex" || name == "revindex0") {
    JINJA_ASSIGN_OR_RETURN(const Int length, Length(runtime));
    value = Value::Integer(name == "length"     ? length
                           : name == "revindex" ? length - index0_
                                                : length - index0_ - 1);
  } else if (name == "cycle") {
    return NewObjectMethod(runtime, this, &Loop::Cycle);
  } else if (name == "changed") {
    return NewObjectMethod(runtime, this, &Loop::Changed);
  }
  return value;
}

absl::StatusOr<Value> Loop::Call(Runtime&, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(const Bound bound, Bound::To("loop", arguments, {"iterable"}, 1));
  if (recursion_ == nullptr) {
    return RenderError("a loop that is not marked 'recursive' cannot be called");
  }
  return recursion_(bound[0], depth0_ + 1);
}

absl::StatusOr<Value> Loop::Cycle(Runtime&, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return RenderError("loop.cycle: no items for cycling given");
  }
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

absl::StatusOr<Value> Loop::Changed(Runtime& runtime, const Arguments& arguments) {
  JINJA_ASSIGN_OR_RETURN(Value now, runtime.NewTuple(arguments.positional));
  if (last_changed_.has_value()) {
    JINJA_ASSIGN_OR_RETURN(const bool same, Equals(runtime, *last_changed_, now));
    if (same) {
      return Value::Bool(false);
    }
  }
  last_changed_ = std::move(now);
  return Value::Bool(true);
}

absl::StatusOr<Text> Loop::Repr(Runtime& runtime) {
  JINJA_ASSIGN_OR_RETURN(const Int length, Length(runtime));
  return Text(StrCat("<LoopContext ", IntToString(index0_ + 1), "/", IntToString(length), ">"),
              true);
}

}  // namespace tessera::coordinator::jinja
