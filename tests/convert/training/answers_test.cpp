// What of conversations is scored, template by template, with a tokenizer of single bytes.
#include "convert/training/answers.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/messages.h"
#include "tests/catch.h"
#include "tests/models/chat/chat_folder.h"

namespace halfbyte::convert {
namespace {

using models::ByteTokenizer;
using models::Conversation;
using models::Folder;
using models::Speaker;

const Conversation kTalk = {{Speaker::kSystem, "S"},
                            {Speaker::kUser, "Hi"},
                            {Speaker::kAssistant, "Hello"},
                            {Speaker::kUser, "So?"},
                            {Speaker::kAssistant, "Bye"}};

// Each run of scored tokens in brackets, as they are spelt.
std::string shown(const Document& document, const models::Tokenizer& tokenizer) {
  std::string out;
  bool was_scored = false;
  REQUIRE(document.labels.size() == document.ids.size());
  for (std::size_t i = 0; i < document.ids.size(); ++i) {
    const bool is_scored = document.labels[i] != training::kUnscored;
    if (is_scored) CHECK(document.labels[i] == document.ids[i]);
    if (is_scored != was_scored) out += is_scored ? "[" : "]";
    out += tokenizer.piece(document.ids[i]);
    was_scored = is_scored;
  }
  return out + (was_scored ? "]" : "");
}

std::vector<std::string> shown(const models::ChatTemplate& chat, const ByteTokenizer& tokenizer,
                               const models::ChatInput& input, std::optional<std::int64_t> end = std::nullopt) {
  std::vector<std::string> out;
  for (const Document& document :
       documents_of(input, {.tokenizer = tokenizer, .chat = chat, .stops = chat.stop_tokens(tokenizer), .end = end}))
    out.push_back(shown(document, tokenizer));
  return out;
}

models::ChatTemplate family(const char* name) {
  return models::ChatTemplate(models::FamilyTemplate(*models::find_chat_family(name)));
}

// Tokens that a family's turns are written with.
std::vector<std::string> specials_of(const models::ChatFamily& family) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view one) {
    if (!one.empty() && std::ranges::find(out, one) == out.end()) out.emplace_back(one);
  };
  std::ranges::for_each(family.controls, add);
  std::ranges::for_each(family.stops, add);
  add(family.bos);
  add(family.eos);
  return out;
}

// Those of its tokens that are scored, or that are not.
std::string spelt(const Document& document, const models::Tokenizer& tokenizer, bool is_scored) {
  std::string out;
  for (std::size_t i = 0; i < document.ids.size(); ++i) {
    if ((document.labels[i] != training::kUnscored) == is_scored) out += tokenizer.piece(document.ids[i]);
  }
  return out;
}

// Whether the last token that is scored ends an answer, but for blanks behind it.
bool is_ended(const Document& document, models::TokenIds stops, std::optional<std::int64_t> end) {
  if (end) stops.push_back(*end);
  const auto last = std::ranges::find_if(document.labels.rbegin(), document.labels.rend(), [](std::int64_t label) {
    return label != training::kUnscored && label != ' ' && label != '\n';
  });
  return last != document.labels.rend() && std::ranges::find(stops, *last) != stops.end();
}

const char* const kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

}  // namespace

TEST_CASE("every answer is scored with the token that ends it, and nothing else", "[corpus]") {
  const Folder folder;
  Folder own;
  own.with("chat_template.jinja", kChatml);
  const std::vector<std::string> wanted = {
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Hello<|im_end|>]\n"
      "<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n[Bye<|im_end|>]\n"};
  CHECK(shown(own.load(), own.tokenizer_, models::chat_input_of(kTalk)) == wanted);
  CHECK(shown(family("chatml"), folder.tokenizer_, models::chat_input_of(kTalk)) == wanted);
  const ByteTokenizer llama3({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  CHECK(shown(family("llama3"), llama3, models::chat_input_of({kTalk.begin() + 1, kTalk.end()})) ==
        std::vector<std::string>{
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant"
            "<|end_header_id|>\n\n[Hello<|eot_id|>]<|start_header_id|>user<|end_header_id|>\n\nSo?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[Bye<|eot_id|>]"});
  const ByteTokenizer llama2({"<s>", "</s>"});
  CHECK(shown(family("llama2"), llama2, models::chat_input_of({kTalk.begin() + 1, kTalk.end()})) ==
        std::vector<std::string>{"<s>[INST] Hi [/INST][ Hello </s>]<s>[INST] So? [/INST][ Bye </s>]"});
}

TEST_CASE("of every family's conversations the answers alone are scored, behind what asks for them", "[corpus]") {
  const Conversation talk(kTalk.begin() + 1, kTalk.end());
  for (const models::ChatFamily& row : models::chat_families()) {
    INFO(row.name);
    const ByteTokenizer tokenizer(specials_of(row));
    const models::ChatTemplate chat{models::FamilyTemplate(row)};
    const std::vector<Document> documents = documents_of(
        models::chat_input_of(talk),
        {.tokenizer = tokenizer, .chat = chat, .stops = chat.stop_tokens(tokenizer), .end = tokenizer.id_of(row.eos)});
    std::string scored;
    for (const Document& one : documents) scored += "|" + spelt(one, tokenizer, true);
    for (const char* answer : {"Hello", "Bye"}) {
      CHECK(scored.find(answer) != std::string::npos);
      CHECK(scored.find(answer) == scored.rfind(answer));
    }
    for (const char* question : {"Hi", "So?"}) CHECK(scored.find(question) == std::string::npos);
    const std::string asked = text_of(chat.render(Conversation{talk.front()}, tokenizer));
    CHECK(spelt(documents[0], tokenizer, false).starts_with(asked));
    CHECK(is_ended(documents.back(), chat.stop_tokens(tokenizer), tokenizer.id_of(row.eos)));
  }
}

TEST_CASE("an answer that nothing ends takes what begins the next turn, or the end of a text", "[corpus]") {
  const ByteTokenizer glm({"[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<|endoftext|>"});
  CHECK(
      shown(family("glm4"), glm, models::chat_input_of({kTalk.begin() + 1, kTalk.end()}), glm.id_of("<|endoftext|>")) ==
      std::vector<std::string>{
          "[gMASK]<sop><|user|>\nHi<|assistant|>[\nHello<|user|>]\nSo?<|assistant|>[\nBye<|endoftext|>]"});
  Folder own;
  own.with("chat_template.jinja",
           "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}");
  CHECK(shown(own.load(), own.tokenizer_, models::chat_input_of(kTalk), 257) ==
        std::vector<std::string>{"system: S\nuser: Hi\nassistant: [Hello]\nuser: So?\nassistant: [Bye<|im_end|>]"});
  CHECK(shown(own.load(), own.tokenizer_, models::chat_input_of(kTalk)) ==
        std::vector<std::string>{"system: S\nuser: Hi\nassistant: [Hello]\nuser: So?\nassistant: [Bye]"});
}

TEST_CASE("answers that are written otherwise later on are documents of their own", "[corpus]") {
  const ByteTokenizer qwen3({"<|im_start|>", "<|im_end|>", "<think>"});
  Conversation talk(kTalk.begin() + 1, kTalk.end());
  talk[1].text = "<think>\nhm\n</think>\n\nHello";
  Folder own;  // keeps the reasoning of the last answer alone
  own.with("chat_template.jinja",
           "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content if loop.last else "
           "m.content.split('</think>')[-1].lstrip('\n')) + '<|im_end|>\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  CHECK(shown(own.load(), own.tokenizer_, models::chat_input_of(talk)) ==
        std::vector<std::string>{
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[<think>\nhm\n</think>\n\nHello<|im_end|>]\n",
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n"
            "<|im_start|>assistant\n[Bye<|im_end|>]\n"});
  const ByteTokenizer mistral({"<s>", "</s>", "[INST]", "[/INST]"});  // puts the system text before the last question
  CHECK(shown(family("mistral-tekken"), mistral, models::chat_input_of(kTalk)) ==
        std::vector<std::string>{"<s>[INST]S\n\nHi[/INST][Hello</s>]",
                                 "<s>[INST]Hi[/INST]Hello</s>[INST]S\n\nSo?[/INST][Bye</s>]"});
}

TEST_CASE("calls of tools are answers, and what tools give is none", "[corpus]") {
  Folder own;
  own.with("chat_template.jinja",
           "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content or '' }}"
           "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  const auto input = models::chat_input_of(nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
          {"role": "tool", "content": "1"}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "."}]})"));
  REQUIRE(input);
  CHECK(shown(own.load(), own.tokenizer_, *input) ==
        std::vector<std::string>{
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[f<|im_end|>]\n<|im_start|>tool\n1<|im_end|>\n"
            "<|im_start|>assistant\n[a<|im_end|>]\n<|im_start|>user\n.<|im_end|>\n"});
}

TEST_CASE("a conversation whose answers nothing asks for is refused", "[corpus]") {
  Folder thinks;
  thinks.with("chat_template.jinja", std::string(kChatml) + "{% if add_generation_prompt %}{{ '<think>' }}{% endif %}");
  const auto refusal = [&](const Conversation& talk) {
    try {
      return shown(thinks.load(), thinks.tokenizer_, models::chat_input_of(talk)).front();
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kCorrupt);
      return std::string(error.what());
    }
  };
  CHECK(refusal(kTalk).find("does not write message 3 behind what asks for an answer") != std::string::npos);
  CHECK(refusal({{Speaker::kAssistant, "Hello"}}).find("an answer stands first") != std::string::npos);
  CHECK(refusal({{Speaker::kUser, "Hi"}}) == "<|im_start|>user\nHi<|im_end|>\n");
}

}  // namespace halfbyte::convert
