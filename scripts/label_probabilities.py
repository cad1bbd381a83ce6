"""Read what a model of Qwen2's kind thinks of each label, for many prompts at once.

    python scripts/label_probabilities.py MODEL.gguf REQUESTS.jsonl.gz REPLIES.jsonl.gz

A request has `key`, `prompt`, `opening` (how the reply begins, as the schema and llama.cpp's
grammar have it: `{, line break, two blanks, "grade": `) and `labels` (the first token of each,
unlike the others'). The reply has the logarithm of each label's probability among the labels: the
likeliest is what a greedy model under the schema says, and all that a temperature changes follows
from them. Prompts with a `group` share their beginning, which is read once.

The 4-bit weights are read as bfloat16. Needs torch, tokenizers, jinja2 and gguf, and a GPU to be
fast; nothing else of the project needs them.
"""

import gzip
import json
import sys
import time

import torch
import torch.nn.functional as F

BUDGET = 65_536  # tokens in a batch, padding included


def q4_k(raw):
    """Return the weights of GGUF's 4-bit blocks, 256 of 144 bytes each."""
    scale, least = (raw[:, at : at + 2].view(torch.float16).float() for at in (0, 2))
    low, high, both = raw[:, 4:16].view(-1, 3, 4).unbind(1)
    factor = torch.cat([low & 63, (both & 15) | ((low >> 2) & 48)], 1).float()
    offset = torch.cat([high & 63, (both >> 4) | ((high >> 2) & 48)], 1).float()
    halves = raw[:, 16:].view(-1, 4, 1, 32)
    number = torch.cat([halves & 15, halves >> 4], 2).view(-1, 8, 32).float()
    return ((scale * factor)[..., None] * number - (least * offset)[..., None]).flatten(1)


def q6_k(raw):
    """Return the weights of GGUF's 6-bit blocks, 256 of 210 bytes each."""
    lower = raw[:, :128].view(-1, 2, 1, 64)
    lower = torch.cat([lower & 15, lower >> 4], 2).view(-1, 8, 32)
    upper = raw[:, 128:192].view(-1, 2, 1, 32)
    upper = torch.cat([(upper >> shift) & 3 for shift in (0, 2, 4, 6)], 2).view(-1, 8, 32)
    number = ((lower | (upper << 4)).float() - 32).view(-1, 16, 16)
    factor = raw[:, 192:208].contiguous().view(torch.int8).float()
    scale = raw[:, 208:].contiguous().view(torch.float16).float()
    return ((scale * factor)[..., None] * number).flatten(1)


BLOCKS = {"Q4_K": (144, q4_k), "Q6_K": (210, q6_k)}


def weights_of(raw, kind, shape, device):
    """Return a tensor of the file as bfloat16; ``raw`` are its bytes."""
    raw = raw.to(device)
    if kind == "F32":
        return raw.view(torch.float32).reshape(shape).bfloat16()
    size, read = BLOCKS[kind]
    blocks = raw.view(-1, size)
    some = [read(part).bfloat16() for part in blocks.split(200_000)]
    return torch.cat(some).reshape(shape)


class Qwen2:
    """The forward pass of Qwen2, over sequences of a shared beginning and its ends."""

    def __init__(self, meta, weights, device):
        self.layers, self.heads, self.shared, self.width = (
            meta[f"qwen2.{name}"]
            for name in (
                "block_count", "attention.head_count", "attention.head_count_kv", "embedding_length"
            )
        )  # fmt: skip
        self.size = self.width // self.heads
        self.small = meta["qwen2.attention.layer_norm_rms_epsilon"]
        self.W = weights
        self.device = device
        steps = torch.arange(0, self.size, 2, dtype=torch.float64) / self.size
        angle = torch.arange(16_384, dtype=torch.float64)[:, None] / (
            meta["qwen2.rope.freq_base"] ** steps
        )
        angle = torch.cat([angle, angle], 1)
        self.cos = angle.cos().float().to(device)
        self.sin = angle.sin().float().to(device)

    def norm(self, x, name):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.small)
        return y.bfloat16() * self.W[name]

    def turned(self, x, cos, sin):
        one, two = x.float().chunk(2, -1)
        return (x.float() * cos + torch.cat([-two, one], -1) * sin).bfloat16()

    def last_states(self, ids, places, mask, ends):
        """Return the states at ``ends`` (row, column) after the last layer, normed."""
        cos = self.cos[places][:, :, None]
        sin = self.sin[places][:, :, None]
        x = self.W["token_embd.weight"][ids]
        for layer in range(self.layers):
            block = f"blk.{layer}."
            h = self.norm(x, f"{block}attn_norm.weight")
            q, k, v = (
                F.linear(h, self.W[f"{block}attn_{a}.weight"], self.W[f"{block}attn_{a}.bias"])
                .unflatten(-1, (-1, self.size))
                for a in "qkv"
            )  # fmt: skip
            q = self.turned(q, cos, sin).transpose(1, 2)
            k = self.turned(k, cos, sin).transpose(1, 2)
            times = self.heads // self.shared
            k = k.repeat_interleave(times, 1)
            v = v.transpose(1, 2).repeat_interleave(times, 1)
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + F.linear(seen.transpose(1, 2).flatten(2), self.W[f"{block}attn_output.weight"])
            h = self.norm(x, f"{block}ffn_norm.weight")
            gate = F.silu(F.linear(h, self.W[f"{block}ffn_gate.weight"]))
            up = F.linear(h, self.W[f"{block}ffn_up.weight"])
            x = x + F.linear(gate * up, self.W[f"{block}ffn_down.weight"])
        return self.norm(x[ends], "output_norm.weight")


def groups_of(requests):
    """Make one sequence of each group: what its prompts share, then their ends.

    A request here is a dict with key, group, ids and labels (token ids).
    """
    groups = {}
    for request in requests:
        groups.setdefault(request["group"], []).append(request)
    sequences = []
    for some in groups.values():
        first = min(some, key=lambda request: len(request["ids"]))["ids"]
        shared = len(first) - 1
        for request in some:
            ids = request["ids"]
            shared = next((at for at in range(shared) if ids[at] != first[at]), shared)
        ids = list(some[0]["ids"][:shared])
        places = list(range(shared))
        part = [0] * shared
        ends = []
        for number, request in enumerate(some, 1):
            end = request["ids"][shared:]
            ids += end
            places += range(shared, shared + len(end))
            part += [number] * len(end)
            ends.append(len(ids) - 1)
        sequences.append({"ids": ids, "places": places, "part": part, "ends": ends, "some": some})
    return sequences


def batches(sequences):
    """Yield sequences of like length, `BUDGET` tokens at a time."""
    batch = []
    for sequence in sorted(sequences, key=lambda one: -len(one["ids"])):
        width = len(batch[0]["ids"]) if batch else 0
        if batch and width * (len(batch) + 1) > BUDGET:
            yield batch
            batch = []
        batch.append(sequence)
    if batch:
        yield batch


@torch.inference_mode()
def label_logits(model, batch, head):
    """Yield (request, logarithms of the labels' probabilities among the labels).

    ``head``: token id -> the output layer's row for it.
    """
    width = -(-len(batch[0]["ids"]) // 16) * 16
    ids, places, part = (torch.zeros(len(batch), width, dtype=torch.long) for _ in range(3))
    part -= 1
    rows = []
    columns = []
    for row, sequence in enumerate(batch):
        length = len(sequence["ids"])
        for tensor, name in ((ids, "ids"), (places, "places"), (part, "part")):
            tensor[row, :length] = torch.tensor(sequence[name])
        rows += [row] * len(sequence["ends"])
        columns += sequence["ends"]
    part = part.to(model.device)
    order = torch.arange(width, device=model.device)
    # a token sees those before it of its own end, and of the shared beginning
    seen = (part[:, None, :] == part[:, :, None]) | (part[:, None, :] == 0)
    seen = (seen & (order[None, :] <= order[:, None]))[:, None]
    ends = (torch.tensor(rows, device=model.device), torch.tensor(columns, device=model.device))
    states = model.last_states(ids.to(model.device), places.to(model.device), seen, ends)
    requests = [request for sequence in batch for request in sequence["some"]]
    for state, request in zip(states, requests, strict=True):
        logits = torch.stack([head[label] for label in request["labels"]]).float() @ state.float()
        yield request, logits.log_softmax(0)


def run(model, head, requests, out, until=None):
    """Write a reply for every request."""
    start = time.time()
    done = tokens = 0
    with gzip.open(out, "wt") as file:
        for batch in batches(groups_of(requests)):
            if until is not None and time.time() > until:
                break
            for request, logits in label_logits(model, batch, head):
                reply = {"key": request["key"], "tokens": len(request["ids"])}
                reply["logs"] = [round(value, 4) for value in logits.tolist()]
                file.write(json.dumps(reply) + "\n")
                done += 1
            tokens += sum(len(sequence["ids"]) for sequence in batch)
    print(f"{done} of {len(requests)}, {tokens} tokens read, {time.time() - start:.0f} s")


def tokenizer_of(fields):
    """Return (text -> token ids, messages -> text) of a GGUF file's tokenizer."""
    from jinja2 import Environment
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

    words = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokens = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, merges))
    tokens.normalizer = normalizers.NFC()
    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokens.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    special = [word for word, kind in zip(words, kinds, strict=True) if kind in (3, 4)]
    special = [word for word in special if not word.startswith("[PAD")]
    tokens.add_special_tokens([AddedToken(w, special=True, normalized=False) for w in special])
    template = Environment().from_string(fields["tokenizer.chat_template"].contents())
    return (
        lambda text: tokens.encode(text, add_special_tokens=False).ids,
        lambda prompt: template.render(
            messages=[{"role": "user", "content": prompt}], add_generation_prompt=True, tools=None
        ),
    )


def encoded(requests, fields):
    """Return requests with token ids: of the prompt with the reply's opening, and of the labels."""
    encode, chat = tokenizer_of(fields)
    ready = []
    for request in requests:
        ids = encode(chat(request["prompt"])) + encode(request["opening"])
        labels = [encode(request["opening"] + label)[len(encode(request["opening"])) :][0]
                  for label in request["labels"]]  # fmt: skip
        if len(set(labels)) < len(labels):
            raise ValueError(f"labels that begin alike: {request['labels']}")
        group = request.get("group", request["key"])
        ready.append({"key": request["key"], "group": group, "ids": ids, "labels": labels})
    return ready


def main(path, requests, replies):
    from gguf import GGUFReader

    device = "cuda" if torch.cuda.is_available() else "cpu"
    file = GGUFReader(path)
    fields = file.fields
    with gzip.open(requests, "rt") as lines:
        ready = encoded([json.loads(line) for line in lines], fields)
    weights = {}
    for tensor in file.tensors:
        raw = torch.from_numpy(tensor.data.copy()).view(torch.uint8).flatten()
        shape = tuple(int(side) for side in reversed(tensor.shape))
        weights[tensor.name] = weights_of(raw, tensor.tensor_type.name, shape, device)
    meta = {name: field.contents() for name, field in fields.items() if name.startswith("qwen2.")}
    head = weights.get("output.weight", weights["token_embd.weight"])
    run(Qwen2(meta, weights, device), head, ready, replies)


if __name__ == "__main__":
    main(*sys.argv[1:])
