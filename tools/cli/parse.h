// Command lines parsed with CLI11, wrong ones answered in one line that says what was meant, perhaps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class FormatterBase;
class Validator;
}  // namespace CLI

namespace halfbyte::cli {

// Validators whose messages name the value, the wanted ones and the nearest. For Option::check().
CLI::Validator one_of(std::vector<std::string> names);
CLI::Validator whole_number(std::int64_t smallest, std::int64_t largest);
CLI::Validator number_between(double smallest, double largest);
// "256MiB", "1GB", "300 MB", "65536": a whole number from 1 on, in bytes or with a unit.
CLI::Validator byte_size();

// What byte_size() lets through. Units: bytes.
std::uint64_t parse_bytes(const std::string& text);

std::shared_ptr<CLI::FormatterBase> help_formatter();

// Parses the words after the verb. Returns false when --help was asked for (and printed). Errors: UsageError.
bool parse_words(CLI::App& app, int argc, char** argv);

}  // namespace halfbyte::cli
