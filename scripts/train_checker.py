"""Train the claim checker: all-MiniLM-L6-v2 as a cross-encoder over (text, claim). Its plan is in ANALYSIS.md.

    python scripts/train_checker.py FOLDER OUT

FOLDER has the pairs (``entailment`` of the recorded data). OUT gets the weights, ``train.log``, and what `OnnxChecker`
reads: ``model.onnx``, ``tokenizer.json`` and ``config.json``. Needs torch 2.6, transformers 4 and onnx beside ragbench;
the workbench itself uses no torch. All seeds are fixed; another processor gives other last digits.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import log_softmax
from transformers import BertConfig, BertModel

from ragbench.text.tokens import load_tokenizer, verify_minilm

SEED, TOKENS, AT_ONCE, LENGTHS = 20261126, 255, 4096, (24, 32, 48, 64, 96, 128, 192, 255)
TEST = {"breaking_nli", "conjnli_dev", "hover"}  # never trained on
CAPTIONS, BY_RULE = {"snli", "cad_snli"}, {"synth_wiki"}
TEXTS = {"begin_wow", "entailmentbank", "feverous", "fm2", "fm2_miss", "halueval", "synth_qa"}
KNOWN = {"mnli", "snli", "cad_snli", "conjnli", "scitail", "fm2", "feverous"}  # sets that say which kind of "no"
CLASSES = {"e": 0, "n": 1, "c": 2}
NOT_ENTAILED = 3  # the class of a "no" of unknown kind


def rows_of(folder, rng):
    """Return (set, text, claim, class) of all sets but the test sets; a third of the short texts are among others."""
    rows = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        if name in TEST:
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            pairs = [json.loads(line) for line in lines]
        short = [pair["premise"] for pair in pairs if len(pair["premise"]) < 200]
        for pair in pairs:
            text = pair["premise"]
            if len(text) < 200 and rng.random() < 1 / 3:
                others = [short[i] for i in rng.integers(len(short), size=rng.integers(1, 5))]
                others.insert(rng.integers(len(others) + 1), text)
                text = " ".join(others)
            no = CLASSES.get(pair["kind"], NOT_ENTAILED) if name in KNOWN else NOT_ENTAILED
            rows.append((name, text, pair["claim"], 0 if pair["label"] else no))
    return rows


def encoded(rows):
    """Return (set, ids, types, class); a pair longer than the model reads is cut."""
    tokenizer = load_tokenizer(verify_minilm() / "tokenizer.json")
    tokenizer.enable_truncation(TOKENS)  # the longer one
    found = tokenizer.encode_batch([(text, claim) for _, text, claim, _ in rows])
    return [(name, e.ids, e.type_ids, kind) for e, (name, _, _, kind) in zip(found, rows, strict=True)]


def batches(rows, rng):
    """Return batches of about AT_ONCE tokens, of pairs of like length, in random order."""
    order = rng.permutation(len(rows))
    place = np.searchsorted(LENGTHS, [len(rows[i][1]) for i in order])
    made = []
    for p, length in enumerate(LENGTHS):
        here, size = order[place == p], AT_ONCE // length
        made += [here[at : at + size] for at in range(0, len(here), size)]
    return [[rows[i] for i in made[b]] for b in rng.permutation(len(made))]


class Checker(torch.nn.Module):
    """MiniLM with three outputs of the first token: entailment, neutral, contradiction."""

    def __init__(self):
        super().__init__()
        stored = load_file(verify_minilm() / "model.safetensors")
        config = BertConfig(30522, 384, 6, 12, 1536, hidden_dropout_prob=0, attention_probs_dropout_prob=0)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.bert.load_state_dict({k: v for k, v in stored.items() if k in self.bert.state_dict()})
        self.bert.embeddings.word_embeddings.weight.requires_grad = False
        self.classifier = torch.nn.Linear(384, 3)
        torch.nn.init.normal_(self.classifier.weight, std=0.02)
        torch.nn.init.zeros_(self.classifier.bias)

    def forward(self, input_ids, attention_mask, token_type_ids):
        """Return logits, shape (pairs, 3); products in bfloat16 while it is trained."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.training):
            found = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return self.classifier(found.last_hidden_state[:, 0].float())


def loss_of(model, batch):
    """Return the mean loss, and how many pairs are taken rightly as entailed or not."""
    classes = torch.tensor([row[3] for row in batch])
    ids, types = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(row[part]) for row in batch], batch_first=True) for part in (1, 2)
    )
    logs = log_softmax(model(ids, (ids > 0).long(), types), dim=1)
    denied = logs[:, 1:].logsumexp(1)  # log(1 - P(entailment))
    known = logs.gather(1, classes.clamp(max=2)[:, None])[:, 0]
    right = ((logs[:, 0] > denied) == (classes == 0)).sum().item()
    return -torch.where(classes == NOT_ENTAILED, denied, known).mean(), right


def export(model, out):
    """Write the ONNX graph with its tokenizer and the names of its outputs."""
    example = torch.ones(2, 8, dtype=torch.long)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "tokens"} for name in names} | {"logits": {0: "batch"}}
    torch.onnx.export(
        model.eval(), (example,) * 3, out / "model.onnx", input_names=names, output_names=["logits"], dynamic_axes=axes
    )
    (out / "tokenizer.json").write_bytes((verify_minilm() / "tokenizer.json").read_bytes())
    labels = {str(number): label for number, label in enumerate(("entailment", "neutral", "contradiction"))}
    (out / "config.json").write_text(json.dumps({"id2label": labels, "max_position_embeddings": TOKENS}))


def main():
    """Train once, and keep the last weights."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, help="stop after so many, to try the script")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    rows = encoded(rows_of(options.folder, rng))
    held = rng.random(len(rows)) < 0.02
    train, dev = ([row for row, out in zip(rows, held, strict=True) if out == side] for side in (False, True))
    middle = [row for row in train if row[0] not in CAPTIONS | BY_RULE]
    steps = [b for part in (train, middle, [r for r in middle if r[0] in TEXTS]) for b in batches(part, rng)]
    looked_at = batches(dev, rng)
    model, began, since = Checker(), time.monotonic(), []
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], weight_decay=0.01)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "train.log").open("w", encoding="utf-8") as log:
        for n, batch in enumerate(steps[: options.steps], 1):
            for group in optimizer.param_groups:
                group["lr"] = min(n / 200, 1) * (1.5e-4 - 0.7e-4 * n / len(steps))
            value, right = loss_of(model, batch)
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            since.append((value.item(), right, len(batch)))
            if n % 250 == 0 or n == len(steps):
                with torch.no_grad():
                    found = sum(loss_of(model, b)[1] for b in looked_at) / len(dev)
                loss, right, pairs = np.mean(since, axis=0)
                says = f"loss {loss:.3f}, right {right / pairs:.3f}; held out {found:.3f}"
                print(f"step {n} of {len(steps)}, {time.monotonic() - began:.0f} s: {says}", file=log, flush=True)
                kept = {k.removeprefix("bert."): v.contiguous() for k, v in model.state_dict().items()}
                save_file(kept, options.out / "model.safetensors")
                since = []
    export(model, options.out)


if __name__ == "__main__":
    main()
