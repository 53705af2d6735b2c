"""What people type in a notebook without reading the manual, and what each call gives: run in one folder, in this order."""

from __future__ import annotations

import pytest

import stsbench
from stsbench.errors import StsbenchError

SAMPLE = {"sample": True, "resamples": 0, "tasks": "STS-B"}
TEXTS = ["A cat sleeps.", "A dog runs.", "It rains."]
START = (
    "import numpy as np, stsbench\n"
    "from stsbench import compare, evaluate, load, load_encoder, losses, methods\n"
    "model, e = 'lexical:token-set', load_encoder('lexical:tfidf')\n"
    "a = evaluate(model, output='a', **SAMPLE); b = evaluate(e, output='b', **SAMPLE)\n"
)
CALLS = {  # expression -> what it is equal to
    "len(evaluate(model, protocols='sts:all', **SAMPLE).rows)": 2,
    "[record.data.task for record in evaluate(model, 'STS:All', tasks=['stsb', 'STS-12'], sample=True).records]": [
        "STS12", "STS-B"
    ],
    "evaluate(model, 'sts:all', tasks='STSBenchmark', sample=True).rows[0].task": "STS-B",
    "stsbench.load_recipe('SimCSE/unsup-bert-base').method": "simcse",
    "a['STS-B'] == a.scores['STS-B'] == a['stsb'] == a.rows[0].value": True,
    "compare(a, b, resamples=100)['STS-B'].difference == compare(a, b, resamples=100).tables[0].rows[0].difference": True,
    "round(float(load_encoder(model).similarity('a cat', 'a cat')[0, 0]), 4)": 1.0,
    "round(float(load_encoder(model).similarity('a cat', 'a dog')[0, 0]), 4)": 0.5,
    "load_encoder('minilm').max_seq_length": 256,
    "{'encode', 'similarity', 'dimension'} <= set(dir(e)) and 'of_call' not in dir(e)": True,
    "{'sts:mean', 'simcse'} <= {*stsbench.list_protocols(), *stsbench.list_methods()}": True,
    "stsbench.list_recipes('SimCSE')[0].partition('/')[0]": "simcse",
    "len(stsbench.load_data('stsb/test', sample=True)) == a.rows[0].n and 'stsb/test' in stsbench.list_data()": True,
    "evaluate(e, **SAMPLE).rows == b.rows": True,
    "a._repr_html_().count('<table')": 1,
    "len(a.to_pandas())": 6,
    "stsbench.score(a).rows == load('a').rows == load(a.folder).rows == a.rows": True,
    "compare(a, b, resamples=100).tables[0].rows == compare('a', 'b', resamples=100).tables[0].rows": True,
    "compare(a, b, protocol='sts', metric='pearson', resamples=100).tables[0].setting.metric": "pearson",
    "compare(a, b, resamples=100).plot().get_title(loc='left').splitlines()[0]": "A: lexical:token-set; B: lexical:tfidf",
    "[*compare(a, b, resamples=100).to_pandas().columns[-3:]]": ["high", "p", "p_holm"],
    "load_encoder(model).encode('one string').ndim": 1,
    "load_encoder(model).encode(np.array(['two', 'texts'])).shape[0]": 2,
    "load_encoder(model).encode(('a', 'b'), batch_size=1, show_progress_bar=False).shape[0]": 2,
    "round(float(load_encoder(model).similarity(*[load_encoder(model).encode(TEXTS)] * 2)[0, 0]), 4)": 1.0,
    "load_encoder(lambda texts: np.ones((len(texts), 3))).encode(TEXTS).shape": (3, 3),
    "methods.SimCSE(temperature=0.1).temperature": 0.1,
    "{'SimCSE', 'DiffCSE'} <= set(dir(methods)) and {'simcse', 'diffcse'} <= set(dir(losses))": True,
    "stsbench.load_recipe('simcse/unsup-bert-base').with_settings({'seed': 3}).seed": 3,
    "{'evaluate', 'train', 'load', 'losses', 'methods', 'leaderboard'} <= set(dir(stsbench))": True,
}
REFUSED = {  # call -> what its one line names
    "evaluate(model, protocol='stss', **SAMPLE)": "stss",
    "evaluate(3, **SAMPLE)": "not callable",
    "compare('a', 'no-such-run')": "no-such-run",
    "load_encoder(model).encode(['a', None])": r"texts\[1\]",
}


@pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
def test_a_call_gives_what_it_looks_like(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"SAMPLE": SAMPLE, "TEXTS": TEXTS}
    exec(START, names)
    for call, expected in CALLS.items():
        assert eval(call, names) == expected, call
        assert capsys.readouterr().out == "", call
    for call, said in REFUSED.items():
        with pytest.raises(StsbenchError, match=said) as caught:
            eval(call, names)
        assert "\n" not in str(caught.value), call


def test_the_public_names_are_few_and_all_there():
    assert len(stsbench.__all__) <= 39
    assert all(getattr(stsbench, name) is not None for name in stsbench.__all__)
