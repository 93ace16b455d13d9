// One rendering's state below the language: its budget, the objects it has made, the clock it was
// given; and how functions, filters and methods receive arguments.
//
// Used by one thread. Everything that can grow (strings, containers, work) is charged here, so that
// no template can use more than its limits; the errors name the limit.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/jinja/values/chat_template_limits.h"
#include "coordinator/jinja/values/value.h"

namespace tessera::coordinator::jinja {

class Generator;
class Namespace;
class Runtime;

// How deeply containers may nest.
inline constexpr int kMaxValueDepth = 200;
// How deeply expressions and statements may be evaluated inside each other, macro calls included.
// At most 2 MB of stack are used, 5 MB under AddressSanitizer.
inline constexpr int kMaxCallDepth = 500;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

// Something with state or behaviour. Owned by the Runtime.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view TypeName() const = 0;
  virtual bool Truthy() const { return true; }
  virtual bool Callable() const { return false; }
  // The object as what templates treat apart; null: it is none.
  virtual Generator* generator() { return nullptr; }
  virtual Namespace* name_space() { return nullptr; }
  virtual absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments);
  // The attribute `name`, if there is one.
  virtual absl::StatusOr<std::optional<Value>> Attribute(Runtime& runtime, std::string_view name);
  // Python's repr.
  virtual absl::StatusOr<Text> Repr(Runtime& runtime);
};

// What map, select, reverse and the like return: items that are handed out once.
class Generator : public Object {
 public:
  explicit Generator(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view TypeName() const override { return "generator"; }
  Generator* generator() override { return this; }
  // Null at the end.
  const Value* Next() { return position_ < items_.size() ? &items_[position_++] : nullptr; }
  std::vector<Value> Rest();

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
};

class Runtime {
 public:
  Runtime(const RenderLimits& limits, int64_t now_unix_seconds)
      : limits_(limits), now_unix_seconds_(now_unix_seconds) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int64_t now_unix_seconds() const { return now_unix_seconds_; }

  // Charges `count` units of work.
  absl::Status Step(int64_t count = 1);
  // Charges reading or writing of so many bytes.
  absl::Status Touch(size_t size_bytes);
  // Refuses a string of that size; for use before or while one is made.
  absl::Status CheckSize(size_t size_bytes) const;

  absl::StatusOr<Value> NewString(Text text);
  absl::StatusOr<Value> NewList(std::vector<Value> items);
  absl::StatusOr<Value> NewTuple(std::vector<Value> items);
  absl::StatusOr<Value> NewDict(Dict dict);
  absl::StatusOr<Value> NewGenerator(std::vector<Value> items);

  template <typename T, typename... Args>
  absl::StatusOr<T*> NewObject(Args&&... args) {
    if (absl::Status status = Touch(sizeof(T)); !status.ok()) {
      return status;
    }
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* borrowed = object.get();
    objects_.push_back(std::move(object));
    return borrowed;
  }

  // One level of recursion for as long as it lives; check ok() before going on.
  class Level {
   public:
    explicit Level(Runtime& runtime) : runtime_(runtime) { ++runtime_.depth_; }
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    bool ok() const { return runtime_.depth_ <= kMaxCallDepth; }

   private:
    Runtime& runtime_;
  };
  static absl::Status TooDeep();

 private:
  absl::StatusOr<std::shared_ptr<const Sequence>> NewSequence(std::vector<Value> items);

  const RenderLimits limits_;
  const int64_t now_unix_seconds_;
  int64_t steps_ = 0;
  int64_t touched_bytes_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Arguments matched to parameter names, as Python does it.
class Bound {
 public:
  static constexpr size_t kMaxParameters = 5;

  // Fails where one is unknown, given twice or one too many, or one of the first `required`
  // missing.
  static absl::StatusOr<Bound> To(std::string_view function, const Arguments& arguments,
                                  std::initializer_list<std::string_view> parameters,
                                  size_t required = 0);

  bool Has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }
  // The argument or, where it was not given, the default.
  absl::StatusOr<Int> Integer(size_t i, Int fallback) const;
  bool Boolean(size_t i, bool fallback) const { return Has(i) ? values_[i]->Truthy() : fallback; }
  // Absent and None alike give null.
  const Value* Optional(size_t i) const {
    return Has(i) && !values_[i]->is_none() ? values_[i] : nullptr;
  }
  absl::StatusOr<const Text*> String(size_t i) const;

 private:
  std::string function_;
  std::array<std::string_view, kMaxParameters> names_;
  std::array<const Value*, kMaxParameters> values_{};
};

}  // namespace tessera::coordinator::jinja
