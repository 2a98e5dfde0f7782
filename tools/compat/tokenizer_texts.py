"""Texts to compare tokenizers on: lines that people write, and random ones, valid and invalid UTF-8. For tokenizers_check.py."""
import pathlib
import random
import sysconfig

LINES = """Hello world
  leading and   runs   of spaces\x20
tabs\tand\vother\fcontrol\x07characters\x1b[0m
I'll we've THEY'RE can't DON'T it'S i'd 'tis rock'n'roll o'clock ''s
12345 1 22 333 4444 3.14159 1,000,000 0x1F 1e-9 ١٢٣ १२३ ⅷ ½ ²
naïve café résumé Ångström coöperate Straße İstanbul ıI ǅ ﬁ ﬀ ſ
北京是中华人民共和国的首都。上海、广州和深圳也很大！
東京タワーは333メートルです。カタカナ、ひらがな、漢字。ｶﾞｷﾞ
안녕하세요 세계! 대한민국 서울특별시 한글
مرحبا بالعالم، كيف حالك اليوم؟ السَّلامُ عَلَيْكُمْ ﷺ
שלום עולם! שָׁלוֹם
Привет, мир! Как дела? Ёлка й
Γειά σου Κόσμε ΆΈΉΊΌΎΏ ςσΣ
नमस्ते दुनिया क्षत्रिय हिन्दी
สวัสดีชาวโลก ภาษาไทยไม่มีเว้นวรรค
😀😃👍🏽👨‍👩‍👧‍👦🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿❤️ ☺︎ 🫠
def f(x):\r\n\tif x != 0:\r\n\t\treturn x**2  # square\r\n    else:\n        return None\n\n\n
for (int i = 0; i < n; ++i) { a[i] += b[i] * c; }  // loop
<s> </s> <unk> <pad> <|endoftext|> <|im_start|>user\nhi<|im_end|>\n<0x41> ▁ ▁▁x x▁y
<s><s></s>text</s> text <s>text
e\u0301 e\u0301\u0327 e\u0327\u0301 q\u0307\u0323 \u1e9b\u0323 \u0344 \u212b \u2126 \uac00\u11a8 \u1100\u1161\u11a8 a\u0315\u0300\u05ae\u0300b
\u00a0nbsp\u00a0\u2003em\u3000wide\u2028line\u2029par\u0085nel\ufeffbom\u200bzw\u200dj\u00adshy
!!! ??? ... --- *** ~~~ ``quoted'' "q" «g» „d" … — – ¿¡ @#$%^&*()_+{}[]|\\:;<>,./
https://example.org/path?query=1&b=%20#frag user@example.org C:\\Users\\x
supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
\x20
\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20\x20
a\x20
\x20a
\n
\n\n\x20\n
\t
\ufffd \ufffe \U0010ffff \ue000 \U000e0001
x""".split("\n")
LINES += ["\n".join(LINES), "\n\n \n", "\r\n\r\n", " \n x", "a\n\nb", "\n a", "x \n\n\n  y", "\u2028\n", "\x0b\x0c\r"]

SPACES = [*range(9, 14), 28, 29, 30, 31, 32, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]
# (weight, code points)
POOLS = [
    (30, [*range(97, 123)]), (6, [*range(65, 91)]), (8, [*range(33, 65)]), (10, SPACES), (6, [*range(0xA1, 0x250)]),
    (6, [*range(0x300, 0x370), *range(0x483, 0x488), *range(0x591, 0x5BE), *range(0x1AB0, 0x1AC0), *range(0x20D0, 0x20F1), *range(0xFE20, 0xFE30)]),
    (4, [*range(0x370, 0x530)]), (4, [*range(0x5D0, 0x700)]), (4, [*range(0x900, 0xE80)]), (3, [*range(0x1100, 0x1200), *range(0xA960, 0xA97D)]),
    (5, [*range(0xAC00, 0xD7A4)]), (6, [*range(0x4E00, 0x9FA6)]), (4, [*range(0x3041, 0x3100)]), (3, [*range(0x1E00, 0x2000)]),
    (4, [*range(0x2010, 0x2C00)]), (3, [*range(0xF900, 0xFB50)]), (3, [*range(0xFB50, 0xFE00)]), (3, [*range(0xFE30, 0xFFF0)]),
    (4, [*range(0x1F300, 0x1F700), 0x200D, 0xFE0F, *range(0x1F3FB, 0x1F400), *range(0x1F1E6, 0x1F200)]), (2, [*range(0x1D100, 0x1D800)]),
    (2, [*range(1, 32), *range(127, 160)]), (2, [*range(0x20000, 0x20100), *range(0x2F800, 0x2FA1E)]),
    (4, [*range(0x80, 0xD800), *range(0xE000, 0x10000)]), (3, [*range(0x10000, 0x20000)]), (2, [*range(0x20000, 0x110000, 7)]),
]
SNIPPETS = ["'s", "'S", "'ll", "'LL", "'ve", "'ſ", " the ", " and", "  ", "\n\n", "\r\n", " \n", "\t\t", "▁", "▁▁", "...", "##", "<0x0A>", "123", "1234567",
            "<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "[CLS]", "[MASK]", " <s>", "</s> ", "<s", "s>", "<|im_", "word", "WORD", "Word"]


def random_text(source, characters):
    """Words of one sort each, with snippets and special tokens between. No zero character."""
    weights = [weight for weight, _ in POOLS]
    out, length = [], 0
    while length < characters:
        if source.random() < 0.15:
            out.append(source.choice(SNIPPETS))
        else:
            pool = source.choices(POOLS, weights)[0][1]
            out.append("".join(map(chr, source.choices(pool, k=source.randint(1, 8)))))
            if source.random() < 0.3:
                out.append(" ")
        length += len(out[-1])
    return "".join(out)


BROKEN = [b"\x80", b"\xbf\xbf", b"\xc0\xaf", b"\xc3", b"\xe2\x82", b"\xe2", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xf0\x80\x80\xaf",
          b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xfe", b"\xff", b"\xe0\x80\x80", b"\xc1\xbf", b"\xf8\x88\x80\x80\x80"]


def broken(source, data):
    """Bytes with holes, foreign bytes and sequences that are no UTF-8. No zero byte."""
    data = bytearray(data)
    for _ in range(1 + len(data) // 40):
        at = source.randrange(len(data) + 1)
        choice = source.random()
        if choice < 0.4:
            data[at:at] = source.choice(BROKEN)
        elif choice < 0.7:
            del data[at:at + source.randint(1, 2)]
        else:
            data[at:at] = bytes(source.choices(range(1, 256), k=source.randint(1, 4)))
    return bytes(data)


def random_texts(size_bytes, seed=1):
    """Texts as bytes, half of them valid UTF-8, of 1 to 3000 characters."""
    source, texts, total = random.Random(seed), [], 0
    while total < size_bytes:
        data = random_text(source, int(10 ** source.uniform(0, 3.5))).encode()
        texts.append(broken(source, data) if len(texts) % 2 else data)
        total += len(texts[-1])
    return texts


def training_texts():
    """English, Python and the lines above, enough of each for some thousand tokens."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    texts = [path.read_text(encoding="utf-8") for path in sorted(library.glob("*.py"))[:60]]
    docs = [path.read_text(encoding="utf-8", errors="ignore") for path in sorted(library.glob("**/*.txt"))[:20]]
    source = random.Random(7)
    return texts + docs + LINES * 20 + [random_text(source, 300) for _ in range(200)]
