"""Text for train_stories.py: both tokenizers, and the corpus of stories as documents and conversations."""
import heapq
import lzma
import random
import re
import struct
from collections import Counter

import numpy as np

SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>",
            "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
N_VOCAB = 2048                 # 256 bytes, the merges, 16 special tokens (8 of them reserved)
N_SPECIAL = 16
END, EOT = (N_VOCAB - N_SPECIAL + SPECIALS.index("<|%s|>" % s) for s in ("end_of_text", "eot_id"))


# ---------------------------------------------------------------- tokenizers

class SentencePiece:
    """The tokenizer of llama2.c (tokenizer.bin): BPE by score, with byte fallback."""

    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        at, self.tokens, self.scores = 4, [], []
        while at < len(data):
            score, n = struct.unpack_from("<fi", data, at)
            self.tokens.append(data[at + 8:at + 8 + n])
            self.scores.append(score)
            at += 8 + n
        self.ids = {t: i for i, t in enumerate(self.tokens)}      # a character replaces the byte token of the same text
        self.words = {}

    def encode(self, text, prefix=True):
        ids = []
        for c in (" " if prefix else "") + text:
            c = c.encode()
            ids += [self.ids[c]] if c in self.ids and self.ids[c] > 2 else [b + 3 for b in c]
        while True:
            best = None
            for i in range(len(ids) - 1):
                j = self.ids.get(self.tokens[ids[i]] + self.tokens[ids[i + 1]])
                if j is not None and (best is None or self.scores[j] > best[0]):
                    best = (self.scores[j], i, j)
            if best is None:
                return ids
            ids[best[1]:best[1] + 2] = [best[2]]

    def encode_text(self, text):
        """The same as encode(), but word by word, with a cache: no token contains a space after its first character."""
        out = []
        for w in re.findall(r" *[^ ]+| +$", " " + text):
            if w not in self.words:
                self.words[w] = self.encode(w, prefix=False)
            out += self.words[w]
        return out

    def decode(self, ids):
        out = b""
        for i in ids:
            t = self.tokens[i]
            m = re.fullmatch(rb"<0x([0-9A-F]{2})>", t)
            out += bytes([int(m[1], 16)]) if m else t
        return out.decode("utf-8", "replace").removeprefix(" ")


# Llama 3's pre-tokenizer (llama-bpe), with [^\W\d_] for \p{L}, which Python's re does not have.
SPLIT = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?[^\W\d_]+|\d{1,3}"
                   r"| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_chars():
    """(bytes in the order of GPT-2's first 256 token ids, {byte: GPT-2's printable character})"""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    order = plain + [b for b in range(256) if b not in plain]
    return order, {b: chr(b) if i < len(plain) else chr(256 + i - len(plain)) for i, b in enumerate(order)}


class ByteBPE:
    def __init__(self, merges):
        order, _ = byte_chars()
        self.tokens = [bytes([b]) for b in order]
        self.merges = [tuple(m) for m in merges]
        for a, b in self.merges:
            self.tokens.append(self.tokens[a] + self.tokens[b])
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.byte_id = {t[0]: i for i, t in enumerate(self.tokens[:256])}
        self.special = {s: len(self.tokens) + i for i, s in enumerate(special_names())}
        self.cache = {}

    def piece(self, text):
        if text not in self.cache:
            whole = self.ids.get(text.encode())
            ids = [self.byte_id[b] for b in text.encode()] if whole is None else [whole]
            while len(ids) > 1:
                made = [self.ids.get(self.tokens[a] + self.tokens[b], 1 << 30) for a, b in zip(ids, ids[1:])]
                new = min(made)
                if new == 1 << 30:
                    break
                i = made.index(new)
                ids[i:i + 2] = [new]
            self.cache[text] = ids
        return self.cache[text]

    def encode(self, text):
        return [i for p in SPLIT.findall(text) for i in self.piece(p)]

    def decode(self, ids):
        return b"".join(self.tokens[i] for i in ids if i < len(self.tokens)).decode("utf-8", "replace")


def special_names():
    return SPECIALS + ["<|reserved_special_token_%d|>" % i for i in range(N_SPECIAL - len(SPECIALS))]


def train_bpe(texts, n_merges):
    """Trains BPE: each merge is the most frequent pair of ids within the pieces of the texts."""
    counts = Counter()
    for t in texts:
        counts.update(SPLIT.findall(t))
    base = ByteBPE([])
    words = [([base.byte_id[b] for b in w.encode()], n) for w, n in counts.items()]
    pairs, where = Counter(), {}
    for i, (ids, n) in enumerate(words):
        for p in zip(ids, ids[1:]):
            pairs[p] += n
            where.setdefault(p, set()).add(i)
    heap = [(-n, p) for p, n in pairs.items()]
    heapq.heapify(heap)
    merges, tokens = [], list(base.tokens)
    known = set(tokens)
    while heap and len(merges) < n_merges:
        n, p = heapq.heappop(heap)
        token = tokens[p[0]] + tokens[p[1]]
        if -n != pairs[p] or token in known:
            continue                                    # an outdated count, or another pair for a known token
        new, changed = len(tokens), set()
        merges.append(p)
        tokens.append(token)
        known.add(token)
        for i in where.pop(p):
            ids, n = words[i]
            out, j = [], 0
            while j < len(ids):
                both = j + 1 < len(ids) and (ids[j], ids[j + 1]) == p
                out.append(new if both else ids[j])
                j += 1 + both
            for q in zip(ids, ids[1:]):
                pairs[q] -= n
                changed.add(q)
            for q in zip(out, out[1:]):
                pairs[q] += n
                where.setdefault(q, set()).add(i)
                changed.add(q)
            words[i] = (out, n)
        for q in changed:
            if pairs[q] > 0:
                heapq.heappush(heap, (-pairs[q], q))
    return merges


# ---------------------------------------------------------------- corpus

def read_stories(path):
    text = lzma.open(path, "rt", encoding="utf-8").read() if str(path).endswith(".xz") else open(path).read()
    return [s.strip() for s in text.split("<|end|>") if s.strip()]


def write_stories(path, stories):
    text = "".join(s + "\n<|end|>\n" for s in stories)
    with lzma.open(path, "wt", encoding="utf-8") if str(path).endswith(".xz") else open(path, "w") as f:
        f.write(text)


AFTER = (r"(?=[.,!?]| (?:was|is|and|in|on|to|with|had|that|who|for|said|from|at|of|but|named|so|were|because"
         r"|could|wanted|went|saw)\b)")
NOT_THINGS = set("there idea lot way mess thing things end place moment top bit side while moral game walk top "
                 "party time day friend friends other others one next rest two animals surprise job race ground "
                 "name fun world story bath nap air middle back front edge same first last more whole".split())
ADJECTIVES = ("red blue green yellow pink purple black white brown orange golden shiny fluffy tiny brave magic "
              "magical old happy sad wise kind lazy round soft noisy pretty scary silly").split()
FIRST_WEIGHT, ASKED_WEIGHT = 16, 4      # loss weights of a requested word: first occurrence, later ones
ASK = ["Tell me a story about {}.", "Tell me a story about {}", "tell me a story about {}",
       "Write a story about {}.", "Write a short story about {}.", "Please tell me a story about {}.",
       "Can you tell me a story about {}?", "Could you write a story with {} in it?", "I want a story about {}.",
       "A story about {}, please.", "Make up a story about {}.", "I would like to hear a story about {}.",
       "Story about {}", "Tell a story with {}.", "Tell me a bedtime story about {}.", "write a story about {}",
       "Tell me a short story about {}!", "Do you know a story about {}?", "What happened to {}?",
       "Write a story that has {} in it."]
ASK_ANY = ["Tell me a story.", "Tell me a story", "Write a story.", "Can you tell me a story?", "A story, please.",
           "Please tell me a story.", "I want to hear a story.", "Once more, please.", "Tell me a bedtime story.",
           "tell me a story", "Do you know a story?", "Read me a story."]
ASK_MORE = ["Another one, please.", "Tell me another story.", "One more!", "Tell me one more story.", "More!",
            "Thank you! Another one?", "Again, please."]
SYSTEM = ["You tell short stories for children.", "You are a storyteller.", "You are a helpful assistant.",
          "You are a kind storyteller who writes short stories for small children.", "Answer with a short story.",
          "You write simple stories."]
TALK = [(["Hello", "Hi", "Hello!", "Hi!", "hi", "hello", "Hey", "Good morning!", "Hi there!"],
         ["Hello! What should the story be about?", "Hello! Do you want to hear a story?"]),
        (["Who are you?", "What are you?", "What is your name?", "What can you do?", "Are you a person?", "Help"],
         ["I am a small program that tells stories. What should the next one be about?"]),
        (["Thank you!", "Thanks", "Thank you.", "thanks!", "That was nice.", "I liked that story.", "Good story!"],
         ["You are welcome! Do you want to hear another story?"]),
        (["Bye", "Goodbye", "Good night!", "bye!"], ["Goodbye! Sleep well."])]


def find_things(stories):
    """Nouns of the corpus: words often found between an article and a word that follows nouns (AFTER)."""
    words, after, after_a = Counter(), Counter(), Counter()
    for s in stories:
        s = s.lower()
        words.update(re.findall(r"[a-z]+", s))
        after.update(re.findall(r"\b(?:the|a|an) (?:[a-z]+,? )?([a-z]+)" + AFTER, s))
        after_a.update(re.findall(r"\b(?:a|an) (?:[a-z]+,? )?([a-z]+)" + AFTER, s))
    return {w for w, n in words.items() if n >= 30 and after[w] >= 0.3 * n and 0.1 < after_a[w] / after[w] < 0.8
            and w not in NOT_THINGS and len(w) > 2}


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def things_of(story, nouns, rng):
    """Phrases for one to three things in the story: "a dog", "a red ball", "a girl named Lily"."""
    low = story.lower()
    count = Counter(w for w in re.findall(r"[a-z]+", low) if w in nouns)
    found = [w for w, n in count.most_common(5) if n >= 2] or [w for w, n in count.most_common(2)]
    rng.shuffle(found)
    phrases = []
    for w in found[:rng.choice((1, 2, 2, 2, 2, 3))]:
        adjective = re.search(r"\b(%s) %s\b" % ("|".join(ADJECTIVES), w), low)
        phrases.append(article(adjective[1] + " " + w if adjective and rng.random() < 0.85 else w))
    person = re.search(r"\b(girl|boy|dog|cat|bird|bunny|bear|frog|fish|mouse|man|lady) (?:named|called) ([A-Z][a-z]+)",
                       story)
    if person and rng.random() < 0.3:
        phrases = [p for p in phrases if not p.endswith(person[1])][:2]
        phrases.insert(0, rng.choice(("a %s named %s", "a little %s named %s")) % person.groups())
    if rng.random() < 0.05:
        phrases = [p.split(" ", 1)[1] for p in phrases]
    return phrases


def conversation(stories, nouns, rng):
    """[(role, text, requested words)]: a user asks for stories, the assistant tells them."""
    turns = [("system", rng.choice(SYSTEM), ())] if rng.random() < 0.25 else []
    if rng.random() < 0.08:
        ask, answer = rng.choice(TALK[:2])
        turns += [("user", rng.choice(ask), ()), ("assistant", rng.choice(answer), ())]
    for i, s in enumerate(stories):
        things, words = things_of(s, nouns, rng), ()
        if rng.random() < 0.15:                          # the beginning of the story as a prompt
            ask = " ".join(s.split(" ")[:rng.choice((2, 4, 4, 4, 4, 6, 8, 10, 14))]).rstrip(",")
            ask += rng.choice(("", "", "...", ","))
        elif not things or rng.random() < 0.05:
            ask = rng.choice(ASK_MORE if i else ASK_ANY)
        else:
            words = set(" ".join(things).lower().split()) - {"a", "an", "named", "little"}
            things = ", ".join(things[:-1]) + " and " + things[-1] if len(things) > 1 else things[0]
            ask = rng.choice(ASK).format(things)
        turns += [("user", ask, ()), ("assistant", s, words)]
    if rng.random() < 0.05:
        ask, answer = rng.choice(TALK[2:])
        turns += [("user", rng.choice(ask), ()), ("assistant", rng.choice(answer), ())]
    return turns


def encode_turns(bpe, turns):
    """(ids, loss weights). Weights are 0 for prompts, 1 for the assistant's words and end of turn, and more for requested
    words, so that the model learns to use them."""
    sp = bpe.special
    ids, learn = [sp["<|begin_of_text|>"]], [0]
    for role, text, words in turns:
        head = [sp["<|start_header_id|>"], *bpe.encode(role), sp["<|end_header_id|>"], *bpe.encode("\n\n")]
        ids += head
        learn += [0] * len(head)
        missing = set(words)
        for piece in SPLIT.findall(text.strip()):
            body, word = bpe.piece(piece), piece.strip(" \"").lower()
            weight = FIRST_WEIGHT if word in missing else ASKED_WEIGHT if word in words else 1
            missing.discard(word)
            ids += body
            learn += [weight * (role == "assistant")] * len(body)
        ids.append(sp["<|eot_id|>"])
        learn.append(int(role == "assistant"))
    return ids, learn


def align(text, ids, bpe, spm):
    """(teacher's ids of a story, for each of the student's ids the teacher's step that has seen the same text).

    Both lists of ids begin with a start id and end with an end id. Where a token of one ends inside a token of the
    other there is no such step: -1."""
    theirs = [1] + spm.encode_text(text) + [1]
    end, steps = -1, {0: 0}                          # SentencePiece adds a space before the text
    for i, t in enumerate(theirs[1:-1]):
        end += len(spm.tokens[t])
        steps[max(end, 0)] = i + 1
    end, rows = 0, [0]
    for t in ids[1:-1]:
        end += len(bpe.tokens[t])
        rows.append(steps.get(end, -1))
    return theirs, rows


def make_data(stories, bpe, spm, seed):
    """The training data, each story once: half of them as plain documents, half in conversations of one to three stories.

    ids, learn       (n) the student's ids of all documents, concatenated; their loss weights
    ends             (n_documents) end of each document in ids
    theirs           the teacher's ids; of a conversation, only the first story
    their_ends       (n_documents) end of each document in theirs
    rows             (n) the teacher's step that has seen the same text, or -1
    seen             the teacher's ids that occur
    pairs            (index in seen, student's id, how often both begin the same text)"""
    rng = random.Random(seed)
    nouns = find_things(stories)
    sp = bpe.special
    docs, i, stories = [], 0, rng.sample(stories, len(stories))
    while i < len(stories):
        if rng.random() < 0.5:
            ids = [sp["<|begin_of_text|>"], *bpe.encode(stories[i]), sp["<|end_of_text|>"]]
            theirs, rows = align(stories[i], ids, bpe, spm)
            docs.append((ids, [0] + [1] * (len(ids) - 1), rows + [-1], theirs))
            i += 1
        else:
            n = rng.choice((1,) * 17 + (2, 2, 3))
            turns = conversation(stories[i:i + n], nouns, rng)
            ids, learn = encode_turns(bpe, turns)
            told = [text for _, text, _ in turns].index(stories[i])
            end = len(encode_turns(bpe, turns[:told + 1])[0])
            theirs, rows = align(stories[i], [0, *bpe.encode(stories[i]), 0], bpe, spm)
            docs.append((ids, learn, [-1] * (end - 1 - len(rows)) + rows + [-1] * (len(ids) - end + 1), theirs))
            i += n
    count = Counter()
    for ids, _, rows, theirs in docs:
        count.update((theirs[r + 1], ids[j + 1]) for j, r in enumerate(rows) if r >= 0 and ids[j + 1] != EOT)
    seen = sorted({t for d in docs for t in d[3]})
    index = {t: i for i, t in enumerate(seen)}
    join = lambda k, type: np.concatenate([np.array(d[k], type) for d in docs])
    return dict(ids=join(0, np.uint16), learn=join(1, np.uint8), rows=join(2, np.int16), theirs=join(3, np.uint16),
                ends=np.cumsum([len(d[0]) for d in docs]), their_ends=np.cumsum([len(d[3]) for d in docs]),
                seen=np.array(seen), pairs=np.array([(index[t], s, n) for (t, s), n in count.items()]))
