// What Python's methods of strings and jinja2's filters do to texts; every byte keeps its origin.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/chat/jinja/heap.h"
#include "models/chat/jinja/text.h"

namespace halfbyte::models::jinja {

enum class Side { kLeft, kRight, kBoth };

// Without the characters of this set at the ends; null: without white space.
Text stripped(const Text& text, const std::string* characters, Side side);

// For HTML, as markupsafe does it.
Text escaped(const Text& text);

// Up to `most` times from the left; -1: all.
Text replaced(Heap& heap, const Text& text, const Text& old, const Text& with, std::int64_t most);
// At `separator`, which is not empty.
std::vector<Text> split_at(Heap& heap, const Text& text, const Text& separator, std::int64_t most);
std::vector<Text> split_at_last(Heap& heap, const Text& text, const Text& separator, std::int64_t most);
// At white space; what is left after `most` parts keeps its other end.
std::vector<Text> split_at_blanks(Heap& heap, const Text& text, std::int64_t most);
std::vector<Text> split_at_last_blanks(Heap& heap, const Text& text, std::int64_t most);
std::vector<Text> split_lines(Heap& heap, const Text& text, bool keeps_ends);

}  // namespace halfbyte::models::jinja
