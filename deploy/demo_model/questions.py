"""The synthetic family of questions which the demo model answers.

Five families with checkable truth: add, sub, count, sort, repeat. A question's key names its
operands, not its phrasing; a hash of the key says whether it is held out. Training never sees a
held-out key in any phrasing, and evaluation asks nothing else. Operands which commute share a key,
so that 34+12 is held out exactly when 12+34 is, and a set of words is held out in every order.

Only Python's standard library: evaluate.py asks these questions of a running server anywhere.
"""

import collections
import hashlib
import random
import string

FAMILIES = ("add", "sub", "count", "sort", "repeat")
HELD_OUT_OF_256 = 26  # about one key in ten
TRAINING_MIX = {"add": 0.30, "sub": 0.35, "count": 0.07, "sort": 0.16, "repeat": 0.12}
SYSTEM_MESSAGES = ("You are a helpful assistant.", "Answer the question.", "You are helpful.")

Question = collections.namedtuple("Question", "family key prompt answer")

WORDS = """
acorn amber angel apple apron arrow badge baker bean bear berry bird boat bread brick camel candle
cat chair cherry cloud corn crab crow dog door dove drum eagle earth elm fern fig fire fish flute
fox frog gate goat gold grape green hat hill honey horse ice ink iron island ivy jam jar jewel kite
lake lamp leaf lemon lily lion maple melon mint moon mouse nest nut oak ocean olive onion owl pear
pen piano plum pond queen quilt rain river rose ruby sand sea silk snow star stone sun tea tiger
tree tulip vine violet water wheat wolf wood yarn zebra zoo
""".split()

PHRASINGS = {
    "add": ("What is {a} + {b}?", "{a} + {b}", "{a}+{b}=", "{a} + {b} =", "Add {a} and {b}.",
            "What is {a} plus {b}?"),
    "sub": ("What is {a} - {b}?", "{a} - {b}", "{a}-{b}=", "{a} - {b} =", "Subtract {b} from {a}.",
            "What is {a} minus {b}?"),
    "count": ("Count from {a} to {b}.", "Count from {a} to {b}", "Count: {a} to {b}"),
    "sort": ("Sort these words: {text}", "Sort: {text}", "Sort alphabetically: {text}"),
    "repeat": ("Repeat: {text}", "Repeat after me: {text}", "Say: {text}"),
}


def held_out(key):
    """Whether the operands named by key are kept out of training."""
    return hashlib.sha256(key.encode()).digest()[0] < HELD_OUT_OF_256


def _operand(rng, small):
    draw = rng.random()
    if draw < small:
        return rng.randrange(10)
    return rng.randrange(10, 100) if draw < small + 0.35 else rng.randrange(100, 1000)


def _add(rng, small):
    a, b = _operand(rng, small), _operand(rng, small)
    key = "add:%d:%d" % (min(a, b), max(a, b))
    return key, {"a": a, "b": b}, str(a + b)


def _sub(rng, small):
    a, b = _operand(rng, small), _operand(rng, small)
    if a < b and rng.random() < 0.8:  # one answer in ten is negative
        a, b = b, a
    key = "sub:%d:%d" % (min(a, b), max(a, b))
    return key, {"a": a, "b": b}, str(a - b)


def _count(rng, small):
    del small
    a = rng.randrange(100) if rng.random() < 0.5 else rng.randrange(988)
    b = a + rng.randrange(2, 12)
    return "count:%d:%d" % (a, b), {"a": a, "b": b}, " ".join(map(str, range(a, b + 1)))


def _sort(rng, small):
    del small
    words = rng.sample(WORDS, rng.choice((3, 3, 4, 4, 5)))
    comma = ", " if rng.random() < 0.2 else " "
    key = "sort:" + " ".join(sorted(words))
    return key, {"text": comma.join(words)}, comma.join(sorted(words))


def _letters(rng, alphabet):
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(2, 6)))


def _repeat(rng, small):
    del small
    kind, length = rng.random(), rng.randrange(1, 6)
    if kind < 0.5:
        text = " ".join(rng.choice(WORDS) for _ in range(length))
    elif kind < 0.7:
        text = " ".join(_letters(rng, string.ascii_lowercase) for _ in range(min(length, 4)))
    elif kind < 0.85:
        text = " ".join(str(rng.randrange(10 ** rng.randrange(1, 5))) for _ in range(length))
    else:
        text = " ".join(rng.choice(WORDS) if rng.random() < 0.5 else
                        _letters(rng, string.ascii_letters) for _ in range(min(length, 4)))
        text = text[0].upper() + text[1:] + rng.choice(".!?")
    return "repeat:" + text, {"text": text}, text


_DRAW = {"add": _add, "sub": _sub, "count": _count, "sort": _sort, "repeat": _repeat}


def draw(family, rng, want_held_out, small=0.0):
    """One question of a family from one side of the split.

    small: the share of one-digit operands in arithmetic, which training adds and the families as
    stated (two and three digits) do not have.
    """
    while True:
        key, operands, answer = _DRAW[family](rng, small)
        if held_out(key) == want_held_out:
            prompt = rng.choice(PHRASINGS[family]).format(**operands)
            return Question(family, key, prompt, answer)


def training_conversation(rng):
    """What one row of training data says: the questions of a conversation (turns), its system
    message or None, and whether it is bare, a question's text followed by its answer."""
    def one():
        family = rng.choices(list(TRAINING_MIX), list(TRAINING_MIX.values()))[0]
        return draw(family, rng, False, small=0.04)

    turns, system, bare = None, None, False
    kind = rng.random()
    if kind < 0.05:  # a completion without a template
        question, bare = one(), True
        while not question.prompt.endswith("="):
            question = draw(rng.choice(("add", "sub")), rng, False)
        turns = [question]
    elif kind < 0.10:  # a conversation
        turns = [one() for _ in range(rng.randrange(2, 4))]
    else:
        turns = [one()]
        if kind < 0.15:
            system = rng.choice(SYSTEM_MESSAGES)
    return {"turns": turns, "system": system, "bare": bare}


def held_out_set(family, count, seed):
    """count held-out questions of a family, no two with the same operands."""
    rng, seen, questions = random.Random("%s/%d" % (family, seed)), set(), []
    while len(questions) < count:
        question = draw(family, rng, True)
        if question.key not in seen:
            seen.add(question.key)
            questions.append(question)
    return questions
