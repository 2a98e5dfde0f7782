"""The texts of tests/data/tokenizers: few, short, and awkward. For tokenizer_fixtures.py."""

# One line an idea; together about a kilobyte, since every fixture has the tokens of all of them.
TEXTS = [
    "Hello, world! It's 10:45 o'clock; they'll say \"don't\".",
    "  leading and   runs \t of\r\nspaces \n\n ",
    "naïve cafe\u0301 A\u030angstro\u0308m q\u0307\u0323 \u1e9b\u0323 Straße İI ﬁ Å",
    "北京是首都。東京タワー ｶﾞ ＡＢＣ１２",
    "안녕 \u1100\u1161\u11a8",
    "مرحبا ١٢٣ שָׁלוֹם",
    "नमस्ते क्ष สวัสดี",
    "👨‍👩‍👧 🇩🇪 👍🏽 ❤️",
    "123 4 56789 3.14 ½²ⅷ",
    "user [MASK]  word words <s>the</s> The <|end|>\n\nnext SHIP",
    "a-b--c---d, e_f ... x  -y",
    "zero\u200bwidth\u00a0nbsp\u2003em\u3000wide\u2028line\u0085nel\ufeffbom\u00adshy",
    "bell\x07 esc\x1b del\x7f c1\x9f nul\x00end",
    "\ufffd\ufffe\U0010ffff\ue000",
    "▁piece ▁▁<0x41> <0xE2> ##ing</w> |",
    "a" * 130,
    "ab" * 40 + "!" * 33,
    "low lower lowest newer wider slow",
    "``quoted'' I am , do not . can n't",
    " ", "", "\n", "\t\t", "x ", " x",
]

# Not UTF-8: a lone continuation, an unfinished character, an overlong form, a surrogate, a byte that is none, an end too early.
BROKEN = [b"\x80a", b"\xe2\x82 b", b"\xc0\xaf", b"\xed\xa0\x80", b"ab\xff\xfec", b"x\xf0\x9f\x98"]
