// Tells what a model thinks aloud from what it answers.
#pragma once

#include <string>

namespace halfbyte::server {

// A thinking part stands at the beginning, between <think> and </think>.
class ThinkingSplitter {
 public:
  // `is_open`: the prompt's end has begun one.
  explicit ThinkingSplitter(bool is_open) : state_(is_open ? State::kThinking : State::kBeginning) {}

  struct Parts {
    std::string thinking, answer;
  };
  Parts push(const std::string& piece);
  Parts finish();

 private:
  enum class State { kBeginning, kThinking, kBetween, kAnswer };
  State state_;
  std::string held_;
};

}  // namespace halfbyte::server
