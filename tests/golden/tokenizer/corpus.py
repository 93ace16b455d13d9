"""The texts of the tokenizer's golden files: what the tokenizers are trained on, and the hard cases."""

import random

TRAINING = """
The quick brown fox jumps over the lazy dog. A tokenizer that is trained on so little text is small, but its form is real.
When the first light came over the hills, nobody in the village had slept; everyone had been waiting for the river to fall.
It's the people's choice, they've said, and we'll see what I'm told: don't, can't, won't, she'd, you're.
In 1984 there were 12,345 cars and 67.89% of them were older than 10 years; call +49 (0)30 123456-7 at 09:41.
def encode(text: str, *, add_special_tokens: bool = True) -> list[int]:
    ids = [self.vocab[token] for token in self.split(text) if token in self.vocab]
    return [self.bos_id] + ids if add_special_tokens else ids
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // the dot product of two vectors
#include <vector>
template <typename T> class Matrix { public: Matrix(size_t rows, size_t columns); };
SELECT name, count(*) FROM users WHERE age >= 18 GROUP BY name ORDER BY 2 DESC;
Der schnelle braune Fuchs springt über den faulen Hund. Straße, Größe, Übermut, Mädchen.
El veloz murciélago hindú comía feliz cardillo y kiwi. La cigüeña tocaba el saxofón.
Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. L'été, c'est déjà fini.
Съешь же ещё этих мягких французских булок, да выпей чаю. Быстрая лиса прыгает через собаку.
天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。我们今天要去北京，明天去上海。人工智能正在改变世界。
吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。カタカナとひらがなと漢字。
모든 국민은 법 앞에 평등하다. 누구든지 성별·종교 또는 사회적 신분에 의하여 차별을 받지 아니한다.
สวัสดีครับ วันนี้อากาศดีมาก ผมอยากไปตลาดซื้อผลไม้
السلام عليكم، كيف حالك اليوم؟ أنا بخير والحمد لله. مرحبا بالعالم.
नमस्ते दुनिया, आज मौसम बहुत अच्छा है। मैं बाज़ार जा रहा हूँ।
שלום עולם, מה שלומך היום? הכול בסדר.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Καλημέρα κόσμε.
Việt Nam đất nước ta ơi, mênh mông biển lúa đâu trời đẹp hơn.
😀 😃 👍 ❤️ 🎉 🚀 hello 👋 world 🌍
"""

SPECIALS = [
    "<s>",
    "</s>",
    "<unk>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|im_start|>",
    "<|im_end|>",
]

CASES = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\t",
    "\r\n",
    "\r",
    " \n",
    "\n ",
    "a",
    " a",
    "a ",
    "  a  ",
    "\u2581",
    "\u2581a b\u2581",
    "Hello, world!",
    " Hello, world!",
    "Hello  world",
    "Hello   world    again",
    "the the the",
    "The lazy dog's tail",
    "It's they've we'll I'm don't she'd you're",
    "IT'S THEY'VE WE'LL I'M DON'T SHE'D YOU'RE",
    "it\u2019s \u2018quoted\u2019 'tis",
    "it'\u017f o'\u212a",
    "camelCaseAndPascalCase HTTPServerError XMLHttpRequest iOS McDonald",
    "ALLCAPS lower UPPERlower lowerUPPER",
    "1",
    "12",
    "123",
    "1234",
    "12345",
    "1234567890",
    "3.14159",
    "1,234,567.89",
    "0x1F",
    "1e-5",
    "x2y3",
    "\u0661\u0662\u0663\u0664",
    "\u00bd \u2460 \u2167 \u00b2",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n",
    "if (a && b || !c) { x->y = *z; }",
    "a+b=c; d!=e; f==g",
    "!!!???...",
    "((([[[{{{}}}]]])))",
    "http://example.com/path?query=1&other=two#frag",
    "user@example.org",
    "C:\\Users\\name\\file.txt",
    "/usr/local/bin",
    "a/b\n/c",
    "!\n\n",
    "...\r\n\r\n",
    "trailing spaces   ",
    "   leading",
    "tab\tseparated\tvalues",
    "\t\t\tindent",
    "mixed \t \n \t x",
    "line1\r\nline2\r\n\r\nline3",
    " \n \n ",
    "a\n b",
    "a \nb",
    "x   \n   y",
    "über Straße ÄÖÜ ß \u1e9e",
    "na\u00efve caf\u00e9",
    "nai\u0308ve cafe\u0301",
    "e\u0301\u0327 e\u0327\u0301",
    "\u0301 alone",
    "a\u0300\u0301\u0302\u0303\u0304 zalgo h\u0335\u0321\u0353e\u0358\u033b",
    "\u212b \u2126 \ufb01 \ufb03 \uff21\uff22\uff23 \u00a0nbsp\u00a0",
    "\u0130stanbul I\u0307 \u0131",
    "\u01c5 \u01f2 \u02b0\u02b1 \u00aa\u00ba",
    "Съешь же ещё этих мягких",
    "天地玄黄，宇宙洪荒。",
    "我们今天要去北京",
    "吾輩は猫である。",
    "カタカナ ﾊﾝｶｸ ｶﾞ",
    "か\u3099き",
    "모든 국민은 법 앞에",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "\uac00\u11a8",
    "สวัสดีครับ วันนี้อากาศดีมาก",
    "น้ำ",
    "السلام عليكم، كيف حالك؟",
    "مُحَمَّدٌ",
    "नमस्ते दुनिया",
    "क्षत्रिय ज़िंदगी कि",
    "שָׁלוֹם עוֹלָם",
    "বাংলা ভাষা",
    "தமிழ் மொழி",
    "ខ្មែរ",
    "བོད་སྐད",
    "ᚠᛇᚻ ᏣᎳᎩ",
    "𐍈 𝔘𝔫𝔦 𠀀𠀁",
    "😀",
    "😀😃😄",
    "👍🏽",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈 🇩🇪🇫🇷🇯🇵",
    "❤️ ❤ ☺️",
    "1️⃣2️⃣",
    "text😀text",
    "👨🏿‍🚀 in space",
    "\u200b\u200c\u200d\ufeffzero\u200bwidth",
    "\u202eright to left\u202c",
    "\u0000\u0001\u0002\u001f\u007f",
    "a\u0000b",
    "\u0085next\u0085line",
    "\u2028sep\u2029par",
    "\u180e\u1680\u2000\u3000wide",
    "\u00adsoft\u00adhyphen",
    "\ufffd\ufffe",
    "\ue000private",
    "\u0378unassigned",
    "日本語とEnglishの混在 mixed テキスト123",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababababab",
    "=" * 70,
    "-" * 33 + "\n" + " " * 40 + "x",
    "the" * 30,
    "天" * 60,
    "天地" * 40,
    "\u0e2a" * 55,
    " " * 130,
    "<s>",
    "</s>",
    "<s>Hello</s>",
    "<s> Hello </s> world",
    " <s>x",
    "a<s>",
    "<s><s></s>",
    "<|endoftext|>",
    "x<|endoftext|>y",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<|begin_of_text|>Hi<|eot_id|>",
    "<|im_start|",
    "<|im_start|><",
    "<<|im_end|>>",
    "< s >",
    "<unk>",
    "<0x41><0x0A>",
    "[INST] Hi [/INST]",
    "<think>\nyes\n</think>",
    '<tool_call>{"a": 1}</tool_call>',
    "  <|im_end|>  x",
    "word<mask>word <mask> word",
    "a <mask>  b",
    "SOLO solo SOLOx xSOLO SOLO.",
    "Caf\u00c9TOK caf\u00e9tok",
    "\u2581<s>\u2581",
    "<s>\n<s> <s>",
    "<|IM_END|>",
]

# (text, from_template) lists; `S` stands for the family's begin token and `E` for its end token.
SEGMENTS = [
    [("S", True), ("Hello", False), ("E", True)],
    [("S", True), ("user\n", True), ("Say S and E please", False), ("E\n", True)],
    [("Hel", True), ("lo wor", False), ("ld", True)],
    [("S", True), ("  spaces ", False), (" E", True), ("\n\n", True), ("\n", False)],
    [("it", False), ("'s", True), (" 12", True), ("34", False)],
    [("S", False), ("E", False)],
    [("e", True), ("\u0301", False), ("S", True)],
    [("x", False), ("S1", True), ("", False), ("E", True), ("E", False)],
    [("<think>", False), ("\n", True), ("</think>", True), ("<tool_call>", False)],
]


def straddles(token):
    """Segment lists in which `token` lies across a border, in every way to cut it."""
    return [
        [("a " + token[:i], first), (token[i:] + " b", not first)]
        for i in range(1, len(token), 3)
        for first in (True, False)
    ]


def random_text(generator, length):
    alphabets = [
        "etaoin shrdlu cmfwyp vbgkjq xz",
        "  \n\t",
        "0123456789",
        ".,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`",
        "ETAOINSHRDLU",
        "äöüßéèêëàâçñøåæœ",
        "абвгдежзийклмнопрст",
        "天地玄黄宇宙洪荒日月",
        "あいうえおカキクケコ",
        "가나다라마바사",
        "กขคงจ่้ำิี",
        "ابتثجحخدَُِّ",
        "कखगघङ्ािीुू",
        "\u0300\u0301\u0308\u0327\u0323",
        "😀👍🏽❤\ufe0f\u200d🇩🇪",
        "\u00a0\u2003\u3000\u200b\u0085\u2028",
        "ǅʰªⅧ½²①",
    ]
    out = []
    while len(out) < length:
        alphabet = generator.choice(alphabets)
        out += generator.choices(alphabet, k=generator.randint(1, 6))
    return "".join(out[:length])


def cases():
    generator = random.Random(7)
    return CASES + [random_text(generator, 60) for _ in range(30)]
