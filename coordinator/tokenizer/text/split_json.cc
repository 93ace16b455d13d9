#include "coordinator/tokenizer/text/split_json.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "third_party/absl/str_cat.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

// A document as it is read.
template <typename Document>
class Builder {
 public:
  void Key(const std::string& key) { slot_ = &(*open_.back())[key]; }
  Document* Put(Document value) {
    Document* place = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(nullptr);
      place = &open_.back()->back();
    } else if (!open_.empty()) {
      place = slot_;
    }
    *place = std::move(value);
    return place;
  }
  void Open(Document empty) { open_.push_back(Put(std::move(empty))); }
  void Close() { open_.pop_back(); }
  Document Take() { return std::move(root_); }

 private:
  Document root_;
  std::vector<Document*> open_;  // containers, from the root down
  Document* slot_ = nullptr;     // of the member that was named last
};

// nlohmann's reader tells it what it finds.
class Splitter final : public nlohmann::json_sax<Json> {
 public:
  explicit Splitter(std::initializer_list<std::string_view> ordered_members)
      : ordered_members_(ordered_members) {}

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool value) override { return Scalar(value); }
  bool number_integer(int64_t value) override { return Scalar(value); }
  bool number_unsigned(uint64_t value) override { return Scalar(value); }
  bool number_float(double value, const std::string&) override { return Scalar(value); }
  bool string(std::string& value) override { return Scalar(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::value_t::object); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::value_t::array); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    if (counts_.size() == 1) in_ordered_ = IsOrdered(name);
    all_.Key(name);
    if (!in_ordered_) return true;
    too_many_ = counts_.size() > 1 && ++counts_.back() > kMaxOrderedMembers;
    ordered_.Key(name);
    return !too_many_;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    error_ = error.what();
    return false;
  }

  bool too_many() const { return too_many_; }
  const std::string& error() const { return error_; }
  SplitJson Take() { return {all_.Take(), ordered_.Take()}; }

 private:
  bool IsOrdered(const std::string& name) const {
    return std::find(ordered_members_.begin(), ordered_members_.end(), name) !=
           ordered_members_.end();
  }

  template <typename Value>
  bool Scalar(Value value) {
    if (in_ordered_) ordered_.Put(nlohmann::ordered_json(value));
    all_.Put(Json(std::move(value)));
    return true;
  }

  bool Open(Json::value_t kind) {
    all_.Open(Json(kind));
    if (in_ordered_ || counts_.empty()) ordered_.Open(nlohmann::ordered_json(kind));
    counts_.push_back(0);
    return true;
  }

  bool Close() {
    counts_.pop_back();
    all_.Close();
    if (in_ordered_ || counts_.empty()) ordered_.Close();
    return true;
  }

  const std::vector<std::string_view> ordered_members_;
  Builder<Json> all_;
  Builder<nlohmann::ordered_json> ordered_;
  std::vector<int> counts_;  // members so far of each open container
  bool in_ordered_ = false;  // the member at the top that is being read
  bool too_many_ = false;
  std::string error_;
};

}  // namespace

absl::StatusOr<SplitJson> ParseSplit(std::string_view text, std::string_view name,
                                     const JsonLimits& limits,
                                     std::initializer_list<std::string_view> ordered_members) {
  if (absl::Status shape = CheckJsonShape(text, name, limits); !shape.ok()) return shape;
  Splitter splitter(ordered_members);
  if (!Json::sax_parse(text, &splitter)) {
    if (!splitter.too_many()) return NotJson(name, splitter.error());
    return absl::OutOfRangeError(
        StrCat(name, ": an object of more than ", kMaxOrderedMembers, " members"));
  }
  SplitJson split = splitter.Take();
  if (split.all.is_object()) return split;
  return absl::InvalidArgumentError(StrCat(name, " must be a JSON object"));
}

}  // namespace tessera::coordinator
