"""Embedders of a user's choice: exported folders, names, prefixes, and a warning where MiniLM is the wrong one."""

import json
import shutil
import warnings

import numpy as np
import pytest
from onnx_parts import encoder, rows

from ragbench.embedding import CachedEmbeddings, MiniLM, OnnxEmbeddings, make_embedder, minilm_dir
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.experiment import Experiment
from ragbench.records import Chunk
from ragbench.retrieval import Dense

TABLE = rows(3, sun=[1, 0, 0], rain=[0, 1, 0], query=[0, 0, 1], passage=[0, 0, -1])
TABLE[1] = [3, 4, 0]  # [CLS]
TEXTS = ["The river rises in the Alps and ends in the North Sea.", "Short.", "word " * 300]


@pytest.fixture
def tiny(tmp_path):
    return encoder(tmp_path / "tiny", TABLE)


def test_the_minilm_folder_gives_minilms_vectors(minilm):
    ours = OnnxEmbeddings(minilm_dir(), max_tokens=256)
    assert ours.pooling == "mean"
    np.testing.assert_allclose(ours.embed_array(TEXTS), MiniLM().embed_array(TEXTS), atol=1e-6)


def test_mean_leaves_padding_out_and_cls_takes_the_first_token(tiny):
    # [CLS] sun [SEP] beside a longer text: the sum is (3 + 1, 4, 0)
    mean, longer = OnnxEmbeddings(tiny).embed_array(["sun", "rain rain rain rain"])
    np.testing.assert_allclose(mean, np.array([4, 4, 0]) / np.sqrt(32), atol=1e-6)
    np.testing.assert_allclose(longer, np.array([3, 8, 0]) / np.sqrt(73), atol=1e-6)
    np.testing.assert_allclose(OnnxEmbeddings(tiny, pooling="cls").embed_array(["rain"]), [[0.6, 0.8, 0]], atol=1e-6)


def test_queries_and_documents_take_their_own_prefix_also_through_the_cache(tiny, tmp_path):
    model = OnnxEmbeddings(tiny, query_prefix="query : ", document_prefix="passage : ")
    cached = CachedEmbeddings(model, folder=tmp_path)
    for embedder in (model, cached, CachedEmbeddings(model, folder=tmp_path)):
        assert embedder.embed_query("sun")[2] > 0.1
        assert embedder.embed_documents(["sun"])[0][2] < -0.1
    assert cached.computed == 2
    dense = Dense([Chunk("a", "sun", "d")], cached)
    assert dense.embed_queries(["sun"])[0, 2] > 0.1
    assert dense.vectors[0, 2] < -0.1


def test_a_folder_says_its_own_pooling_prefixes_and_length(tiny):
    (tiny / "1_Pooling").mkdir()
    (tiny / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    said = {"prompts": {"query": "query : ", "passage": "passage : "}}
    (tiny / "config_sentence_transformers.json").write_text(json.dumps(said))
    (tiny / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    model = OnnxEmbeddings(tiny)
    assert (model.pooling, model.query_prefix, model.document_prefix) == ("cls", "query : ", "passage : ")
    mean = OnnxEmbeddings(tiny, pooling="mean", query_prefix="")
    four_tokens = mean.embed_query("sun sun")
    np.testing.assert_allclose(mean.embed_query("sun sun rain rain"), four_tokens, atol=1e-6)


def test_the_id_names_all_that_changes_a_vector(tiny, tmp_path):
    same = OnnxEmbeddings(shutil.copytree(tiny, tmp_path / "copy" / "tiny")).model_id
    other = encoder(tmp_path / "other" / "tiny", 2 * TABLE)
    ids = [OnnxEmbeddings(tiny).model_id, OnnxEmbeddings(tiny, pooling="cls").model_id, OnnxEmbeddings(other).model_id,
           OnnxEmbeddings(tiny, query_prefix="q").model_id, OnnxEmbeddings(tiny, max_tokens=9).model_id]  # fmt: skip
    assert len(set(ids)) == 5
    assert ids[0] == same


def test_safetensors_of_roberta_begin_at_position_two_and_may_have_a_prefix(tmp_path):
    from safetensors.numpy import load_file, save_file

    # The same weights as RoBERTa stores them: two positions more in front, all names under "roberta."
    weights = load_file(minilm_dir() / "model.safetensors")
    places = weights["embeddings.position_embeddings.weight"]
    weights["embeddings.position_embeddings.weight"] = np.concatenate([places[:2] * 0 + 9, places])
    save_file({f"roberta.{name}": value for name, value in weights.items()}, tmp_path / "model.safetensors")
    shutil.copy(minilm_dir() / "tokenizer.json", tmp_path)
    config = json.loads((minilm_dir() / "config.json").read_text()) | {"model_type": "xlm-roberta"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = OnnxEmbeddings(tmp_path, max_tokens=256).embed_array(TEXTS)
    np.testing.assert_allclose(made, MiniLM().embed_array(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    ("break_it", "error", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), DataError, "has no tokenizer.json"),
        (lambda folder: (folder / "model.onnx").unlink(), DataError, "neither model.onnx nor model.safetensors"),
        (lambda folder: (folder / "model.onnx").write_bytes(b"no model"), DataError, "model.onnx"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), DataError, "tokenizer.json"),
        (lambda folder: (folder / "modules.json").write_text('[{"type": "x.Dense"}]'), ConfigError, "step Dense after"),
    ],
)
def test_a_folder_that_cannot_work_is_named(tiny, break_it, error, message):
    break_it(tiny)
    with pytest.raises(error, match=message):
        OnnxEmbeddings(tiny).embed_array(["sun"])


def test_a_classifier_is_no_embedder(tmp_path):
    from onnx_parts import classifier

    folder = classifier(tmp_path / "c", rows(2), rows(2), ["no", "yes"])
    with pytest.raises(ModelError, match="first output has shape"):
        OnnxEmbeddings(folder).embed_array(["sun"])


def test_embedders_by_name_and_wrong_names(tiny):
    assert isinstance(make_embedder("minilm", precision="int8").embedder, MiniLM)
    assert make_embedder(f"onnx:{tiny}", pooling="cls").embedder.pooling == "cls"
    assert make_embedder("ollama:bge-m3", host="http://127.0.0.1:9").model_id == "bge-m3"
    for name in ("onnx", "ollama:", "e5"):
        with pytest.raises(ConfigError, match="onnx:FOLDER"):
            make_embedder(name)
    with pytest.raises(ConfigError, match="pooling"):
        make_embedder(f"onnx:{tiny}", poling="cls")


def test_an_experiment_file_names_the_embedder_of_all_dense_retrievers_or_of_one(tiny, tmp_path):
    (tmp_path / "e.yaml").write_text(
        "name: t\ndata: minihop\nchunker: token_chunks\nembedder: {use: 'onnx:tiny', pooling: cls}\n"
        "retriever: {words: BM25, cls: SIM, fused: Hybrid, mean: {use: SIM, embedder: 'onnx:tiny'}}\n"
    )
    made = Experiment.from_yaml(tmp_path / "e.yaml").grid.retriever
    chunks = [Chunk("a", "sun rain", "d"), Chunk("b", "rain", "e")]
    named = {label: str(build(chunks).settings()) for label, build in made.items()}
    cls, mean = (OnnxEmbeddings(tiny, pooling=pooling).model_id for pooling in ("cls", "mean"))
    assert cls in named["cls"]
    assert cls in named["fused"]
    assert mean in named["mean"]
    assert "embedder" not in named["words"]
    for wrong, message in (
        ("embedder: onnx:nothing", "e.yaml: embedder: .*is not there"),
        ("embedder: {use: 'onnx:tiny', size: 3}", "option of onnx"),
        ("embedder: 3", "embedder has no use"),
    ):
        (tmp_path / "e.yaml").write_text(f"name: t\ndata: minihop\nchunker: token_chunks\nretriever: SIM\n{wrong}\n")
        with pytest.raises(ConfigError, match=message):
            Experiment.from_yaml(tmp_path / "e.yaml")
    (tmp_path / "e.yaml").write_text(
        "name: t\ndata: minihop\nchunker: token_chunks\nretriever: {a: {use: BM25, embedder: minilm}}\n"
    )
    with pytest.raises(ConfigError, match=r"retriever\.a.*option of BM25 'embedder'"):
        Experiment.from_yaml(tmp_path / "e.yaml")


def test_chinese_texts_under_the_english_minilm_warn_and_name_a_multilingual_model(tiny):
    chinese = [Chunk(str(i), "这家公司于二零一九年在上海成立，主要从事能源业务。", "d") for i in range(3)]
    with pytest.warns(UserWarning, match=r"Chinese.*embedder: ollama:bge-m3"):
        Dense(chinese, make_embedder("minilm"))
    english = [Chunk(f"e{i}", "The company was founded in Shanghai in 2019.", "d") for i in range(10)]
    german = [Chunk(f"g{i}", "Die Firma wurde in der Stadt gegründet, und sie ist nicht alt.", "d") for i in range(2)]
    with pytest.warns(UserWarning, match=r"of 12 texts looked at, 2 German: .*knows English"):
        Dense([*english, *german], make_embedder("minilm"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Dense(chinese, OnnxEmbeddings(tiny))
        Dense([*english, german[0]], make_embedder("minilm"))
        Dense([Chunk("e", "The company was founded in Shanghai in 2019.", "d")], make_embedder("minilm"))
