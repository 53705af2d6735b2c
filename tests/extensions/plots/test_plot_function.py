"""`stsbench plot` and `stsbench.plot` draw the same picture, byte for byte; and a run draws itself."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_models
import training_runs
from clirun import cli, place  # noqa: F401 - fixtures
from training_logs import write_run
from training_runs import one_thread  # noqa: F401

import stsbench
from stsbench.display.style import COLUMN
from stsbench.training.runs.finish import load_trained

pytestmark = pytest.mark.filterwarnings("ignore::stsbench.errors.StsbenchWarning")
HASHED = "python:mine_cli:hashed"


@pytest.mark.parametrize("picture", ["similarity", "geometry", "spectrum"])
def test_plot(cli, place, picture):
    runs = [stsbench.evaluate(HASHED, sample=True, protocols="geometry", tasks="STS-B", output="geometry")] * 2
    code, out, _ = cli("plot", picture, "geometry", "geometry")
    assert code == 0 and out.split() == [f"{picture}.png", f"{picture}.svg"]
    png, svg = (Path(f"{picture}.{kind}").read_bytes() for kind in ("png", "svg"))
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in png[-12:] and ET.fromstring(svg).tag.endswith("svg")
    width = int.from_bytes(png[16:20], "big") / 300
    assert width == pytest.approx(6.9 if picture == "similarity" else COLUMN, abs=0.01)
    figure = stsbench.plot(picture, runs, output="by-function")
    for kind in ("png", "svg"):
        assert Path(f"{picture}.{kind}").read_bytes() == Path(f"by-function.{kind}").read_bytes()
    assert figure._repr_svg_().rstrip().endswith("</svg>")
    before = set(place.iterdir())
    assert stsbench.plot(picture, "geometry").axes and set(place.iterdir()) == before
    stsbench.plot(picture, "geometry", output="new/only.svg")  # a suffix chooses the format
    assert [path.name for path in Path("new").iterdir()] == ["only.svg"]


def made_by_training(folder):
    """What pictures of trainings are drawn from: numbers that diffaug logs."""
    lines = [{**line, "delta": 6.0, "delta_normalised": 0.5} if line["kind"] == "dev" else line
             for line in write_run(folder, (("prefix", 200), ("joint", 100)))]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("picture", ["training", "divergence", "token-loss"])
def test_plot_of_a_training(cli, place, picture, monkeypatch):
    """Losses by token of a method that gives the length of each word."""
    of_words = lambda texts: [[(word, len(word), 1.0) for word in text.split()] for text in texts]  # noqa: E731
    losses = SimpleNamespace(token_losses=of_words)
    monkeypatch.setattr("stsbench.training.runs.finish.load_trained", lambda run, method=None: losses)
    made_by_training(place / "run")
    texts = ["a cat sleeps", "the dog runs"] if picture == "token-loss" else []
    assert cli("plot", picture, "run", *(word for text in texts for word in ("--text", text)))[0] == 0
    stsbench.plot(picture, "run", output="by-function", texts=texts)
    for kind in ("png", "svg"):
        assert Path(f"{picture}.{kind}").read_bytes() == Path(f"by-function.{kind}").read_bytes()


def test_pictures_of_a_trained_method(cli, place, monkeypatch):
    """The run's own picture is that of the command; the bars of a token are its loss, and that times its weight."""
    more = {"backbone.pooler": "text_cnn", "backbone.text_cnn": {"channels": 6}, "backbone.max_length": 16,
            "training.max_steps": 2, "selection.by": "none"}
    model, text = tiny_models.build(place / "tiny", pooler=False), training_runs.make_text(place)
    settings = training_runs.settings(model, text, **more)
    run = stsbench.train("sarcse", output="run", settings=settings, device="cpu")
    titles = [panel.get_title("left") for panel in run.plot()]
    assert titles[-1] == "gradient norm"
    assert titles == [panel.get_title("left") for panel in stsbench.plot("training", run).axes]
    code, _, err = cli("plot", "training", "run", "--output", "curves.png")
    assert code == 0 and Path("curves.png").read_bytes()[:4] == b"\x89PNG", err
    texts = ["the cat sleeps", "a dog : ."]
    losses = load_trained(place / "run", "cpu").token_losses(texts)
    for panel, tokens in zip(stsbench.plot("token-loss", run, texts=texts).axes, losses, strict=True):
        heights = [[bar.get_height() for bar in bars] for bars in panel.containers]
        assert heights[0] == pytest.approx([loss for _, loss, _ in tokens])
        assert heights[1] == pytest.approx([loss * weight for _, loss, weight in tokens])
