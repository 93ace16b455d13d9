// String -> id, for look-ups on every word of a text: open addressing, the strings in one block.
// Immutable once filled, thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::coordinator {

class StringIndex {
 public:
  // Room for `strings` strings, none of them empty and no two of them equal.
  explicit StringIndex(size_t strings = 0) {
    size_t slots = 16;
    while (slots < 2 * strings) slots *= 2;
    slots_.resize(slots);
  }

  // Requires a string that is not there yet, at most as many as announced.
  void Add(std::string_view text, int32_t id) {
    const uint64_t hash = Hash(text);
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i].id >= 0) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(text.size()), id,
                 bytes_.size()};
    bytes_.append(text);
  }

  // -1 where the string is not there.
  int32_t Find(std::string_view text) const {
    const uint64_t hash = Hash(text);
    const uint32_t tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & (slots_.size() - 1); slots_[i].id >= 0;
         i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.tag == tag && slot.size == text.size() &&
          std::memcmp(bytes_.data() + slot.offset, text.data(), text.size()) == 0) {
        return slot.id;
      }
    }
    return -1;
  }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t size = 0;
    int32_t id = -1;
    size_t offset = 0;
  };

  // Eight bytes at a time, multiplied and folded; every bit of the text reaches every bit of the
  // result. The tables are made of a model's own vocabulary, so this need not resist an attacker.
  static uint64_t Hash(std::string_view text) {
    uint64_t hash = text.size() * 0x9E3779B97F4A7C15u;
    const char* data = text.data();
    size_t left = text.size();
    for (; left >= 8; left -= 8, data += 8) {
      uint64_t word;
      std::memcpy(&word, data, 8);
      hash = Mix(hash ^ word);
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < left; ++i) tail |= uint64_t{static_cast<uint8_t>(data[i])} << (8 * i);
    return Mix(hash ^ tail);
  }
  static uint64_t Mix(uint64_t value) {
    const auto product =
        static_cast<unsigned __int128>(value ^ 0xD6E8FEB86659FD93u) * 0xA0761D6478BD642Fu;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  std::vector<Slot> slots_;
  std::string bytes_;
};

}  // namespace tessera::coordinator
