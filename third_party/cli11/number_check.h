// Checks of numbers given as flags, with texts that people can read: CLI11's own print the range of
// a double in 300 digits.
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>

namespace tessera {

struct NumberCheck {
  // What is wrong with the text, or "".
  std::function<std::string(const std::string& text)> error;
  // For --help, such as "NUMBER >= 0".
  std::string description;
};

// A number from 0 up.
NumberCheck NonNegative();
// A number above 0.
NumberCheck Positive();
// A whole number from `least` up.
NumberCheck WholeFrom(long long least);
// A number from `least` to `most`, both allowed.
NumberCheck Between(double least, double most);

}  // namespace tessera
