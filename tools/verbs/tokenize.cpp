// halfbyte tokenize CKPT --text TEXT | --file FILE
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <halfbyte/error.h>

#include "loader/files/tokenizer_directory.h"
#include "models/tokenizers/tokenizer.h"
#include "tools/cli/errors.h"
#include "tools/cli/no_tokenizer.h"
#include "tools/cli/parse.h"
#include "tools/cli/read_input.h"
#include "tools/verbs/token_output.h"
#include "tools/verbs/token_text.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

using models::SpecialTokens;
using models::TokenIds;
using models::Tokenizer;

struct Words {
  std::string checkpoint;
  std::string text;
  std::string file;
  bool is_decode = false;
  bool is_no_special = false;
  bool is_special_as_text = false;
  bool is_lines = false;
  bool is_null = false;
  bool is_pieces = false;
  bool is_count = false;
};

void declare(OptionParser& parser, Words& words) {
  parser.add_checkpoint("CKPT", words.checkpoint, "model whose tokenizer is read", CheckpointUse::kTokenizer)
      .required();
  parser.add_option("--text", words.text, "text to split into tokens").type_name("TEXT");
  parser.add_option("--file", words.file, "file with the text; - is standard input")
      .type_name("FILE")
      .excludes("--text");
  parser.add_flag("--decode", words.is_decode,
                  "make text of token ids: 1,306,4658 or 1 306 4658; from standard input too");
  parser.add_flag("--no-special", words.is_no_special,
                  "the text alone, without what stands before and after every text");
  parser.add_flag("--special-as-text", words.is_special_as_text,
                  "read </s> in the text as four characters; --decode: write special tokens out");
  parser.add_flag("--pieces", words.is_pieces, "a line a token: id, bytes of the text, piece");
  parser.add_flag("--count", words.is_count, "only how many tokens there are").excludes("--pieces");
  parser.add_flag("--lines", words.is_lines, "every line is a text by itself, and gives a line");
  parser.add_flag("-0,--null", words.is_null, "--lines, but texts (--decode: results) end with a zero byte")
      .needs("--lines");
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& checkpoint) {
  namespace fs = std::filesystem;
  const fs::path path(checkpoint);
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw Error(ErrorCode::kNotFound,
                printable(checkpoint) + ": there is no such directory; download the checkpoint first");
  }
  auto tokenizer = models::load_tokenizer(files::TokenizerDirectory(path).path());
  if (tokenizer) return tokenizer;
  fail_no_tokenizer(checkpoint, "copy it from the original checkpoint");
}

void encode_one(const Tokenizer& tokenizer, const Words& words, std::string_view text, TokenPrinter& printer) {
  const auto special = words.is_special_as_text ? SpecialTokens::kAsText : SpecialTokens::kParse;
  const TokenIds none;
  const TokenIds& prefix = words.is_no_special ? none : tokenizer.prefix();
  const TokenIds& suffix = words.is_no_special ? none : tokenizer.suffix();
  if (printer.wants_spans()) {
    printer.print({prefix, tokenizer.encode_spans(text, special), suffix, text.size()});
  } else {
    printer.print(prefix, tokenizer.encode(text, special), suffix);
  }
}

void decode_one(const Tokenizer& tokenizer, const Words& words, std::string_view list, TokenPrinter& printer) {
  printer.print_text(tokenizer.decode(parse_ids(list), /*skip_special=*/!words.is_special_as_text));
}

TokenView view_of(const Words& words) {
  if (words.is_pieces) return TokenView::kPieces;
  return words.is_count ? TokenView::kCount : TokenView::kIds;
}

ExitStatus run(const Words& words, bool has_text, const CommonOptions& common) {
  if (!has_text && words.file.empty() && !words.is_decode)
    throw UsageError("which text? give --text TEXT or --file FILE (- is standard input)");
  const auto tokenizer = open_tokenizer(words.checkpoint);
  const std::string text = has_text ? words.text : read_input(words.file.empty() ? "-" : words.file);
  TokenPrinter printer(*tokenizer, view_of(words), common.is_json, words.is_null ? '\0' : '\n');
  const auto act = words.is_decode ? decode_one : encode_one;
  if (!words.is_lines) {
    act(*tokenizer, words, text, printer);
  } else {
    for_each_line(text, words.is_null ? '\0' : '\n',
                  [&](std::string_view line) { act(*tokenizer, words, line, printer); });
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_tokenize(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common, &parser] { return run(*words, parser.is_given("--text"), common); };
}

}  // namespace halfbyte::cli
