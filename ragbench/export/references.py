"""BibTeX for what a run or a ledger used, and the two ways to cite it: ``[@key]`` and ``\\cite{key}``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ragbench.errors import unknown

Entry = tuple[str, Mapping[str, str]]

ENTRIES: Mapping[str, Entry] = {
    "elyagouby2024": ("mastersthesis", {
        "author": r"El Yagouby, Mohamed Amine",
        "title": "Evaluation Framework for Retrieval-Augmented Generation ({RAG}) Systems: "
                 "Bridging Information Retrieval and {LLM} Performances",
        "school": r"Facult{\'e} des Sciences Dhar El Mahraz, F{\`e}s, and Universit{\'e} Sorbonne Paris Nord",
        "year": "2024",
    }),
    "ru2024ragchecker": ("inproceedings", {
        "author": "Ru, Dongyu and Qiu, Lin and Hu, Xiangkun and Zhang, Tianhang and Shi, Peng and Chang, Shuaichen and "
                  "Jiayang, Cheng and Wang, Cunxiang and Sun, Shichao and Li, Huanyu and Zhang, Zizhao and "
                  "Wang, Binjie and Jiang, Jiarong and He, Tong and Wang, Zhiguo and Liu, Pengfei and Zhang, Yue and "
                  "Zhang, Zheng",
        "title": "{RAGChecker}: A Fine-grained Framework for Diagnosing Retrieval-Augmented Generation",
        "booktitle": "Advances in Neural Information Processing Systems (Datasets and Benchmarks Track)",
        "year": "2024",
        "note": "arXiv:2408.08067",
    }),
    "es2024ragas": ("inproceedings", {
        "author": "Es, Shahul and James, Jithin and Espinosa-Anke, Luis and Schockaert, Steven",
        "title": "{RAGAs}: Automated Evaluation of Retrieval Augmented Generation",
        "booktitle": "Proceedings of the 18th Conference of the European Chapter of the Association for Computational "
                     "Linguistics: System Demonstrations",
        "year": "2024",
        "note": "arXiv:2309.15217",
    }),
    "zhu2024rageval": ("misc", {
        "author": "Zhu, Kunlun and Luo, Yifan and Xu, Dingling and Wang, Ruobing and Yu, Shi and Wang, Shuo and "
                  "Yan, Yukun and Liu, Zhenghao and Han, Xu and Liu, Zhiyuan and Sun, Maosong",
        "title": "{RAGEval}: Scenario Specific {RAG} Evaluation Dataset Generation Framework",
        "year": "2024",
        "note": "arXiv:2408.01262",
    }),
    "yang2018hotpotqa": ("inproceedings", {
        "author": "Yang, Zhilin and Qi, Peng and Zhang, Saizheng and Bengio, Yoshua and Cohen, William and "
                  "Salakhutdinov, Ruslan and Manning, Christopher D.",
        "title": "{HotpotQA}: A Dataset for Diverse, Explainable Multi-hop Question Answering",
        "booktitle": "Proceedings of the 2018 Conference on Empirical Methods in Natural Language Processing",
        "pages": "2369--2380",
        "year": "2018",
    }),
    "robertson2009bm25": ("article", {
        "author": "Robertson, Stephen and Zaragoza, Hugo",
        "title": "The Probabilistic Relevance Framework: {BM25} and Beyond",
        "journal": "Foundations and Trends in Information Retrieval",
        "volume": "3", "number": "4", "pages": "333--389", "year": "2009",
    }),
    "wang2020minilm": ("inproceedings", {
        "author": "Wang, Wenhui and Wei, Furu and Dong, Li and Bao, Hangbo and Yang, Nan and Zhou, Ming",
        "title": "{MiniLM}: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
        "booktitle": "Advances in Neural Information Processing Systems",
        "volume": "33", "year": "2020",
    }),
    "reimers2019sbert": ("inproceedings", {
        "author": "Reimers, Nils and Gurevych, Iryna",
        "title": "Sentence-{BERT}: Sentence Embeddings using {S}iamese {BERT}-Networks",
        "booktitle": "Proceedings of the 2019 Conference on Empirical Methods in Natural Language Processing",
        "pages": "3982--3992", "year": "2019",
    }),
    "carbonell1998mmr": ("inproceedings", {
        "author": "Carbonell, Jaime and Goldstein, Jade",
        "title": "The Use of {MMR}, Diversity-Based Reranking for Reordering Documents and Producing Summaries",
        "booktitle": "Proceedings of the 21st Annual International ACM SIGIR Conference",
        "pages": "335--336", "year": "1998",
    }),
    "cormack2009rrf": ("inproceedings", {
        "author": r"Cormack, Gordon V. and Clarke, Charles L. A. and B{\"u}ttcher, Stefan",
        "title": "Reciprocal Rank Fusion Outperforms {Condorcet} and Individual Rank Learning Methods",
        "booktitle": "Proceedings of the 32nd International ACM SIGIR Conference",
        "pages": "758--759", "year": "2009",
    }),
    "liu2024lost": ("article", {
        "author": "Liu, Nelson F. and Lin, Kevin and Hewitt, John and Paranjape, Ashwin and Bevilacqua, Michele and "
                  "Petroni, Fabio and Liang, Percy",
        "title": "Lost in the Middle: How Language Models Use Long Contexts",
        "journal": "Transactions of the Association for Computational Linguistics",
        "volume": "12", "pages": "157--173", "year": "2024",
    }),
    "clopper1934": ("article", {
        "author": "Clopper, C. J. and Pearson, E. S.",
        "title": "The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial",
        "journal": "Biometrika",
        "volume": "26", "number": "4", "pages": "404--413", "year": "1934",
    }),
    "efron1993bootstrap": ("book", {
        "author": "Efron, Bradley and Tibshirani, Robert J.",
        "title": "An Introduction to the Bootstrap",
        "publisher": "Chapman and Hall", "year": "1993",
    }),
    "manski1990bounds": ("article", {
        "author": "Manski, Charles F.",
        "title": "Nonparametric Bounds on Treatment Effects",
        "journal": "American Economic Review",
        "volume": "80", "number": "2", "pages": "319--323", "year": "1990",
    }),
    "ollama": ("misc", {
        "author": "{Ollama}", "title": "Ollama", "howpublished": r"\url{https://ollama.com}",
    }),
}  # fmt: skip
PAPERS = {
    "thesis": "elyagouby2024", "ragchecker": "ru2024ragchecker", "ragas": "es2024ragas", "rageval": "zhu2024rageval"
}  # fmt: skip
_MARK = re.compile(r"\s*⟦([\w,:.-]+)⟧")


def ragbench_entry(version: str, revision: str = "") -> Entry:
    """Return the entry of ragbench itself, with its version and revision."""
    note = f"Version {version}" + (f", revision {revision[:12]}" if revision else "")
    title = "{ragbench}: a research workbench for evaluating retrieval-augmented generation"
    return "misc", {"author": "{The ragbench authors}", "title": title, "year": "2026", "note": note}


def model_entry(provider: str, model: str, digest: str | None) -> Entry:
    """Return the entry of a language model as it was served."""
    from ragbench.export.latex import escape

    where = {"ollama": rf"\url{{https://ollama.com/library/{model.partition(':')[0]}}}"}.get(provider, escape(provider))
    fields = {"key": escape(model), "title": f"{{{escape(model)}}}", "howpublished": where}
    return "misc", fields | ({"note": f"Digest {digest[:12]}"} if digest else {})


def bibtex(entries: Mapping[str, Entry]) -> str:
    """Write entries, sorted by key."""
    made = []
    for key, (kind, fields) in sorted(entries.items()):
        lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
        made.append(f"@{kind}{{{key},\n{lines}\n}}\n")
    return "\n".join(made)


def used(text: str, own: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries of the keys a text cites."""
    known = {**ENTRIES, **own}
    keys = [key for found in _MARK.findall(text) for key in found.split(",")]
    for key in keys:
        if key not in known:
            raise unknown("reference", key, known)
    return {key: known[key] for key in dict.fromkeys(keys)}


def cite(keys: Iterable[str]) -> str:
    """Mark a place in a text where keys are cited."""
    return f" ⟦{','.join(keys)}⟧"


def as_markdown(text: str) -> str:
    """Write the marked citations as Pandoc reads them."""
    return _MARK.sub(lambda found: " [" + "; ".join(f"@{key}" for key in found[1].split(",")) + "]", text)


def as_latex(text: str) -> str:
    """Write the text for LaTeX with its citations as commands."""
    from ragbench.export.latex import escape

    made, end = [], 0
    for found in _MARK.finditer(text):
        made += [escape(text[end : found.start()]), rf"~\cite{{{found[1]}}}"]
        end = found.end()
    return "".join([*made, escape(text[end:])])
