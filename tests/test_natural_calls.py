"""What people type in a notebook without reading the manual, and what each call gives: run in one folder, in this order."""

from __future__ import annotations

import warnings

import pytest

import stsbench
from stsbench.errors import StsbenchError, StsbenchWarning

SAMPLE = {"sample": True, "resamples": 0, "tasks": "STS-B"}
TEXTS = ["A cat sleeps.", "A dog runs.", "It rains."]
START = (
    "import numpy as np, stsbench\n"
    "from stsbench import compare, evaluate, leaderboard, load, load_encoder, losses, methods\n"
    "model, e = 'lexical:token-set', load_encoder('lexical:tfidf')\n"
    "a = evaluate(model, output='a', **SAMPLE); b = evaluate(e, output='b', **SAMPLE)\n"
)
CALLS = {  # expression -> what it is equal to
    "len(evaluate(model, protocols='sts:all', **SAMPLE).rows)": 2,
    "len(evaluate(model, protocol='sts', **SAMPLE).rows)": 6,
    "len(evaluate(model, protocols=['sts:all'], **SAMPLE).rows)": 2,
    "[record.data.task for record in evaluate(model, 'STS:All', tasks=['stsb', 'STS-12'], sample=True).records]": [
        "STS12", "STS-B"
    ],
    "evaluate(model, 'sts:all', tasks='STSBenchmark', sample=True).rows[0].task": "STS-B",
    "stsbench.load_recipe('SimCSE/unsup-bert-base').method": "simcse",
    "evaluate(lambda texts: np.eye(len(texts)) + 1, fingerprint='1', **SAMPLE).failures != {}": True,
    "evaluate(e, **SAMPLE).rows == b.rows": True,
    "a.rows[0].task": "STS-B",
    "a['STS-B'] == a.scores['STS-B'] == a['stsb'] == a.rows[0].value": True,
    "compare(a, b, resamples=100)['STS-B'].difference == compare(a, b, resamples=100).tables[0].rows[0].difference": True,
    "round(float(load_encoder(model).similarity('a cat', 'a cat')[0, 0]), 4)": 1.0,
    "load_encoder('minilm').max_seq_length": 256,
    "{'encode', 'similarity', 'dimension'} <= set(dir(e)) and 'of_call' not in dir(e)": True,
    "{'sts:mean', 'simcse'} <= {*stsbench.list_protocols(), *stsbench.list_methods()}": True,
    "stsbench.list_recipes('SimCSE')[0].partition('/')[0]": "simcse",
    "len(stsbench.load_data('stsb/test', sample=True)) == a.rows[0].n and 'stsb/test' in stsbench.list_data()": True,
    "len(repr(a)) < 120": True,
    "'STS-B' in str(a)": True,
    "a._repr_html_().count('<table')": 1,
    "a.folder.name": "a",
    "a.plot().get_xlabel()": "spearman x 100, 95 % interval",
    "a.latex().count('tabular')": 2,
    "load(evaluate(model, **SAMPLE).save('kept')).rows == a.rows": True,
    "len(a.to_pandas())": 6,
    "load('a').rows == a.rows": True,
    "load(a.folder).rows == a.rows": True,
    "stsbench.score('a').rows == a.rows": True,
    "stsbench.score(a).rows == a.rows": True,
    "compare('a', 'b', resamples=100).tables[0].rows[0].task": "STS-B",
    "compare(a, b, resamples=100).tables[0].rows == compare('a', 'b', resamples=100).tables[0].rows": True,
    "compare(a, b, protocol='sts', metric='pearson', resamples=100).tables[0].setting.metric": "pearson",
    "compare(a, b, resamples=100)._repr_html_().count('<table') > 0": True,
    "len(repr(compare(a, b, resamples=100))) < 200": True,
    "compare(a, b, resamples=100).plot().get_title(loc='left').splitlines()[0]": "A: lexical:token-set; B: lexical:tfidf",
    "'booktabs' in compare(a, b, resamples=100).latex()": True,
    "[*compare(a, b, resamples=100).to_pandas().columns[-3:]]": ["high", "p", "p_holm"],
    "load_encoder(model).encode('one string').ndim": 1,
    "load_encoder(model).encode(['two', 'texts']).shape[0]": 2,
    "load_encoder(model).encode(np.array(['two', 'texts'])).shape[0]": 2,
    "load_encoder(model).encode(('a', 'b'), batch_size=1, show_progress_bar=False).shape[0]": 2,
    "round(float(load_encoder(model).similarity(*[load_encoder(model).encode(TEXTS)] * 2)[0, 0]), 4)": 1.0,
    "load_encoder(model).encode_query(TEXTS).shape == load_encoder(model).encode_document(TEXTS).shape": True,
    "load_encoder(lambda texts: np.ones((len(texts), 3))).encode(TEXTS).shape": (3, 3),
    "methods.SimCSE(temperature=0.1).temperature": 0.1,
    "{'SimCSE', 'DiffCSE'} <= set(dir(methods)) and {'simcse', 'diffcse'} <= set(dir(losses))": True,
    "losses.simcse.__name__": "simcse",
    "stsbench.load_recipe('simcse/unsup-bert-base').method": "simcse",
    "stsbench.load_recipe('simcse/unsup-bert-base').with_settings({'seed': 3}).seed": 3,
    "{'evaluate', 'train', 'load', 'losses', 'methods', 'leaderboard'} <= set(dir(stsbench))": True,
    "{'build', 'add', 'submit', 'placement', 'load'} <= set(dir(leaderboard))": True,
}
REFUSED = {  # call -> its one line, or Python's own error
    "evaluate(model, protocol='stss', **SAMPLE)": "stss",
    "evaluate(3, **SAMPLE)": "not callable",
    "evaluate('no/such/model', offline=True, **SAMPLE)": "no/such/model",
    "compare('a', 'no-such-run')": "no-such-run",
    "load('no-such-run')": "no-such-run",
    "load_encoder(model).encode(['a', None])": r"texts\[1\]",
    "stsbench.load_recipe('simcse/no-such')": "no-such",
}


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", StsbenchWarning)
        patch.chdir(tmp_path_factory.mktemp("natural"))
        made = {"SAMPLE": SAMPLE, "TEXTS": TEXTS}
        exec(START, made)
        yield made


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_gives_what_it_looks_like(names, call, capsys):
    assert eval(call, names) == CALLS[call]
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
@pytest.mark.parametrize("call", REFUSED)
def test_what_cannot_be_meant_is_one_line(names, call):
    with pytest.raises(StsbenchError, match=REFUSED[call]) as caught:
        eval(call, names)
    assert "\n" not in str(caught.value)


def test_the_public_names_are_few_and_all_there():
    assert len(stsbench.__all__) <= 36
    assert all(getattr(stsbench, name) is not None for name in stsbench.__all__)
