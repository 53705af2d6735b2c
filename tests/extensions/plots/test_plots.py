"""Pictures: valid and repeatable files, the curves they show, labels that do not collide, one-line refusals."""

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import light_process
import matplotlib
import numpy as np
import pytest
from clirun import cli, place  # noqa: F401 - fixtures
from geometry_runs import embed, make_run, pair_set
from scipy.stats import gaussian_kde
from training_logs import write_run

import stsbench
from stsbench.display.pareto import overlap
from stsbench.display.style import COLUMN, style
from stsbench.evaluation.measure import measure
from stsbench.evaluation.result import Result
from stsbench.extensions.plots import geometry
from stsbench.extensions.plots.geometry import load_folders, sts_average
from stsbench.protocols.sts import TASKS, StsProtocol


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / "even", 0.0, ("geometry", "all")), make_run(folder / "narrow", 1.0, ("geometry", "all")),
        make_run(folder / "bare", 0.3)]


def test_the_spectrum_drawn_is_the_stored_one(runs):
    with style():
        lines = geometry.spectrum_figure(runs[:2]).axes[0].get_lines()
    for line, run in zip(lines, load_folders(runs[:2], ["spectrum"]), strict=True):
        stored = run.observations.arrays["spectrum"]
        shown = stored / stored[0]
        # Ten nouns and an article, pooled by sum: rank 10, so the last two of 12 values are rounding noise.
        np.testing.assert_allclose(line.get_ydata(), shown[:10])
        assert line.get_xdata().tolist() == [*range(1, 11)]
        assert line.get_ydata()[0] == 1 and shown[9] > 1e-3 > 1e-6 > shown[10]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 2


def test_a_density_has_area_one_inside_the_cosines_range():
    rng = np.random.default_rng(0)
    grid = np.linspace(-1, 1, 4001)
    for values in (rng.normal(0.2, 0.1, 200), 1 - np.abs(rng.normal(0, 0.02, 200)), rng.uniform(-1, 1, 50)):
        assert np.trapezoid(geometry.density(values.clip(-1, 1), grid), grid) == pytest.approx(1, abs=0.01)
    assert not geometry.density(np.ones(5), grid).any() and not geometry.density(np.array([0.3]), grid).any()


def test_every_density_reaches_the_same_height_and_ends_inside(runs, tmp_path):
    narrow = make_run(tmp_path / "narrow", 3.0)  # all cosines near 1
    with style():
        panels = geometry.similarity_figure([runs[0], narrow]).axes
    for panel in panels:
        outlines = [ridge.get_paths()[0].vertices for ridge in panel.collections if len(ridge.get_paths()[0].vertices) > 9]
        assert len(outlines) == 5
        for level, outline in enumerate(outlines):
            assert outline[:, 1].max() == pytest.approx(level + 0.92)
            left = outline[outline[:, 0] <= panel.get_xlim()[0] + 1e-9]
            assert left[:, 1].max() < level + 0.92 * 0.01 + 1e-9 or panel.get_xlim()[0] == -1
    assert panels[0].get_xlim() == panels[1].get_xlim()


def test_the_axis_begins_where_the_densities_end():
    rng = np.random.default_rng(1)
    wide, narrow = rng.normal(0.3, 0.15, 8).clip(-1, 1), rng.normal(0.9, 0.01, 50).clip(-1, 1)
    edge = geometry.left_edge([narrow, wide])
    kernel = gaussian_kde(wide)
    assert -1 < edge < wide.min() and kernel(edge)[0] < 0.01 * kernel(np.linspace(-1, 1, 4001)).max()
    assert kernel(edge + 0.11)[0] > 0.01 * kernel(0.3)[0]  # the last multiple of 0.1 that does
    assert geometry.left_edge([np.array([0.45])]) == 0.4 and geometry.left_edge([np.array([-0.99, -0.5, 0.9])]) == -1


def test_pictures_of_the_sample_say_so(runs, tmp_path):
    real = make_run(tmp_path / "real", data=dataclasses.replace(pair_set(), text_version="senteval"))
    with style():
        for picture in (geometry.plane_figure, geometry.spectrum_figure, geometry.similarity_figure):
            figure = picture(runs[:1])
            assert (figure.get_suptitle(), picture([real]).get_suptitle()) == ("sample data", "")
        figure.draw_without_rendering()
        inside = [axes.get_tightbbox() for axes in figure.axes]
        assert not any(overlap(figure._suptitle.get_window_extent(), box) for box in inside)


def test_an_average_by_dot_product_colours_no_point(tmp_path):
    for name, settings in (("dot", {"similarity": "dot"}), ("fewer", {"without_overlap": ["stsb/dev"]})):
        result = Result(tmp_path / name)
        sets = {task: pair_set(id, 20) for task, id in list(TASKS.items())[:7]}
        measure(result, embed(), StsProtocol({"resamples": 0, **settings}), sets)
        result.write()
        assert sts_average(tmp_path / name) is None


def test_cosines_come_from_an_sts_run_as_well(tmp_path):
    both = [make_run(tmp_path / "a", 0.0, ("sts",)), make_run(tmp_path / "b", 0.0)]
    cosines = [geometry._cosine(run) for run in load_folders(both, geometry._COSINES)]
    np.testing.assert_array_equal(*cosines)


def test_the_plane_shows_the_rows_and_the_averages(runs):
    assert [sts_average(run) is not None for run in runs] == [True, True, False]
    with style():
        axes, bar = (figure := geometry.plane_figure(runs)).axes
        coloured, hollow = axes.collections
    records = load_folders(runs, ["uniformity"])
    expected = [(run.value("uniformity"), run.value("alignment")) for run in records]
    np.testing.assert_allclose([*coloured.get_offsets(), *hollow.get_offsets()], expected)
    np.testing.assert_allclose(coloured.get_array(), [sts_average(run) for run in runs[:2]])
    assert "STS average" in bar.get_ylabel()
    assert {text.get_text() for text in axes.texts} == {run.label for run in records} == {"even", "narrow", "bare"}
    assert figure.get_size_inches()[0] == COLUMN
    with style():
        for few in (runs[1:], runs[2:]):  # one average is no scale, none is none: filled, not hollow
            [axes] = geometry.plane_figure(few).axes
            [points] = axes.collections
            assert len(points.get_offsets()) == len(few) and points.get_facecolor()[0, :3].max() < 1


def test_the_look_leaves_a_users_settings_alone():
    before = matplotlib.rcParams["font.size"]
    matplotlib.rcParams["lines.linewidth"] = 9
    with style():
        assert matplotlib.rcParams["lines.linewidth"] == 1.2
    assert (matplotlib.rcParams["lines.linewidth"], matplotlib.rcParams["font.size"]) == (9, before)
    matplotlib.rcParams["lines.linewidth"] = matplotlib.rcParamsDefault["lines.linewidth"]


def test_drawing_imports_no_torch_and_help_no_matplotlib(runs, tmp_path):
    write_run(tmp_path / "run")
    code = (
        "import sys; from stsbench.extensions.plots.command import plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"for name, run in (('spectrum', {str(runs[0])!r}), ('training', {str(tmp_path / 'run')!r})):\n"
        f"    plot([name, run, '--output', {str(tmp_path)!r} + f'/{{name}}.svg'], standalone_mode=False)\n"
        "assert not {'torch', 'sklearn', 'transformers', 'matplotlib.pyplot'} & set(sys.modules)\n")
    done = light_process.run(code)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "spectrum.svg").is_file() and (tmp_path / "training.svg").is_file()


def test_the_command_and_the_function_write_the_same_files(cli, place):
    asked = {"sample": True, "protocols": "geometry", "tasks": "STS-B", "output": "geometry"}
    runs = [stsbench.evaluate("python:mine_cli:hashed", **asked)] * 2
    code, out, _ = cli("plot", "similarity", "geometry", "geometry")
    assert code == 0 and out.split() == ["similarity.png", "similarity.svg"]
    png, svg = (Path(f"similarity.{kind}").read_bytes() for kind in ("png", "svg"))
    assert png.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in png[-12:] and ET.fromstring(svg).tag.endswith("svg")
    assert int.from_bytes(png[16:20], "big") / 300 == pytest.approx(6.9, abs=0.01)
    stsbench.plot("similarity", runs, output="new/only.png")  # a suffix chooses the format
    assert [path.name for path in Path("new").iterdir()] == ["only.png"] and Path("new/only.png").read_bytes() == png
    before = set(place.iterdir())
    shown = stsbench.plot("spectrum", "geometry")._repr_svg_()
    assert shown.rstrip().endswith("</svg>") and set(place.iterdir()) == before
